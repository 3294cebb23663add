"""What a check finds: one line for people, and what to do."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """Something that is not ready.

    Attributes:
        level: ``error`` if something can't work, ``warning`` if it works less well.
        subject: What was checked: ``login``, ``clock``, ``gpus`` and so on.
        nodes: The nodes that it is about; empty for the cluster as a whole.
        text: What is wrong.
        advice: What to do; empty if the text says it.
    """

    level: Literal["error", "warning"]
    subject: str
    nodes: tuple[str, ...]
    text: str
    advice: str = ""

    @property
    def line(self) -> str:
        """Everything that it says, in one line."""
        names = f"{', '.join(self.nodes[:4])}" + (" and more" if len(self.nodes) > 4 else "")
        place = f" on {names}" if self.nodes else ""
        return f"{self.subject}{place}: {self.text}" + (f"; {self.advice}" if self.advice else "")


def merged(findings: Iterable[CheckFinding]) -> list[CheckFinding]:
    """Return the findings, those that say the same of several nodes as one."""
    found: dict[CheckFinding, list[str]] = {}
    for each in findings:
        found.setdefault(replace(each, nodes=()), []).extend(each.nodes)
    return [replace(each, nodes=tuple(dict.fromkeys(nodes))) for each, nodes in found.items()]
