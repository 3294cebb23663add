"""Findings of a node's own probes: hardware, kernel, disks, memory and network.

Findings are facts about a node, independent of its tasks. The agent reports a condition once when
it begins and once when it ends. The controller's core judges it. A clock that is off is the
controller's own finding, since a node can't know.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from nodeagent.protocol.reported_numbers import Count
from profiles.faults.status import MeasuredSign

Probe = Literal["kernel log", "gpu", "disk", "memory", "network", "clock"]

FindingSign = Literal[
    MeasuredSign,
    "message",  # words of the kernel or a tool, in ``text``: the catalogue of faults says what
    "link_changed",  # a network link went down, or up
    # Of the kernel log, before they could be read: ``value`` is their number, or their bytes if
    # none were counted.
    "lines_lost",
    "unreadable",  # it can't be looked at, or gives no answer: what was found there is not over
    "clock_off",  # the node's wall clock is not the controller's
]


class NodeFinding(BaseModel):
    """A probe of the node has found something, or finds it no longer.

    Attributes:
        probe: Who found it.
        sign: What it is.
        subject: The device or path, for instance ``GPU 3``, ``/checkpoints`` or ``eth0``.
        text: Lines of the log as they are, at most 4 kB; or what was measured, in words.
        value: What was measured, if it is a number; in the unit that ``text`` names.
        limit: What it was compared with.
        is_over: It was reported before, and is back to normal.
        is_event: It has happened, and does not last: nobody says that it is over.
        num_dropped: Findings of this probe that were not reported since the last one, to keep a
            storm of messages small.
    """

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    kind: Literal["node_finding"] = "node_finding"
    probe: Probe
    sign: FindingSign
    subject: str = ""
    text: str
    value: float | None = None
    limit: float | None = None
    is_over: bool = False
    is_event: bool = False
    num_dropped: Count = 0

    @property
    def first_line(self) -> str:
        """What it says, in one line."""
        return self.text.strip().partition("\n")[0][:300]
