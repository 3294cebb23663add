"""What a drill is: a fault that can be staged without a GPU, and what should be seen of it.

Names of statuses, severities, methods and actions are those of the paper (arXiv 2401.00134, table 1
and section 4); ``straggler``, ``unreachable`` and ``takeover`` are no faults but what operators are
told instead.
"""

from dataclasses import dataclass
from typing import Literal

from profiles.faults.status import DetectionMethod
from profiles.faults.status_table import default_statuses

Target = Literal["rank", "node", "controller"]
Action = Literal["none", "reattempt", "restart", "reconfigure"]
Culprit = Literal["rank", "node", "task", "none"]
Ending = Literal["resolved", "held", "unharmed"]
"""``resolved``: cured, iterations are committed again. ``held``: the task waits for its operator.
``unharmed``: training went on all the time, and no incident was opened."""


Needs = Literal["process", "call", "loop"]
"""What a rank's program must be: ``process``: any; ``call``: one that attaches and tells its iterations;
``loop``: a training loop that Unicron runs."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What should be seen of a drill.

    Attributes:
        status: Of the table of faults; ``straggler``, ``unreachable`` or ``takeover`` where operators
            are only told; ``none`` where nothing is to be seen.
        severity: SEV1, SEV2 or SEV3; ``none`` where no incident is opened.
        method: The detector that sees it as it is staged here; None where nobody needs to.
        action: What cures it.
        culprit: What is named: the very rank, its node, or its task as a whole.
        ending: How it ends.
        says: Words that the reason must have, where the status does not say what happened.
        found_by: Probe whose finding must be among the evidence, beside what is seen of the rank.
    """

    status: str
    severity: Literal["SEV1", "SEV2", "SEV3", "none"]
    method: DetectionMethod | None
    action: Action
    culprit: Culprit
    ending: Ending = "resolved"
    says: str = ""
    found_by: str = ""

    @property
    def is_network(self) -> bool:
        """Whether the status is about a connection."""
        status = default_statuses().get(self.status)
        return status is not None and status.facts.is_network

    @property
    def sentence(self) -> str:
        """The expectation in words, for operators."""
        if self.severity == "none":
            told = "nothing is reported" if self.status == "none" else f"{self.status} is told"
            return f"{told}; training goes on"
        is_held = self.ending == "held"
        cures = {
            "none": "the task is held and its operator asked"
            if is_held
            else "training is left alone",
            "reattempt": "the same processes try again",
            "restart": "a new process takes the rank, its peers go on",
            "reconfigure": "the node is isolated and a plan divides what is left",
        }
        return f"{self.severity} {self.status}: {cures[self.action]}"


@dataclass(frozen=True, slots=True)
class Drill:
    """One kind of drill.

    Attributes:
        family: Its name on the command line.
        title: For menus.
        breaks: What it breaks, and how: what is real about it and what is staged.
        target: What it needs.
        expected: What should be seen.
        needs: What the program of the rank must be.
        option: ``(key, value)`` that tells it from others of its family, if there are others.
        needs_namespaces: Whether it can be run only where each node has a network of its own.
    """

    family: str
    title: str
    breaks: str
    target: Target
    expected: Expectation
    needs: Needs = "process"
    option: tuple[str, str] | None = None
    needs_namespaces: bool = False

    @property
    def kind(self) -> str:
        """Its name: ``FAMILY`` or ``FAMILY:key=value``."""
        return f"{self.family}:{'='.join(self.option)}" if self.option else self.family
