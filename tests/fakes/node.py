"""A real agent process in a state directory of its own, and a controller to talk to it.

``AgentNode`` starts, kills and stops the agent; its template and ranks are the fakes beside this
file. ``FakeController`` attaches as the real one does and keeps everything it hears.
"""

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, TypeAdapter

from controller.fleet.rendezvous_tables import RendezvousTables
from nodeagent.control import ask_agent, stop_agent
from nodeagent.process_tools.json_streams import LineChannel, connect
from nodeagent.process_tools.node_clock import SystemNodeClock
from nodeagent.protocol.codec import Codec
from nodeagent.protocol.ids import NodeId
from nodeagent.protocol.messages import (
    PROTOCOL_VERSION,
    Acknowledge,
    Attach,
    CommandDone,
    FromAgent,
    Heartbeat,
    LogPart,
    ReadLog,
    Refuse,
    Report,
    StartRanksCommand,
    Welcome,
)
from nodeagent.protocol.observations import Observation
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.protocol.rendezvous import StoreCall
from nodeagent.session.local_queries import AgentStatus, AskStatus
from tests.fakes.polling import PolledT

REPOSITORY = Path(__file__).parents[2]
NODE = "n1"
LIMIT_S = 30.0
PROGRAM = ("-m", "nodeagent")
_LOG_IDS = itertools.count(1)

ObservationT = TypeVar("ObservationT", bound=Observation)


async def until(
    condition: Callable[[], PolledT | None], what: str, limit_s: float = LIMIT_S
) -> PolledT:
    """Call ``condition`` until it returns a true value, and return that value.

    A caller uses the returned value: the next call may answer otherwise, or too late.
    """
    try:
        async with asyncio.timeout(limit_s):
            while not (found := condition()):  # noqa: ASYNC110 - it may ask another process
                await asyncio.sleep(0.01)
            return found
    except TimeoutError:
        raise AssertionError(f"still not: {what}") from None


class FakeController:
    """One session with an agent."""

    def __init__(self, channel: LineChannel) -> None:
        self.messages: list[FromAgent] = []
        self.is_closed = False
        self.acknowledges = True
        self.tables: RendezvousTables[str] | None = None
        """Answers rendezvous calls, where a test sets it."""
        # Not asyncio's streams: a write that fails makes those forget what the agent said last.
        self._channel = channel
        self._codec: Codec[FromAgent] = Codec(TypeAdapter(FromAgent))

    async def listen(self) -> None:
        async for line in self._channel.lines():
            message = self._codec.decode(line)
            self.messages.append(message)
            if isinstance(message, Report) and self.acknowledges:
                self.send(Acknowledge(seq=message.seq))
            if isinstance(message, StoreCall) and self.tables is not None:
                for _, reply in self.tables.call(NODE, message, 0.0):
                    self.send(reply)
        self.is_closed = True

    def send(self, message: BaseModel) -> None:
        self._channel.send(message)

    def send_raw(self, line: bytes) -> None:
        self._channel.send_line(line)

    def close(self) -> None:
        self._channel.abort()

    @property
    def reports(self) -> list[Report]:
        return [message for message in self.messages if isinstance(message, Report)]

    async def first_reports(self, count: int) -> list[Report]:
        """Wait until ``count`` reports came, and return all that came."""
        return await until(
            lambda: found if len(found := self.reports) >= count else None, f"{count} reports"
        )

    def observed(self, kind: type[ObservationT]) -> list[ObservationT]:
        observations = [report.observation for report in self.reports]
        return [observation for observation in observations if isinstance(observation, kind)]

    async def first(self, kind: type[ObservationT]) -> ObservationT:
        return (await self.reported(kind))[0]

    async def reported(self, kind: type[ObservationT], count: int = 1) -> list[ObservationT]:
        """Wait until ``count`` observations of one kind were reported; return all of that kind."""

        def enough() -> list[ObservationT] | None:
            found = self.observed(kind)
            return found if len(found) >= count else None

        return await until(enough, f"{count} of {kind.__name__}")

    async def welcome(self) -> Welcome:
        answer = (await until(lambda: self.messages, "an answer to attach"))[0]
        assert isinstance(answer, Welcome), answer
        return answer

    async def refusal(self) -> str:
        await until(lambda: self.is_closed, "the end of a refused connection")
        (answer,) = self.messages
        assert isinstance(answer, Refuse), answer
        return answer.reason

    async def do(self, command: BaseModel) -> CommandDone:
        """Send a command and wait for its result."""
        self.send(command)
        command_id = getattr(command, "command_id")  # noqa: B009 - commands share no base

        def results() -> list[CommandDone]:
            found = [message for message in self.messages if isinstance(message, CommandDone)]
            return [done for done in found if done.command_id == command_id]

        num_before = len(results())
        new = await until(lambda: results()[num_before:], f"the result of {command_id}")
        return new[-1]

    async def read_log(self, request: ReadLog) -> LogPart:
        """Ask for a part of a rank's output, and return it."""
        command_id = f"log-{next(_LOG_IDS)}"
        self.send(request.model_copy(update={"command_id": command_id}))

        def answer() -> LogPart | None:
            parts = (message for message in self.messages if isinstance(message, LogPart))
            return next((part for part in parts if part.command_id == command_id), None)

        return await until(answer, "a part of the log")

    async def start_ranks(self, *launches: RankLaunch, command_id: str = "start") -> CommandDone:
        return await self.do(StartRanksCommand.of(command_id, launches))

    async def heartbeat(self, condition: Callable[[Heartbeat], bool]) -> Heartbeat:
        def matching() -> list[Heartbeat]:
            beats = [message for message in self.messages if isinstance(message, Heartbeat)]
            return [beat for beat in beats if condition(beat)]

        return (await until(matching, "such a heartbeat"))[-1]

    @property
    def store_calls(self) -> list[StoreCall]:
        return [message for message in self.messages if isinstance(message, StoreCall)]


