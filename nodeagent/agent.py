"""The agent of a node: one asyncio process that holds the parts together.

It may be killed at any instant. Ranks and template do not notice; the next agent finds the outbox,
the ranks' files and the template's socket, and continues. A lock on ``agent.lock``, held until its
end, keeps a second agent out of the state directory.

The sockets open first and the template starts after, so that the agent answers at once. This module
only creates and starts the parts.
"""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from nodeagent.health.kernel_watch import KernelWatch
from nodeagent.health.node_probes import NodeHealth
from nodeagent.outbox.finding_queue import FindingStore
from nodeagent.outbox.outbox_file import OutboxFile
from nodeagent.probes.gpu import NvmlGpus
from nodeagent.probes.kernel_log import KernelLog
from nodeagent.probes.process_stats import rss_bytes
from nodeagent.process_tools.beat import next_beat
from nodeagent.process_tools.json_streams import LineChannel, listen
from nodeagent.process_tools.node_clock import NodeClock
from nodeagent.process_tools.service_manager import ServiceManager
from nodeagent.process_tools.socket_places import sockets_dir
from nodeagent.protocol.codec import MAX_LINE_BYTES
from nodeagent.protocol.ids import AgentId, NodeId
from nodeagent.protocol.messages import Attach, Heartbeat
from nodeagent.protocol.rendezvous import StoreCall, StoreReply
from nodeagent.ranks.command_ranks import CommandRanks
from nodeagent.ranks.kill_causes import MemoryKillCauses
from nodeagent.ranks.launcher import Launcher, code_dir
from nodeagent.ranks.rank_connections import MAX_RANK_LINE_BYTES, RankConnections
from nodeagent.ranks.rank_exits import ExitSources
from nodeagent.ranks.rank_files import RankFiles
from nodeagent.ranks.rank_inspector import RankInspector
from nodeagent.ranks.rank_processes import RankProcesses
from nodeagent.ranks.rank_starter import RankStarter
from nodeagent.ranks.store_relay import StoreRelay
from nodeagent.ranks.template_client import TemplateClient
from nodeagent.session.agent_commands import AgentCommand, AgentCommands
from nodeagent.session.controller_session import Gate, Services
from nodeagent.session.local_queries import AgentStatus

_LOG = logging.getLogger(__name__)

TICK_S: Final = 1.0

Serve = Callable[[LineChannel], Coroutine[Any, Any, None]]


class _EndedError(Exception):
    """The agent was asked to end."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What an agent is given at its start.

    Attributes:
        node: The node's name.
        num_workers: Workers of the node.
        launcher: Starts template and cold ranks; holds the state directory.
        has_template: False starts every rank cold.
        kernel_log: File to follow as the kernel log; None for the kernel's own.
    """

    node: NodeId
    num_workers: int
    launcher: Launcher
    has_template: bool = True
    kernel_log: Path | None = None

    @property
    def state_dir(self) -> Path:
        """The node's state directory."""
        return self.launcher.state_dir


