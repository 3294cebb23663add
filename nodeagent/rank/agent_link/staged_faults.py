"""Faults that a rank stages in itself, for drills.

The agent sends a ``RankFault``, and the training thread stages it at its next micro-batch. Without
a drill this costs one look at an empty queue per micro-batch. A lasting fault (slow, NaN, spike)
ends with its generation at the latest. A later fault replaces it.
"""

import ctypes
import math
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

import torch
from torch import distributed

from nodeagent.protocol.rank_faults import RankFault
from nodeagent.rank.agent_link.drill_error import DrillError
from profiles.drills.exception_texts import RAISED_BY_STATUS, ExceptionName

_EXCEPTIONS: Final[Mapping[ExceptionName, type[Exception]]] = {
    "AcceleratorError": torch.AcceleratorError,
    "DistBackendError": distributed.DistBackendError,
    "KeyError": KeyError,
    "OSError": OSError,
    "OutOfMemoryError": torch.OutOfMemoryError,
    "RuntimeError": RuntimeError,
}


class StagedFaults:
    """The faults that are staged in this process. Only the training thread may use it.

    Args:
        take: Returns the newest requested fault once, else None.
        wait: Waits for a number of seconds, or until the generation is halted.
        monotonic_s: The only access to time.
    """

    def __init__(
        self,
        take: Callable[[], RankFault | None],
        wait: Callable[[float], object],
        monotonic_s: Callable[[], float],
    ) -> None:
        self._take = take
        self._wait = wait
        self._monotonic_s = monotonic_s
        self._fault: RankFault | None = None
        self._first_iteration = 0
        self._chosen: int | None = None
        self._num_chosen = 0
        self._left_at: tuple[int, float] | None = None
        self._pause_s = 0.0

    def forget(self) -> None:
        """End a lasting fault, because another generation begins."""
        self._fault = None

    def at_boundary(self, iteration: int, micro_batch: int) -> None:
        """Stage the fault that is due before ``micro_batch``.

        Raises:
            Exception: The exception that the drill asked for.
        """
        asked = self._take()
        if asked is not None:
            self._begin(asked, iteration)
        fault = self._fault
        if fault is None:
            return
        if fault.kind in ("slow", "spike") and iteration >= self._first_iteration + fault.count:
            self._fault = None
        elif fault.kind == "slow":
            self._slow_down(fault, iteration)
        elif fault.kind == "nan":
            self._choose(fault, micro_batch)
        elif fault.kind not in ("spike", "hang"):
            self._fault = None
            _inject(fault, micro_batch)

    def alter_loss(self, loss: torch.Tensor, micro_batch: int, num_replicas: int) -> torch.Tensor:
        """Return the loss of ``micro_batch``, changed if a drill asks for it."""
        fault = self._fault
        if fault is None:
            return loss
        if fault.kind == "nan" and self._chosen == micro_batch:
            return loss * math.nan
        if fault.kind == "spike":
            # Only this rank changes its loss, so it must raise the mean over all replicas alone.
            return loss * (1 + (fault.factor - 1) * num_replicas)
        return loss

    def before_vote(self) -> None:
        """Hang here if a drill asks for it: the other ranks then wait for this one in the vote."""
        if self._fault is not None and self._fault.kind == "hang":
            threading.Event().wait()

    def _begin(self, fault: RankFault, iteration: int) -> None:
        self._fault = fault
        self._first_iteration = iteration
        self._chosen = None
        self._num_chosen = 0
        self._left_at = None
        self._pause_s = 0.0

    def _choose(self, fault: RankFault, micro_batch: int) -> None:
        """Choose the next micro-batch, and the same one again if the iteration runs again."""
        if self._chosen is None:
            self._chosen = micro_batch
        if micro_batch == self._chosen:
            self._num_chosen += 1
            if self._num_chosen > fault.count:
                self._fault = None

    def _slow_down(self, fault: RankFault, iteration: int) -> None:
        """Wait for ``factor - 1`` times the duration of the previous micro-batch."""
        if self._left_at is not None and self._left_at[0] == iteration:
            took_s = self._monotonic_s() - self._left_at[1]
            self._pause_s = took_s * (fault.factor - 1)
        self._wait(self._pause_s)
        self._left_at = iteration, self._monotonic_s()


def _inject(fault: RankFault, micro_batch: int) -> None:
    match fault.kind:
        case "exit":
            sys.stderr.flush()
            os._exit(fault.count)
        case "segfault":
            ctypes.string_at(0)
        case "write_full":
            descriptor = os.open(
                "/dev/full", os.O_WRONLY
            )  # Opened without O_CREAT: a missing device must not become a file.
            try:
                os.write(descriptor, b"checkpoint")
            finally:
                os.close(descriptor)
        case _:
            _raise(fault.status, micro_batch)


def _raise(status: str, micro_batch: int) -> NoReturn:
    words = RAISED_BY_STATUS.get(status)
    if words is None:
        raise DrillError(f"drill: exception in micro-batch {micro_batch}")
    raise _EXCEPTIONS[words.exception](words.whole_message)
