"""A demo over a running local cluster: a server, drills on time, and the end of the run."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from typing_extensions import override

from controller.api.views import ClusterView
from controller.clock import SystemClock
from controller.core.events import EventBody
from controller.core.state.cluster import ClusterState
from controller.core.state.phases import TaskPhase
from controller.demo.demo_options import DemoOptions
from controller.demo.kept_files import EVENT_LOG_NAME, KeptLogs
from controller.demo.playground import CLUSTER_NAME, demo_cluster
from controller.drills.drill_arguments import available_drills
from controller.drills.drill_execution import DrilledController, DrillExecutor
from controller.drills.drill_schedule import DrillSchedule, are_all_held, has_settled, why_stuck
from controller.localcluster.local_cluster import LocalCluster
from controller.server.announcements import AnnouncementObserver
from controller.server.cluster_config import cluster_config
from controller.server.controller_server import ControllerServer, ServerPlaces
from controller.server.server_hooks import ServerHooks
from nodeagent.protocol.ids import NodeId, TaskId
from nodeagent.protocol.rank_faults import RankFault
from nodeagent.protocol.regroup import RankRef

_REST_LIMIT_S: Final = 20.0
"""After its last iteration a headless run waits this long for open incidents and plans."""

_RESTART_S: Final = 1.0
"""Time without a controller, after a drill has killed it."""

_STUCK_LIMIT_S: Final = 90.0
"""A headless run that heals by itself gives up if no task makes progress for this long."""

_HELD_LIMIT_S: Final = 3.0
"""The same if all its tasks are held: only an operator can start them again."""


class DemoSession(DrilledController):
    """One server over one local cluster. ``run`` returns at the end of the demo.

    Attributes:
        event_log: File of the event log; None if there is none.
    """

    def __init__(
        self,
        options: DemoOptions,
        cluster: LocalCluster,
        clock: SystemClock,
        observer: AnnouncementObserver,
    ) -> None:
        self._options = options
        self._clock = clock
        self._socket = options.serve or cluster.root / "api.sock"
        self.event_log = options.event_log
        if options.keep is not None and options.event_log is None:
            self.event_log = cluster.root / EVENT_LOG_NAME
        self._kept_logs = KeptLogs(options.keep.absolute()) if options.keep is not None else None
        self._schedule = DrillSchedule(options.drills, self.post, clock.now)
        self._drills = DrillExecutor(self, cluster, lambda text: self._server.note("drill", text))
        described = demo_cluster(options, cluster.nodes, cluster.root)
        self._server = ControllerServer(
            CLUSTER_NAME,
            replace(cluster_config(described, options.policy), tables=options.tables),
            ServerPlaces(cluster.root, self._socket, self.event_log),
            clock,
            ServerHooks(
                observers=[observer],
                answered=self._schedule.note_answer,
                drills=self._drills,
                offered_drills=available_drills(has_namespaces=cluster.has_namespaces),
                may_shut_down=True,
            ),
        )

    @override
    def agent_pid(self, node: NodeId) -> int | None:
        return self.state.nodes[node].contact.agent_pid

    @override
    def kill_controller(self) -> None:
        self._server.replace_controller(_RESTART_S)

    @override
    def rank_pid(self, task: TaskId, global_rank: int) -> int | None:
        rank = self.state.tasks[task].ranks.get(global_rank)
        return rank.pid if rank is not None else None

    @override
    def inject(self, node: NodeId, task: TaskId, rank: RankRef, fault: RankFault) -> None:
        self._server.inject(node, task, rank, fault)

    def view(self, max_losses: int | None) -> ClusterView:
        """Return the cluster as operators see it now; None for ``max_losses`` means all losses."""
        return self._server.view(max_losses)

    @property
    def state(self) -> ClusterState:
        """The state of the core. Callers must not change it."""
        return self._server.state

    def post(self, body: EventBody) -> None:
        """Have the core handle an event, after the events that wait."""
        self._server.post(body)

    async def next_change(self) -> None:
        """Return when the state may have changed, after a second at most."""
        await self._server.next_change()

    async def run(self, script: Callable[[], Awaitable[None]] | None = None) -> bool:
        """Serve until the end; return whether every task and every drill got there.

        With ``script`` the end is when ``script`` returns.
        """
        async with asyncio.TaskGroup() as group:
            services = [
                group.create_task(self._server.run()),
                group.create_task(self._drills.run()),
            ]
            self._server.note(
                "demo", f"consoles: unicron-console --connect {self._socket}", level="info"
            )
            await (script or self._reach_the_end)()
            self._note_kept_logs()
            self._note_drills_not_run()
            for service in services:
                service.cancel()
        return self._has_reached_target() and not self._schedule.missed and not self.is_refused

    @property
    def is_refused(self) -> bool:
        """Whether a drill can't be carried out, which has ended the run."""
        return bool(self._schedule.refused)

    def _note_drills_not_run(self) -> None:
        for drill, reason in self._schedule.refused:
            text = f"drill {drill.kind}@{drill.iteration} is refused: {reason}"
            self._server.note("demo", text, level="error")
        for drill in self._schedule.missed:
            text = (
                f"drill {drill.kind}@{drill.iteration} was not carried out: {drill.task} had ended"
            )
            self._server.note("demo", text, level="error")

    def _note_kept_logs(self) -> None:
        """Say where the logs of the newest incidents will be, as soon as they are known."""
        if self._kept_logs is None:
            return
        for text, path in self._kept_logs.new(self.state.incidents.all):
            self._server.note("demo", text, level="info", log=str(path))

    def _has_reached_target(self) -> bool:
        target, tasks = self._options.num_iterations, self.state.tasks.values()
        return target is not None and all(
            task.progress.iteration >= target or task.lifecycle.phase is TaskPhase.FINISHED
            for task in tasks
        )

    async def _reach_the_end(self) -> None:
        """Run drills when due; return when a console ends the demo, or a headless run is over."""
        stuck_since = self._clock.now()
        while not self._server.is_closing and not self._is_run_done():
            self._schedule.post_due(self.state)
            if self.is_refused:
                return
            await self.next_change()
            self._note_kept_logs()
            if not (reason := why_stuck(self.state)):
                stuck_since = self._clock.now()
            elif self._is_over(stuck_since):
                self._server.note("demo", f"gave up: {reason}", level="error")
                return
        rest_until = self._clock.now() + _REST_LIMIT_S
        while (
            not self._server.is_closing
            and not has_settled(self.state)
            and self._clock.now() < rest_until
        ):
            await self.next_change()

    def _is_over(self, stuck_since: float) -> bool:
        """Whether a run that heals by itself has made no progress for too long."""
        options = self._options
        # At a socket that was asked for an operator may still come.
        is_hopeless = are_all_held(self.state) and options.serve is None
        limit_s = _HELD_LIMIT_S if is_hopeless else _STUCK_LIMIT_S
        heals_alone = options.is_headless and options.policy.is_auto_heal
        return heals_alone and self._clock.now() - stuck_since > limit_s

    def _is_run_done(self) -> bool:
        return self._options.is_headless and self._has_reached_target() and self._schedule.is_done
