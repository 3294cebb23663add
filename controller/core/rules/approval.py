"""Which plans are applied by themselves: by severity, task, size and time of day.

The first rule that matches a plan decides about it. A plan that no rule matches is for the settings
``is_auto_heal`` and ``auto_after_s`` of the policy.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, Literal

Approval = Literal["auto", "ask", "never"]
_MINUTES_PER_DAY: Final = 24 * 60
_OUTCOMES: Final[dict[Approval, str]] = {
    "auto": "are applied without approval",
    "ask": "wait for an operator's approval",
    "never": "are rejected, and their incidents wait for an operator",
}


@dataclass(frozen=True, slots=True)
class ApprovalRule:
    """What becomes of plans of one kind. A condition that is empty or 0 is none.

    Attributes:
        then: Apply them at once, ask an operator, or reject them.
        auto_after_s: With ``ask``: apply them after this time if nobody has decided. 0: wait.
        severity: The worst severity of their incidents is one of these. A plan without an incident
            has none.
        tasks: They interrupt one of these tasks.
        moves_over: They interrupt more than this share of the planned workers.
        hours: It is within these hours, in UTC: ``22:00-06:00``.
    """

    then: Approval
    auto_after_s: float = 0.0
    severity: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    moves_over: float = 0.0
    hours: str = ""

    @property
    def in_words(self) -> str:
        """The rule as a sentence without its full stop."""
        when = [
            f"of {' or '.join(self.severity)}" if self.severity else "",
            f"that interrupt {' or '.join(self.tasks)}" if self.tasks else "",
            f"that interrupt over {self.moves_over:.0%} of the workers" if self.moves_over else "",
            f"within {self.hours} UTC" if self.hours else "",
        ]
        plans = " ".join(["plans", *filter(None, when)])
        after = f", {self.auto_after_s:g} s at most" if self.auto_after_s else ""
        return f"{plans} {_OUTCOMES[self.then]}{after}"


@dataclass(frozen=True, slots=True)
class PlanTraits:
    """What rules look at.

    Attributes:
        severity: The worst severity of its incidents; empty without one.
        tasks: The tasks that it interrupts.
        moved_share: The share of the planned workers that it interrupts.
        wall_s: Wall clock, seconds since the epoch.
    """

    severity: str
    tasks: Collection[str]
    moved_share: float
    wall_s: float


def rule_for(rules: Iterable[ApprovalRule], plan: PlanTraits) -> ApprovalRule | None:
    """Return the first rule that matches a plan; None if there is none."""
    return next((rule for rule in rules if _matches(rule, plan)), None)


def _matches(rule: ApprovalRule, plan: PlanTraits) -> bool:
    if rule.severity and plan.severity not in rule.severity:
        return False
    if rule.tasks and not set(rule.tasks) & set(plan.tasks):
        return False
    if plan.moved_share <= rule.moves_over and rule.moves_over:
        return False
    return not rule.hours or _is_within(rule.hours, plan.wall_s)


def minutes_of(hours: str) -> tuple[int, int]:
    """Return the minutes of a day at which ``HH:MM-HH:MM`` begins and ends.

    Raises:
        ValueError: It is no such text, or begins when it ends.
    """
    begin, end = (_minute(part) for part in hours.split("-"))
    if begin == end:
        raise ValueError("begins when it ends")
    return begin, end


def _minute(text: str) -> int:
    hour, minute = text.split(":")
    is_short = len(hour) == len(minute) == 2
    if not (is_short and hour.isdecimal() and minute.isdecimal() and text.isascii()):
        raise ValueError("is no time of day")
    if int(hour) > 23 or int(minute) > 59:
        raise ValueError("is no time of day")
    return 60 * int(hour) + int(minute)


def _is_within(hours: str, wall_s: float) -> bool:
    begin, end = minutes_of(hours)
    now = int(wall_s // 60) % _MINUTES_PER_DAY
    return begin <= now < end if begin < end else now >= begin or now < end
