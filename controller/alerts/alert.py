"""An alert: what an on-call person should know, also that it is over."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

AlertSeverity = Literal["info", "warning", "critical"]
"""``critical``: a person has to decide now. ``warning``: one has to look today. ``info``: none."""

_ORDER: Final[tuple[AlertSeverity, ...]] = get_args(AlertSeverity)


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that a person should know, for as long as it is so.

    Attributes:
        key: Its name among the alerts of a cluster. As long as the key stays it is one alert.
        severity: How urgent it is.
        title: One line.
        facts: Labels and their texts: cause, place, time, Unicron's action, and what it needs.
        commands: What to type.
        tasks: The tasks that it is about; empty if it is about no single task.
        since: When it began, seconds since the start of the run; None if a view does not show it.
        is_over: Whether it only says that it was so.
    """

    key: str
    severity: AlertSeverity
    title: str
    facts: tuple[tuple[str, str], ...] = ()
    commands: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    since: float | None = None
    is_over: bool = False

    @property
    def rank(self) -> int:
        """Return its place in the order of severities, the most urgent last."""
        return severity_rank(self.severity)


def severity_rank(severity: AlertSeverity) -> int:
    """Return the place of a severity in their order, the most urgent last."""
    return _ORDER.index(severity)
