"""The server: it composes controller, API, event log and views, and runs them in order."""

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from typing_extensions import override

from controller.api.projection import Frame
from controller.api.server import ApiServer
from controller.api.views import ClusterView
from controller.api.wire import Command
from controller.clock import SystemClock
from controller.core.events import EventBody
from controller.core.instructions import CarryOutDrill, Fact, Level
from controller.core.state.cluster import ClusterState
from controller.ports import DrillGround
from controller.server.announcements import AnnouncementPublisher
from controller.server.api_commands import ApiCommands
from controller.server.controller import Controller
from controller.server.controller_config import ControllerConfig
from controller.server.server_hooks import ServerHooks
from controller.store.event_log import EventLog
from controller.store.run_file import JOURNAL_NAME
from nodeagent.protocol.ids import NodeId, TaskId
from nodeagent.protocol.rank_faults import RankFault
from nodeagent.protocol.regroup import RankRef

_LOG: Final = logging.getLogger(__name__)
_CHANGE_LIMIT_S: Final = 1.0
_NEWEST_LOSSES: Final = 120


@dataclass(frozen=True, slots=True)
class ServerPlaces:
    """Where a server has its files.

    Attributes:
        directory: Directory of the run: journal, rendezvous files, measured tables. It must exist.
            If it holds the journal of an earlier controller, the server takes over from it.
        socket: Unix socket of the API, made by the server. Nothing may be there. Only in
            ``directory`` a socket of an earlier controller is replaced.
        event_log: File of the event log; None means no event log.
        is_resumed: Whether the event log is appended to. Else a file that is there is replaced.
    """

    directory: Path
    socket: Path
    event_log: Path | None = None
    is_resumed: bool = False


