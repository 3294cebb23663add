"""The dependencies of training: the link to the agent, the halt, and the clock."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from nodeagent.protocol.observations import OwnObservation
from nodeagent.protocol.rank_faults import RankFault


class Control(Protocol):
    """The part of the link to the agent that the loop needs."""

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

    def report(self, observation: OwnObservation) -> None:
        """Queue a report. It is kept until the agent has stored it."""

    def pulse(
        self,
        iteration: int,
        duration_s: float,
        busy_s: float,
        *,
        report: OwnObservation | None = None,
    ) -> None:
        """Queue the news that ``iteration`` is done, with the time that its own computing took.

        A newer pulse replaces an unsent one. ``report`` is kept like all reports.
        """


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The objects that the loop gets from outside.

    Attributes:
        control: The link to the agent.
        halted: Set when the generation is halted, which ends a wait at once.
        monotonic_s: The loop's only access to time.
    """

    control: Control
    halted: threading.Event
    monotonic_s: Callable[[], float]