class AgentNode:
    """A node: its state directory and the agent in it, if one runs."""

    def __init__(self, *options: str) -> None:
        # Not pytest's tmp_path: a socket's path has at most 107 bytes.
        self.state_dir = Path(tempfile.mkdtemp(prefix="unicron-"))
        self.options = options
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return (self.state_dir / "agent.log").read_text()

    def arguments(self, command: str) -> list[str]:
        common = ["--state-dir", str(self.state_dir)]
        if command in {"run", "start"}:
            common += ["--node", NODE, "--num-workers", "2"]
            common += ["--template-module", "tests.fakes.fake_template"]
            common += ["--cold-module", "tests.fakes.fake_cold", *self.options]
        return [command, *common]

    def call(
        self, command: str, *options: str, program: Sequence[str] = PROGRAM
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, *program, *self.arguments(command), *options],
            env=self._environment(),
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )

    async def start(self) -> AgentStatus:
        """Start an agent and wait until it answers."""
        with (self.state_dir / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(  # noqa: ASYNC220 - a fork, and done
                [sys.executable, *PROGRAM, *self.arguments("run")],
                env=self._environment(),
                cwd=REPOSITORY,
                stderr=log,
            )
        return await self.status()

    async def status(self) -> AgentStatus:
        """Ask the agent until it answers in time."""
        return await status_of(self.state_dir)

    def kill(self) -> None:
        """Kill the agent as no agent likes to be killed."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def terminate(self) -> int:
        assert self.process is not None
        self.process.terminate()
        exit_code, self.process = self.process.wait(timeout=LIMIT_S), None
        return exit_code

    @contextlib.asynccontextmanager
    async def controller(
        self,
        *,
        last_seq: int = 0,
        run_id: str = "run-1",
        term: int = 1,
        node: str = NODE,
        version: int = PROTOCOL_VERSION,
    ) -> AsyncIterator[FakeController]:
        """Attach a controller for the length of the block."""
        path = self.state_dir / "agent.sock"
        channel = await connect(path)
        controller = FakeController(channel)
        attach = Attach(
            version=version, run_id=run_id, term=term, node=NodeId(node), last_seq=last_seq
        )
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(controller.listen())
                controller.send(attach)
                try:
                    yield controller
                finally:
                    controller.close()
        finally:
            channel.close()

    def remove(self) -> None:
        """End everything and remove the directory."""
        stop_agent(self.state_dir, kill_ranks=True, clock=SystemNodeClock())
        if self.process is not None:
            self.process.wait(timeout=LIMIT_S)
        shutil.rmtree(self.state_dir)

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(REPOSITORY)}


async def status_of(state_dir: Path) -> AgentStatus:
    """Ask the agent in ``state_dir`` until it answers in time."""
    return await until(lambda: ask_agent(state_dir, AskStatus()), "an answer of the agent")


def num_unacknowledged(state_dir: Path) -> int | None:
    """Return how many reports the agent keeps; None if it does not say so in time."""
    status = ask_agent(state_dir, AskStatus())
    return None if status is None else status.num_unacknowledged


def record_pids(node: AgentNode) -> dict[str, int]:
    """Return the pid in each rank's record, by the record's stem."""
    found: dict[str, int] = {}
    for path in (node.state_dir / "ranks").glob("*.json"):
        with contextlib.suppress(FileNotFoundError):  # its rank has just ended
            found[path.stem] = int(json.loads(path.read_text())["pid"])
    return found
