"""What the node's command line does to an agent: start it detached, look at it, stop it.

Plain blocking code in a short-lived process. It talks to an agent over ``agent.sock``, so that it
works across agents of different code, and takes the state lock to be sure that none is left.
"""

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ValidationError

from nodeagent.probes.process_stats import find_by_environment, is_running, read_stat
from nodeagent.process_tools.node_clock import NodeClock
from nodeagent.process_tools.pidfd import kill, open_pidfd
from nodeagent.process_tools.socket_places import remove_sockets, sockets_dir
from nodeagent.process_tools.state_lock import AgentRunsError, StateLock
from nodeagent.protocol.codec import encode
from nodeagent.ranks.launcher import STATE_DIR_VARIABLE, code_dir
from nodeagent.session.local_queries import AgentStatus, AskStatus, Leave
from nodeagent.starting import UnitError, launch, stop_unit

START_LIMIT_S: Final = 40.0
"""An interpreter on a network file system, or on a busy node, takes long to import."""
STOP_LIMIT_S: Final = 15.0
_ANSWER_LIMIT_S: Final = 2.0
_PATIENCE_S: Final = 5.0
"""An agent that was asked to leave is killed after this."""
_POLL_S: Final = 0.02


class ControlError(Exception):
    """The agent can't be started or stopped; the text is one line for an operator."""


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """The agent that is wanted.

    Attributes:
        state_dir: Its state directory.
        node: The node's name.
        num_workers: Worker slots of the node.
        unit: Unit of the site that runs it; empty if there is none.
    """

    state_dir: Path
    node: str
    num_workers: int
    unit: str = ""


@dataclass(frozen=True, slots=True)
class StartedAgent:
    """An agent that answers. ``way`` says how it was started; empty if it ran already."""

    status: AgentStatus
    socket: str
    ready_s: float
    is_new: bool
    way: str

    def to_json(self) -> str:
        """Return the line that ``start`` prints."""
        return json.dumps(
            {
                "agent_id": self.status.agent_id,
                "node": self.status.node,
                "pid": self.status.pid,
                "socket": self.socket,
                "ready_s": round(self.ready_s, 3),
                "is_new": self.is_new,
                "way": self.way,
            }
        )


