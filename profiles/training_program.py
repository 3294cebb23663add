"""Which training program a task runs, where that is not the built-in one.

A program is named here and nothing more: it is imported in the task's ranks (``nodeagent.rank``).
"""

import math
import re
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator

Option = str | int | float | bool
"""What a program can be handed: text, a number, or true and false."""

_FUNCTION: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def _is_function(name: str) -> str:
    if not _FUNCTION.fullmatch(name):
        raise ValueError("must be package.module:function")
    return name


def _is_plain(value: object) -> Option:
    if not isinstance(value, str | int | float) or not math.isfinite(
        0 if isinstance(value, str) else value
    ):
        raise ValueError("must be text, a finite number, true or false")
    return value


class Program(BaseModel):
    """A training program of one's own.

    Attributes:
        function: ``package.module:function``; the function returns the loop to train with.
        directory: Where the module is found: goes first on ``sys.path`` of every rank, so it must
            be there on every node. Empty where the module is installed.
        options: Handed to the function as they are.
        index_limit_s: How long a rank waits for another process that builds the indices of
            Megatron's data sets.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    function: Annotated[str, AfterValidator(_is_function)]
    directory: str = ""
    options: dict[str, Annotated[Option, PlainValidator(_is_plain)]] = {}
    index_limit_s: float = Field(default=100.0, gt=0, allow_inf_nan=False)
