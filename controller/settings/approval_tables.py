"""Reads a table ``[[approval]]``: which plans are applied by themselves."""

import json
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from controller.core.rules.approval import Approval, ApprovalRule, minutes_of
from profiles.key_mistakes import KeyMistake, key_mistakes


def _are_hours(text: str) -> str:
    try:
        if text:
            minutes_of(text)
    except ValueError as error:
        raise ValueError("must be hours of the day in UTC, such as 22:00-06:00") from error
    return text


class ApprovalTable(BaseModel):
    """A kind of plans, and what becomes of them. The first table that matches a plan decides.

    Attributes:
        then: ``auto``: they are applied at once. ``ask``: they wait for an operator. ``never``:
            they are rejected, and their incidents wait for an operator.
        auto_after_s: With ``ask``: they are applied after this time if nobody has decided.
        severity: Only if the worst severity of their incidents is one of these.
        tasks: Only if they interrupt one of these tasks.
        moves_over: Only if they interrupt more than this share of the workers.
        hours: Only within these hours, in UTC: ``22:00-06:00``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    then: Approval
    auto_after_s: float = Field(default=0.0, ge=0, le=1e6, allow_inf_nan=False)
    severity: tuple[Literal["SEV1", "SEV2", "SEV3"], ...] = ()
    tasks: tuple[str, ...] = ()
    moves_over: float = Field(default=0.0, ge=0, lt=1, allow_inf_nan=False)
    hours: Annotated[str, AfterValidator(_are_hours)] = ""

    @model_validator(mode="after")
    def _counts_down_only_if_it_asks(self) -> "ApprovalTable":
        if self.auto_after_s and self.then != "ask":
            raise ValueError('auto_after_s: belongs to then = "ask"')
        return self

    @property
    def rule(self) -> ApprovalRule:
        """The same for the core."""
        return ApprovalRule(**self.model_dump())


def read_approval(table: object) -> ApprovalRule | list[KeyMistake]:
    """Return the rule of a table, or its mistakes."""
    try:
        return ApprovalTable.model_validate_json(json.dumps(table, default=str), strict=True).rule
    except ValidationError as error:
        return key_mistakes(error, {"": list(ApprovalTable.model_fields)})
