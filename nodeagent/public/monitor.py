"""Two lines that any training program can add, so that its agent sees inside it.

    monitor = attach()                                  # once, early
    monitor.iteration(iteration, loss=loss)             # after each iteration, on every rank

An uncaught exception in any thread reaches the node's agent with its traceback before the process
ends. Iterations and their times are reported as they happen. A fatal signal leaves the stacks of
all threads in the log. Nothing else changes, and nothing here blocks training: a separate thread
sends the reports, and keeps them while there is no agent.

In a program that no agent started, ``attach`` and its monitor do nothing. This module doesn't
import torch.
"""

import atexit
import faulthandler
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, SupportsFloat

from nodeagent.process_tools.node_clock import SystemNodeClock
from nodeagent.process_tools.process_files import ProcessFiles
from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.local import RankHello
from nodeagent.protocol.observations import IterationCommitted
from nodeagent.rank.agent_link.control_link import ControlLink
from nodeagent.rank.agent_link.drill_error import DrillError
from nodeagent.rank.agent_link.exception_report import is_of_collective, raised
from nodeagent.rank.agent_link.training_stacks import DUMP_SIGNAL, dump_stacks_on_signal
from nodeagent.ranks.supervisor import RankKey

_LOG = logging.getLogger(__name__)

SOCKET_VARIABLE: Final = "UNICRON_RANKS_SOCKET"
"""The agent sets it for every command. If it is not set, there is no agent."""

STORED_LIMIT_S: Final = 2.0
"""Seconds that a process waits at its end until its last reports are stored."""

_CLOCK: Final = SystemNodeClock()


class Monitor:
    """Reports of a program to its agent. ``attach`` makes it; without an agent ``link`` is None."""

    def __init__(
        self, link: ControlLink | None = None, rank: tuple[TaskId, Generation, int] | None = None
    ) -> None:
        self._link = link
        self._rank = rank
        self._pid = os.getpid()
        self._iteration = 0
        self._last_s = _CLOCK.monotonic_s()

    @property
    def is_attached(self) -> bool:
        """Whether there is an agent to report to."""
        return self._link is not None

    def iteration(
        self,
        iteration: int,
        *,
        loss: SupportsFloat | None = None,
        grad_norm: SupportsFloat | None = None,
        num_tokens: int = 0,
    ) -> None:
        """Report that ``iteration`` is done: all ranks have taken its step.

        Call it on every rank. The task's numbers are those of rank 0. The time since the previous
        call counts as the duration of the iteration.

        Args:
            iteration: Counted from 1. After a checkpoint is loaded the program continues its count.
            loss: Mean loss of the global batch. If it is a tensor on a GPU, this call waits for it.
            grad_norm: L2 norm of the whole gradient.
            num_tokens: Tokens of the global batch, from which the throughput is computed.

        Raises:
            DrillError: An operator runs the drill ``exception`` on this rank.
            ValueError: What is given is no number, or ``iteration`` no whole one.
            TypeError: The same, of what can be no number, such as a list.
        """
        if self._link is None or self._rank is None:
            return
        now = _CLOCK.monotonic_s()
        duration_s, self._last_s, self._iteration = now - self._last_s, now, iteration
        task, generation, global_rank = self._rank
        if global_rank == 0:
            committed = IterationCommitted(
                task=task,
                generation=generation,
                global_rank=global_rank,
                iteration=iteration,
                loss=None if loss is None else float(loss),
                duration_s=duration_s,
                num_tokens=num_tokens,
                grad_norm=None if grad_norm is None else float(grad_norm),
            )
            self._link.report(committed)
        self._link.pulse(iteration, duration_s)
        fault = self._link.take_fault()
        # The agent refuses every other kind for a command: those need a loop of ours.
        if fault is not None and fault.kind == "raise":
            raise DrillError(f"drill: exception after iteration {iteration}")

    def report_exception(self, error: BaseException) -> None:
        """Report an exception that ends the program or one of its threads.

        Wait until it is stored.
        """
        # A forked child inherits this object, but neither the thread nor the rank's identity.
        if self._link is None or self._rank is None or os.getpid() != self._pid:
            return
        is_echo = is_of_collective(error)
        iteration = self._iteration + 1
        self._link.report(raised(error, self._rank, iteration, is_in_collective=is_echo))
        self._link.wait_until_stored(STORED_LIMIT_S)

    def wait_until_stored(self) -> None:
        """Wait until the agent has stored all reports, ``STORED_LIMIT_S`` at most."""
        if self._link is not None and os.getpid() == self._pid:
            self._link.wait_until_stored(STORED_LIMIT_S)


_attached: list[Monitor] = []


def attach(*, watch_threads: bool = True) -> Monitor:
    """Connect this process to its node's agent.

    Call it once, early; later calls return the same monitor.

    It installs ``sys.excepthook`` and ``threading.excepthook``, which call the previous hooks. It
    enables ``faulthandler`` for fatal signals. If the program does not use SIGUSR2, that signal
    dumps the stacks: the agent sends it to a rank that hangs.

    Args:
        watch_threads: Whether an exception that ends a thread other than the main one is a fault of
            the rank. Pass False if the program can do without its threads.

    Raises:
        ValueError: The environment names an agent's socket, but not the rank.
    """
    if _attached:
        return _attached[0]
    socket_path = os.environ.get(SOCKET_VARIABLE, "")
    if not socket_path:
        return Monitor()
    rank = _rank_of(os.environ)
    task, generation, global_rank = rank
    hello = RankHello(task=task, generation=generation, global_rank=global_rank, pid=os.getpid())
    # A halt needs no answer from here: the agent answers it, and the next generation ends this
    # process.
    files = _files_of(Path(socket_path), rank)
    try:
        files.attached.touch()
    except OSError as error:
        _LOG.warning(
            "cannot mark the rank as attached; the agent may read iterations from the log too:"
            " path=%s reason=%s",
            files.attached,
            error,
        )
    link = ControlLink(Path(socket_path), hello, _CLOCK.wall_s, lambda _generation, _broken: None)
    monitor = Monitor(link, rank)
    _attached.append(monitor)
    link.start()
    if not faulthandler.is_enabled():
        faulthandler.enable()
    if signal.getsignal(DUMP_SIGNAL) is signal.SIG_DFL:
        dump_stacks_on_signal(files.stack)
    _watch(monitor, watch_threads=watch_threads)
    atexit.register(monitor.wait_until_stored)
    return monitor


def _files_of(socket_path: Path, rank: tuple[TaskId, Generation, int]) -> ProcessFiles:
    return ProcessFiles(socket_path.parent / "ranks", RankKey(*rank).stem)


def _rank_of(environment: "os._Environ[str]") -> tuple[TaskId, Generation, int]:
    try:
        return (
            TaskId(environment["UNICRON_TASK"]),
            Generation(int(environment["UNICRON_GENERATION"])),
            int(environment["RANK"]),
        )
    except KeyError as error:
        raise ValueError(f"{SOCKET_VARIABLE} is set, but {error.args[0]} is not") from error


def _watch(monitor: Monitor, *, watch_threads: bool) -> None:
    before: Callable[[type[BaseException], BaseException, TracebackType | None], object]
    before, thread_before = sys.excepthook, threading.excepthook

    def report(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            monitor.report_exception(error)
        before(kind, error, traceback)

    def report_of_thread(arguments: threading.ExceptHookArgs) -> None:
        if arguments.exc_value is not None and not issubclass(arguments.exc_type, SystemExit):
            monitor.report_exception(arguments.exc_value)
        thread_before(arguments)

    sys.excepthook = report
    if watch_threads:
        threading.excepthook = report_of_thread
