"""What training knows of the world outside it: its link to the agent, whether it is halted, and time."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from nodeagent.protocol.observations import AnyObservation
from nodeagent.protocol.rank_faults import RankFault


class Control(Protocol):
    """What the loop needs of the rank's link to its agent. ``link.ControlLink`` is the real one."""

    @property
    def is_stop_requested(self) -> bool:
        """Whether the ranks should stop after the running iteration."""

    @property
    def is_park_requested(self) -> bool:
        """Whether the ranks should park after the running iteration."""

    @property
    def needs_copies(self) -> bool:
        """Whether in-memory checkpoints should be complete when the ranks park."""

    def take_fault(self) -> RankFault | None:
        """Return the newest fault that a drill asked for, once."""

    def report(self, observation: AnyObservation) -> None:
        """Hand over a report; it is kept until the agent stored it."""

    def pulse(
        self,
        iteration: int,
        duration_s: float,
        busy_s: float,
        *,
        report: AnyObservation | None = None,
    ) -> None:
        """Tell that ``iteration`` is done, and how long its own computing took.

        That may be dropped; ``report``, which goes along, is kept as all reports are.
        """


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What the loop knows of the world outside training.

    Attributes:
        control: The link to the agent.
        halted: Set when the generation is halted; a wait ends at once then.
        monotonic_s: The loop's only access to time.
    """

    control: Control
    halted: threading.Event
    monotonic_s: Callable[[], float]