class Agent(Services):
    """A running agent. Make one inside a running loop and ``run`` it once."""

    def __init__(self, settings: AgentSettings, clock: NodeClock) -> None:
        self._settings, self._clock = settings, clock
        self._manager = ServiceManager()
        self._has_begun_template = False
        self._agent_id = AgentId(f"{settings.node}-{os.urandom(4).hex()}")
        self._group = asyncio.TaskGroup()
        self._ended = asyncio.Event()
        self._listeners: list[socket.socket] = []
        state_dir, launcher = settings.state_dir, settings.launcher
        files = RankFiles(state_dir / "ranks")
        self._outbox = OutboxFile(state_dir / "outbox.jsonl")
        self._relay = StoreRelay(settings.node)
        self._hub = RankConnections(self._outbox, self._relay)
        self._findings = FindingStore(self._outbox, clock)
        kernel = KernelWatch(KernelLog(settings.kernel_log), clock, self._findings.report)
        self._causes = MemoryKillCauses(clock, kernel.read)
        kernel.pass_lines_to(self._causes.kills)
        sources = ExitSources(
            self._hub.drained, self._causes, CommandRanks(files, self._outbox, clock)
        )
        self._processes = RankProcesses(files, self._outbox, clock, self._spawn, sources)
        self._health = NodeHealth(
            kernel, self._findings, clock, state_dir, self._processes.living, NvmlGpus()
        )
        self._hub.attach(self._processes)
        self._template = TemplateClient(launcher, clock, self._processes.adopt_all)
        self._starter = RankStarter(
            self._processes, files, self._template, launcher, self._outbox, clock
        )
        self._commands = AgentCommands(
            self._processes, self._hub, self._template, self._starter, self._outbox, self._spawn
        )
        self._commands.state_dir = state_dir
        self._commands.on_inspect = RankInspector(self._hub, files, self._outbox, clock).inspect
        self._gate = Gate(self, self._outbox)
        self._relay.on_call = self._commands.on_done = self._gate.send

    async def run(self) -> None:
        """Serve until SIGTERM or ``Leave``, which may end ranks and template too.

        Raises:
            OSError: The sockets can't be opened, or the outbox can't be written at the start.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ended.set)
        try:
            async with self._group:
                self._open_sockets()
                self._begin()
                self._manager.ready()
                await self._wait_for_end()
        except* _EndedError:
            _LOG.info("agent stopping: agent=%s", self._agent_id)
        finally:
            for listener in self._listeners:
                listener.close()
            for name in ("agent.sock", "ranks.sock"):
                (sockets_dir(self._settings.state_dir) / name).unlink(missing_ok=True)
            (self._settings.state_dir / "agent.pid").unlink(missing_ok=True)
            self._outbox.close()

    # --- what sessions ask for ---------------------------------------------------------------

    @override
    def status(self) -> AgentStatus:
        outbox = self._outbox.outbox
        return AgentStatus(
            node=self._settings.node,
            agent_id=self._agent_id,
            pid=os.getpid(),
            num_workers=self._settings.num_workers,
            code_dir=str(code_dir()),
            rss_bytes=rss_bytes(os.getpid()),
            is_template_ready=self._template.is_ready,
            has_controller=self._gate.has_controller,
            run_id=outbox.run_id,
            term=outbox.term,
            num_unacknowledged=outbox.num_reports,
            ranks=self._processes.statuses(),
            probes=self._health.states(),
        )

    @override
    def heartbeat(self) -> Heartbeat:
        return Heartbeat(
            wall_s=self._clock.wall_s(),
            rss_bytes=rss_bytes(os.getpid()),
            is_template_ready=self._template.is_ready,
            ranks=self._processes.statuses(),
        )

    @override
    def attached(self, attach: Attach) -> None:
        self._begin_template()
        processes = [rank.name for rank in self._processes.living()]
        is_new_run = attach.run_id != self._outbox.outbox.run_id
        if is_new_run:
            self._commands.forget()
        self._outbox.attach(attach.run_id, attach.term, attach.last_seq, processes)
        if is_new_run:
            self._findings.report_again()
        self._processes.disown()

    @override
    def submit(self, command: AgentCommand) -> None:
        self._commands.submit(command)

    @override
    def reply(self, reply: StoreReply) -> None:
        self._relay.reply(reply)

    @override
    def waiting_calls(self) -> list[StoreCall]:
        return self._relay.waiting()

    @override
    def leave(self, *, kill_ranks: bool) -> None:
        self._spawn(self._leave(kill_ranks=kill_ranks), "leave")

    # --- its own life ------------------------------------------------------------------------

    def _open_sockets(self) -> None:
        self._listen("agent.sock", self._gate.serve, MAX_LINE_BYTES)
        self._listen("ranks.sock", self._hub.serve, MAX_RANK_LINE_BYTES)

    def _listen(self, name: str, serve: Serve, max_line_bytes: int) -> None:
        listener = listen(sockets_dir(self._settings.state_dir) / name)
        self._listeners.append(listener)

        def begin(connection: socket.socket) -> None:
            channel = LineChannel(connection, max_line_bytes)
            self._spawn(serve(channel), f"a connection to {name}")

        self._spawn(self._accept(listener, begin), name)

    async def _accept(
        self, listener: socket.socket, begin: Callable[[socket.socket], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError as error:  # out of descriptors, most likely: old connections continue
                _LOG.error("cannot accept a connection: reason=%s", error)
                await asyncio.sleep(TICK_S)
            else:
                begin(connection)

    def _begin(self) -> None:
        (self._settings.state_dir / "agent.pid").write_text(f"{os.getpid()}\n")
        self._processes.adopt_all()
        _LOG.info(
            "agent started: agent=%s node=%s pid=%d adopted_ranks=%d",
            self._agent_id,
            self._settings.node,
            os.getpid(),
            len(self._processes.living()),
        )
        if not self._settings.has_template:
            self._template.give_up("the agent was started without a template")
        elif self._template.is_known:
            self._begin_template()
        self._health.begin(self._spawn)
        self._spawn(self._tick(), "tick")

    def _begin_template(self) -> None:
        """Have a template from now on. Before its first session a node needs no memory for it."""
        if self._settings.has_template and not self._has_begun_template:
            self._has_begun_template = True
            self._spawn(self._template.run(), "template")

    async def _wait_for_end(self) -> None:
        await self._ended.wait()
        raise _EndedError  # ends the group's other tasks

    async def _tick(self) -> None:
        """Look again, once a second, for changes that no event reports."""
        while True:
            await next_beat(TICK_S)
            self._manager.alive()
            self._starter.reap()
            self._causes.sample()
            self._findings.flush()
            try:
                self._processes.adopt_all()
            except OSError as error:
                _LOG.error("cannot store reports from rank files: reason=%s", error)

    async def _leave(self, *, kill_ranks: bool) -> None:
        if kill_ranks:
            await self._commands.end_everything()
        self._ended.set()

    def _spawn(self, work: Coroutine[Any, Any, None], what: str) -> None:
        self._group.create_task(_contained(work, what))


async def _contained(work: Coroutine[Any, Any, None], what: str) -> None:
    """Run one piece of the agent's work; a bug in it must not end the node's supervision."""
    try:
        await work
    except Exception:  # noqa: BLE001 - the agent's main loop: logged, and everything else continues
        _LOG.exception("task of the agent failed: name=%s", what)