class ControllerServer:
    """One run of a controller with its API. ``run`` serves it until cancelled.

    Args:
        name: Name of the cluster, for clients.
        config: Nodes, tasks and policy.
        places: Its files.
        clock: The clock of the run.
        hooks: Extensions by the owner of the server.

    Raises:
        JournalError: See ``Controller``, as for the other errors.
        OSError: A file can't be written.
    """

    def __init__(
        self,
        name: str,
        config: ControllerConfig,
        places: ServerPlaces,
        clock: SystemClock,
        hooks: ServerHooks | None = None,
    ) -> None:
        hooks = hooks or ServerHooks()
        self._name = name
        self._config = config
        self._places = places
        self._clock = clock
        self._offered_drills = hooks.offered_drills
        self._drills: DrillGround = hooks.drills or _NoDrills(self)
        self._event_log: EventLog | None = None
        self._api = ApiServer(name, self.view, self._take_command)
        self._publisher = AnnouncementPublisher(self._api, hooks.observers, hooks.answered, clock)
        self._commands = ApiCommands(
            lambda: self._controller,
            clock,
            self._api.answer,
            shut_down=self._begin_closing,
            hooks=hooks,
            adopt=self._adopt,
        )
        self._is_replaced = asyncio.Event()
        self._pause_s = 0.0
        self.is_ready = asyncio.Event()
        """Set while a controller runs and clients can connect."""
        self.is_closing = False
        """Whether a client has asked for the end of the run."""
        # First the controller: it takes the lock of the run, without which no file is touched.
        self._controller = self._next_controller()
        with contextlib.ExitStack() as on_error:
            on_error.callback(self._controller.close)
            if places.event_log:
                self._event_log = EventLog(places.event_log, is_appended=places.is_resumed)
                self._publisher.log_to(self._event_log)
            on_error.pop_all()

    @property
    def state(self) -> ClusterState:
        """The state of the core. Callers must not change it."""
        return self._controller.state

    def view(self, max_losses: int | None = _NEWEST_LOSSES) -> ClusterView:
        """Return the cluster as operators see it now; None for ``max_losses`` means all losses."""
        plans = self._controller.precomputed_plans
        frame = Frame(
            cluster=self._name,
            started_wall_s=self._clock.started_wall_s,
            is_auto_heal=self._controller.policy.is_auto_heal,
            is_closing=self.is_closing,
            drills=self._offered_drills,
            max_losses=max_losses,
            explanations=plans.explanations,
            prepared=plans.prepared,
            controller=self._controller.view(),
            pulses=self._controller.pulses,
            policy=self._controller.policy,
        )
        return self._controller.views.view(self._clock.now(), frame)

    def post(self, body: EventBody) -> None:
        """Have the core handle an event, after the events that wait."""
        self._controller.post(body)

    def note(self, source: str, text: str, level: Level = "warning", **facts: Fact) -> None:
        """Publish a line that does not come from the core."""
        self._publisher.note(source, text, level, **facts)

    def inject(self, node: NodeId, task: TaskId, rank: RankRef, fault: RankFault) -> None:
        """Have an agent stage a fault in a rank."""
        self._controller.fleet.inject(node, task, rank, fault)

    async def next_change(self) -> None:
        """Return when the state may have changed, after a second at most. One caller at a time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CHANGE_LIMIT_S):
                await self._publisher.changed.wait()
        self._publisher.changed.clear()

    def replace_controller(self, pause_s: float) -> None:
        """Drop controller and API as if killed. After ``pause_s`` a new controller takes over."""
        self._pause_s = pause_s
        self._is_replaced.set()

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            ApiSocketError: The socket can't be made.
        """
        _LOG.info(
            "server started: cluster=%s nodes=%d tasks=%d path=%s",
            self._name, len(self._config.addresses), len(self._config.tasks), self._places.directory,
        )  # fmt: skip
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._serve_controllers())
                group.create_task(self._commands.run())
                try:
                    await asyncio.Event().wait()
                finally:
                    _LOG.info("server is stopping: cluster=%s", self._name)
        finally:
            if self._event_log:
                self._event_log.close()
            _LOG.info("server stopped: cluster=%s", self._name)

    async def _serve_controllers(self) -> None:
        """Serve one controller after the other. The next controller gets only files."""
        while True:
            try:
                await self._serve_controller()
            finally:
                self.is_ready.clear()
                self._controller.close()  # it may not have been run at all
            _LOG.info("controller dropped: next_in_s=%.1f", self._pause_s)
            await asyncio.sleep(self._pause_s)
            self._is_replaced.clear()
            self._controller = self._next_controller()

    async def _serve_controller(self) -> None:
        """Serve the present controller and its API until the controller is replaced."""
        async with asyncio.TaskGroup() as group:
            places = self._places
            # Under the lock of the run nobody else listens in its directory.
            is_ours = places.socket.parent == places.directory
            services = [group.create_task(self._api.run(places.socket, replaces_stale=is_ours))]
            # Nodes are contacted only if clients can reach the controller.
            await self._api.is_listening.wait()
            serving = self._controller.run(self._publisher, self._drills)
            services.append(group.create_task(serving))
            self.is_ready.set()
            _LOG.info("server is ready: cluster=%s socket=%s", self._name, self._places.socket)
            await self._is_replaced.wait()
            for service in services:
                service.cancel()

    def _next_controller(self) -> Controller:
        journal = self._places.directory / JOURNAL_NAME
        return Controller(self._config, journal, self._clock, self._publisher.note)

    def _take_command(self, command: Command) -> None:
        self._commands.take(command)

    def _adopt(self, config: ControllerConfig) -> None:
        self._config = config

    def _begin_closing(self) -> None:
        self.is_closing = True
        self._publisher.changed.set()


class _NoDrills(DrillGround):
    """The drill ground of a server without one."""

    def __init__(self, server: ControllerServer) -> None:
        self._server = server

    @override
    def carry_out(self, drill: CarryOutDrill) -> None:
        self._server.note("drill", f"drill {drill.drill} is not carried out: no drills run here")
