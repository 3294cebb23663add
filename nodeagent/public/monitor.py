"""Two lines that a training program of any kind adds, to be seen from inside.

    monitor = attach()                                  # once, early
    monitor.iteration(iteration, loss=loss)             # after each iteration, on every rank

An exception that nobody catches reaches the node's agent with its traceback before the process dies,
in the main thread and in others; iterations and their times are told as they happen; a fatal signal
leaves the stacks of all threads in the log. Nothing else changes, and nothing here blocks training:
reports are sent by a thread of their own, and kept while there is no agent.

A program that was not started by an agent runs as before: ``attach`` does nothing then, and neither
does its monitor. This module doesn't import torch.
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

from nodeagent.process_tools.clock import SystemNodeClock
from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.local import RankHello
from nodeagent.protocol.observations import IterationCommitted
from nodeagent.rank.agent_link.control_link import ControlLink
from nodeagent.rank.agent_link.exception_report import is_of_collective, raised
from nodeagent.rank.agent_link.training_stacks import DUMP_SIGNAL, allow_dumps
from nodeagent.rank.process.process_files import RankFiles
from nodeagent.ranks.supervisor import RankKey

_LOG = logging.getLogger(__name__)

SOCKET_VARIABLE: Final = "UNICRON_RANKS_SOCKET"
"""Set by the agent for every command; where it is missing there is no agent."""

STORED_LIMIT_S: Final = 2.0
"""How long a process that ends waits until its last reports are stored, seconds."""

_CLOCK: Final = SystemNodeClock()


class DrillError(Exception):
    """An exception that an operator asked for."""


class Monitor:
    """What a program tells its agent. Made by ``attach``; ``link`` is None where there is no agent."""

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
        """Whether there is an agent to tell."""
        return self._link is not None

    def iteration(
        self,
        iteration: int,
        *,
        loss: SupportsFloat | None = None,
        grad_norm: SupportsFloat | None = None,
        num_tokens: int = 0,
    ) -> None:
        """Tell that ``iteration`` is done: all ranks have taken its step.

        Call it on every rank. Rank 0's numbers are the task's; the time since the call before is the
        iteration's.

        Args:
            iteration: Counted from 1; a program that goes on from a checkpoint goes on counting.
            loss: Mean loss of the global batch. A tensor on a GPU is waited for.
            grad_norm: L2 norm of the whole gradient.
            num_tokens: Tokens of the global batch, for the throughput.

        Raises:
            DrillError: An operator runs the drill ``exception`` on this rank.
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
        # The agent refuses what needs a loop of ours.
        if fault is not None and fault.kind == "raise":
            raise DrillError(f"drill: exception after iteration {iteration}")

    def tell(self, error: BaseException) -> None:
        """Tell of an exception that ends the program or a thread of it, and wait until that is stored."""
        # A child that was forked has this object, but neither the thread nor the rank's name.
        if self._link is None or self._rank is None or os.getpid() != self._pid:
            return
        is_echo = is_of_collective(error)
        iteration = self._iteration + 1
        self._link.report(raised(error, self._rank, iteration, is_in_collective=is_echo))
        self._link.wait_until_stored(STORED_LIMIT_S)

    def wait_until_stored(self) -> None:
        """Wait a little until the agent has everything."""
        if self._link is not None and os.getpid() == self._pid:
            self._link.wait_until_stored(STORED_LIMIT_S)


_attached: list[Monitor] = []


def attach(*, watch_threads: bool = True) -> Monitor:
    """Connect this process to its node's agent; call it once, early. Later calls return the same.

    It installs ``sys.excepthook`` and ``threading.excepthook`` in front of those that are there, and
    ``faulthandler`` for fatal signals and, where the program has no use for SIGUSR2, for that: the agent
    asks with it for the stacks of a rank that hangs.

    Args:
        watch_threads: Whether an exception that ends another thread than the main one is a fault of
            the rank. It is, unless the program can do without its threads.

    Raises:
        ValueError: The environment has an agent's socket, but not who this rank is.
    """
    if _attached:
        return _attached[0]
    socket_path = os.environ.get(SOCKET_VARIABLE, "")
    if not socket_path:
        return Monitor()
    rank = _rank_of(os.environ)
    task, generation, global_rank = rank
    hello = RankHello(task=task, generation=generation, global_rank=global_rank, pid=os.getpid())
    # A halt needs no answer from here: the agent gives it, and the next generation ends this process.
    files = _files_of(Path(socket_path), rank)
    try:
        files.attached.touch()
    except OSError as error:
        _LOG.warning("the agent may take iterations from the log too: %s", error)
    link = ControlLink(Path(socket_path), hello, _CLOCK.wall_s, lambda _generation, _broken: None)
    monitor = Monitor(link, rank)
    _attached.append(monitor)
    link.start()
    if not faulthandler.is_enabled():
        faulthandler.enable()
    if signal.getsignal(DUMP_SIGNAL) is signal.SIG_DFL:
        allow_dumps(files.stack)
    _watch(monitor, watch_threads=watch_threads)
    atexit.register(monitor.wait_until_stored)
    return monitor


def _files_of(socket_path: Path, rank: tuple[TaskId, Generation, int]) -> RankFiles:
    return RankFiles(socket_path.parent / "ranks", RankKey(*rank).stem)


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

    def tell(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            monitor.tell(error)
        before(kind, error, traceback)

    def tell_of_thread(arguments: threading.ExceptHookArgs) -> None:
        if arguments.exc_value is not None and not issubclass(arguments.exc_type, SystemExit):
            monitor.tell(arguments.exc_value)
        thread_before(arguments)

    sys.excepthook = tell
    if watch_threads:
        threading.excepthook = tell_of_thread
