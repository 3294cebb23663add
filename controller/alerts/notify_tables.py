"""Reads a table ``[[notify]]``: a channel over which people are notified."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from controller.alerts.alert import AlertSeverity
from profiles.key_mistakes import KeyMistake, key_mistakes
from profiles.records import user_path

_URL: Final = r"^[a-z][a-z0-9+.-]*://\S+$"
_MOST_URL_BYTES: Final = 10_000
_SECRET: Final = KeyMistake(
    ("url",), "url: must be SCHEME://..., as https://appriseit.com says it for each service"
)
"""The mistake of a URL, without the URL: it may hold a secret."""


class ChannelError(Exception):
    """A channel can't be used. The text is one line, and has no secret."""


@dataclass(frozen=True, slots=True)
class NotifyChannel:
    """A channel: where it leads, and what goes over it.

    Attributes:
        name: Its name in the cluster file.
        severity: The least urgent alerts that it gets.
        tasks: Only alerts about these tasks, and those that are about none; empty for all.
        most_per_hour: Messages an hour at most.
        url: Where to, with its secrets; empty if ``url_file`` has it.
        url_file: A file whose first line is the URL.
    """

    name: str
    severity: AlertSeverity
    tasks: tuple[str, ...]
    most_per_hour: int
    url: str = ""
    url_file: Path | None = None

    def read_url(self) -> str:
        """Return where it leads to. The file is read at each call, since secrets change.

        Raises:
            ChannelError: The file can't be read, or its first line is no URL.
        """
        if self.url_file is None:
            return self.url
        try:
            with self.url_file.open(encoding="utf-8") as file:
                line = file.readline(_MOST_URL_BYTES).strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "is no text"
            raise ChannelError(f"{self.url_file}: {reason.lower()}") from error
        if "://" not in line:
            raise ChannelError(f"{self.url_file}: its first line is no URL")
        return line


class NotifyTable(BaseModel):
    """A channel over which people are notified, in a notation of apprise.

    Attributes:
        name: A name for it, shown in events.
        url: Where to: `mailto://`, `slack://`, `pagerduty://`, `jsons://` and some 120 more,
            see https://appriseit.com. It often holds a secret; then `url_file` is better.
        url_file: A file whose first line is the URL; a path relative to this file.
        severity: The least urgent alerts that it gets. `critical` waits for a person, `warning` is
            for today, `info` is what Unicron cures by itself.
        tasks: Only alerts about these tasks, and those that are about no task; all if left out.
        most_per_hour: Messages an hour at most; what comes beyond makes one message later.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    url: Annotated[str, Field(pattern=_URL, max_length=_MOST_URL_BYTES)] = ""
    url_file: str = ""
    severity: AlertSeverity = "warning"
    tasks: tuple[str, ...] = ()
    most_per_hour: Annotated[int, Field(ge=1, le=1000)] = 20

    @model_validator(mode="after")
    def _leads_to_one_place(self) -> "NotifyTable":
        if bool(self.url) == bool(self.url_file):
            raise ValueError("url: write it, or url_file for a file that has it; one of the two")
        return self


def read_channel(table: object, folder: Path) -> NotifyChannel | list[KeyMistake]:
    """Return the channel of a table, or its mistakes; ``folder`` is that of the cluster file."""
    try:
        read = NotifyTable.model_validate_json(json.dumps(table, default=str), strict=True)
    except ValidationError as error:
        mistakes = key_mistakes(error, {"": list(NotifyTable.model_fields)})
        return [_SECRET if each.location == ("url",) else each for each in mistakes]
    return NotifyChannel(
        read.name, read.severity, read.tasks, read.most_per_hour, read.url,
        folder / user_path(read.url_file) if read.url_file else None,
    )  # fmt: skip