def ask_agent(state_dir: Path, question: BaseModel) -> AgentStatus | None:
    """Return the answer of the agent in ``state_dir``, or None if none answers in time."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWER_LIMIT_S)
        try:
            connection.connect(_socket_of(state_dir))
            connection.sendall(encode(question))
            with connection.makefile("rb") as answer:
                return AgentStatus.model_validate_json(answer.readline())
        except (OSError, ValidationError):
            return None


def start_agent(settings: AgentChoice, options: Sequence[str], clock: NodeClock) -> StartedAgent:
    """Make sure that an agent of this code answers; start one, which outlives us, if none does.

    An agent of other code, or with another number of workers, is asked to leave first; its ranks
    stay and are adopted.

    Raises:
        ControlError: It did not answer within ``START_LIMIT_S``, or is another node's.
    """
    state_dir, node, num_workers = settings.state_dir, settings.node, settings.num_workers
    began = clock.monotonic_s()
    status = ask_agent(state_dir, AskStatus())
    if status is not None:
        if status.node != node:
            raise ControlError(f"{state_dir} belongs to node {status.node}, not {node}")
        if status.code_dir == str(code_dir()) and status.num_workers == num_workers:
            ready_s = clock.monotonic_s() - began
            return StartedAgent(status, _socket_of(state_dir), ready_s, is_new=False, way="")
        stop_agent(state_dir, kill_ranks=False, clock=clock)
    arguments = ["--state-dir", str(state_dir), "--node", node, "--num-workers", str(num_workers)]
    try:
        launched = launch(state_dir, [*arguments, *options], settings.unit)
    except UnitError as error:
        raise ControlError(str(error)) from error
    process = launched.process
    status = _wait_for_answer(state_dir, process, clock)
    is_new = process is None or status.pid == process.pid
    ready_s = clock.monotonic_s() - began
    return StartedAgent(status, _socket_of(state_dir), ready_s, is_new, launched.way)


def stop_agent(state_dir: Path, *, kill_ranks: bool, clock: NodeClock) -> None:
    """End the agent, if one runs; with ``kill_ranks`` also whatever it ever started.

    Raises:
        ControlError: Something of it is still there after ``STOP_LIMIT_S``.
    """
    try:
        stop_unit(state_dir)
    except UnitError as error:
        raise ControlError(str(error)) from error
    ask_agent(state_dir, Leave(kill_ranks=kill_ranks))
    asked_at = clock.monotonic_s()
    while not _is_lock_free(state_dir):
        if clock.monotonic_s() > asked_at + STOP_LIMIT_S:
            raise ControlError(f"the agent in {state_dir} does not end")
        if clock.monotonic_s() > asked_at + _PATIENCE_S:
            _kill_agent(state_dir)
        time.sleep(_POLL_S)
    if kill_ranks:
        _sweep(state_dir, clock)


def _wait_for_answer(
    state_dir: Path, process: "subprocess.Popen[bytes] | None", clock: NodeClock
) -> AgentStatus:
    deadline = clock.monotonic_s() + START_LIMIT_S
    while clock.monotonic_s() < deadline:
        # Another start may have won the race for the lock: any agent that answers will do.
        status = ask_agent(state_dir, AskStatus())
        if status is not None:
            return status
        if process is not None and process.poll() is not None and _is_lock_free(state_dir):
            raise ControlError(f"the agent ended at once: {_last_words(state_dir)}")
        time.sleep(_POLL_S)
    raise ControlError(
        f"the agent did not answer within {START_LIMIT_S:.0f} s: {_last_words(state_dir)}"
    )


def _last_words(state_dir: Path) -> str:
    from nodeagent.ranks.rank_files import tail_of  # noqa: PLC0415 - it imports the protocol

    lines = tail_of(state_dir / "agent.log").strip().splitlines()
    return " | ".join(lines[-3:]) or "agent.log is empty"


def _is_lock_free(state_dir: Path) -> bool:
    try:
        with StateLock(state_dir):
            return True
    except AgentRunsError:
        return False


def _kill_agent(state_dir: Path) -> None:
    with suppress(OSError, ValueError):
        _kill(int((state_dir / "agent.pid").read_text()), lambda: not _is_lock_free(state_dir))


def _sweep(state_dir: Path, clock: NodeClock) -> None:
    """Kill every process that was started for this state directory, whoever its parent is."""
    deadline = clock.monotonic_s() + STOP_LIMIT_S
    while remaining := _remaining(state_dir):
        if clock.monotonic_s() > deadline:
            raise ControlError(f"processes of {state_dir} do not end: {sorted(remaining)}")
        for pid, is_ours in remaining.items():
            _kill(pid, is_ours)
        time.sleep(_POLL_S)
    remove_sockets(state_dir)
    (state_dir / "template.json").unlink(missing_ok=True)


def _socket_of(state_dir: Path) -> str:
    return str(sockets_dir(state_dir) / "agent.sock")


def _remaining(state_dir: Path) -> dict[int, Callable[[], bool]]:
    """Return the living processes of the state directory, each with a check that it is still it."""
    from nodeagent.ranks.rank_files import RankFiles  # noqa: PLC0415 - it imports the protocol

    found: dict[int, Callable[[], bool]] = {}
    for pid in find_by_environment(STATE_DIR_VARIABLE, str(state_dir)):
        stat = read_stat(pid)
        if stat is not None and stat.is_alive:
            found[pid] = _identity(pid, stat.start_ticks)
    for record in RankFiles(state_dir / "ranks").records():
        if is_running(record.pid, record.start_ticks):
            found[record.pid] = _identity(record.pid, record.start_ticks)
    return found


def _identity(pid: int, start_ticks: int) -> Callable[[], bool]:
    return lambda: is_running(pid, start_ticks)


def _kill(pid: int, is_ours: Callable[[], bool]) -> None:
    """Kill ``pid`` if ``is_ours`` holds after it was pinned down by a pidfd."""
    pidfd = open_pidfd(pid)
    if pidfd is not None:
        if is_ours():
            kill(pidfd)
        os.close(pidfd)
