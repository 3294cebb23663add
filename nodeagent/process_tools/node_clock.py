"""The clock of a node, passed to whatever needs the time.

Nothing else in the agent reads a clock, so that its rules can be tested with times of one's own.
"""

import time
from typing import Protocol

from typing_extensions import override


class NodeClock(Protocol):
    """Where the agent learns the time."""

    def wall_s(self) -> float:
        """Return seconds since the epoch; may jump when the node's clock is set."""

    def monotonic_s(self) -> float:
        """Return seconds from an arbitrary origin; never goes back."""


class SystemNodeClock(NodeClock):
    """The machine's own clock."""

    @override
    def wall_s(self) -> float:
        return time.time()  # noqa: TID251 - the one module that implements Clock

    @override
    def monotonic_s(self) -> float:
        return time.monotonic()  # noqa: TID251 - the one module that implements Clock
