"""What the probes of a node have found, taken into the state."""

from controller.core.events import Observed
from controller.core.turn import Turn
from nodeagent.protocol.findings import NodeFinding


def take_finding(turn: Turn, event: Observed, finding: NodeFinding) -> None:
    """Tell operators what a probe of a node has found, or finds no longer."""
    state = "is over" if finding.is_over else "found"
    turn.tell(
        "info" if finding.is_over else "warning", "finding", event.node,
        f"{finding.probe}: {finding.subject} {finding.sign} {state}: {finding.text}",
        probe=finding.probe, sign=finding.sign, subject=finding.subject, value=finding.value,
    )  # fmt: skip
