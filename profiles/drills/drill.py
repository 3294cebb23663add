"""A drill: a fault that can be staged without a GPU, and its expected outcome.

Statuses, severities, methods and actions have the names of the paper (arXiv 2401.00134, table 1
and section 4). ``straggler``, ``unreachable`` and ``takeover`` are no faults: operators get a
notice.
"""

from dataclasses import dataclass
from typing import Literal

from profiles.faults.status import Action, DetectionMethod
from profiles.faults.status_table import default_statuses

TargetKind = Literal["rank", "node", "controller"]
Culprit = Literal["rank", "node", "task", "none"]
Ending = Literal["resolved", "held", "unharmed"]
"""``resolved``: cured, iterations are committed again. ``held``: the task waits for its operator.
``unharmed``: training continued all the time, and no incident was opened."""


Needs = Literal["process", "call", "loop"]
"""The program that a rank needs: ``process``: any; ``call``: a program that attaches and reports
its iterations; ``loop``: a training loop that Unicron runs."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """The expected outcome of a drill.

    Attributes:
        status: A status of the table of faults. ``straggler``, ``unreachable`` or ``takeover``: a
            notice only. ``none``: no sign at all.
        severity: SEV1, SEV2 or SEV3; ``none`` if no incident is opened.
        method: The detector of the fault as it is staged; None if no detector is needed.
        action: The action that cures it.
        culprit: The named place: the rank itself, its node, or the whole task.
        ending: How it ends.
        says: Words that the reason must contain, if the status alone says too little.
        found_by: Probe whose finding must be among the evidence, beside the rank's own.
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
            report = (
                "nothing is reported" if self.status == "none" else f"{self.status} is announced"
            )
            return f"{report}; training continues"
        is_held = self.ending == "held"
        cures = {
            "none": "the task is held and its operator asked" if is_held else "no action",
            "reattempt": "the same processes try again",
            "restart": "a new process replaces the rank; its peers continue",
            "reconfigure": "the node is isolated; a plan divides the remaining workers",
        }
        return f"{self.severity} {self.status}: {cures[self.action]}"


@dataclass(frozen=True, slots=True)
class Drill:
    """One kind of drill.

    Attributes:
        family: Its name on the command line.
        title: For menus.
        breaks: The staged fault in words: the real parts and the staged parts.
        target: The kind of target.
        expected: The expected outcome.
        needs: The program that its rank needs.
        option: ``(key, value)`` that distinguishes it in its family; None if it is alone there.
        needs_namespaces: Whether it can be run only where each node has a network of its own.
        min_nodes: Nodes that the cluster needs.
    """

    family: str
    title: str
    breaks: str
    target: TargetKind
    expected: Expectation
    needs: Needs = "process"
    option: tuple[str, str] | None = None
    needs_namespaces: bool = False
    min_nodes: int = 1

    @property
    def kind(self) -> str:
        """Its name: ``FAMILY`` or ``FAMILY:key=value``."""
        return f"{self.family}:{'='.join(self.option)}" if self.option else self.family
