"""The demo's controller over a running local cluster: wiring, drills on time, and the end."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from controller.api import wire
from controller.api.projection import Frame, project
from controller.api.requests import event_of
from controller.api.server import ApiServer
from controller.api.views import ClusterView
from controller.clock import SystemClock
from controller.core.events import EventBody
from controller.core.instructions import AnswerRequest
from controller.core.state.cluster import ClusterState
from controller.core.state.phases import TaskPhase
from controller.demo.controller_config import controller_config
from controller.demo.demo_options import DemoOptions
from controller.demo.hub import Hub, TerminalOutput
from controller.drills.drill_arguments import available_drills
from controller.drills.drill_execution import DrillExecutor
from controller.drills.drill_schedule import DrillSchedule, has_settled, why_stuck
from controller.localcluster.local_cluster import LocalCluster
from controller.plan.questions import answer
from controller.server.controller import Controller
from controller.store.event_log import EventLog
from controller.store.run_file import JOURNAL_NAME
from nodeagent.protocol.ids import NodeId, TaskId
from nodeagent.protocol.rank_faults import RankFault
from nodeagent.protocol.regroup import RankRef

_REST_LIMIT_S: Final = 20.0
"""How long a headless run waits, after the last iteration, for what is still under way."""

_RESTART_S: Final = 1.0
"""How long there is no controller after a drill has killed it."""

_STUCK_LIMIT_S: Final = 90.0
"""How long a headless run that heals by itself may stand still before it gives up."""


class DemoSession:
    """One controller over one local cluster. ``run`` ends when the demo has reached its end."""

    def __init__(
        self,
        options: DemoOptions,
        cluster: LocalCluster,
        clock: SystemClock,
        screen: TerminalOutput,
    ) -> None:
        self._options = options
        self._clock = clock
        self._is_closing = False
        self._offered = available_drills(has_namespaces=cluster.has_namespaces)
        self._socket = options.serve or cluster.root / "api.sock"
        self._event_log = EventLog(options.event_log) if options.event_log else None
        self._config = controller_config(options, cluster.nodes, cluster.root)
        self._journal = cluster.root / JOURNAL_NAME
        self._server = ApiServer("demo", self.view, self._take_command)
        self._schedule = DrillSchedule(options.drills, self.post)
        self._changed = asyncio.Event()
        self._hub = Hub(self._server, screen, self._event_log, clock, self._schedule, self._changed)
        self._controller = self._next_controller()
        self._is_killed = asyncio.Event()
        self._questions: asyncio.Queue[wire.Question] = asyncio.Queue()
        self._drills = DrillExecutor(
            self,
            cluster,
            lambda text: self._hub.say("drill", text),
        )

    def _next_controller(self) -> Controller:
        return Controller(self._config, self._journal, self._clock, self._hub.say)

    def agent_pid(self, node: NodeId) -> int | None:
        """Return the process of a node's agent, if it has one."""
        return self.state.nodes[node].agent_pid

    def kill_controller(self) -> None:
        """Drop the controller without a goodbye; the next one takes over."""
        self._is_killed.set()

    def rank_pid(self, task: TaskId, global_rank: int) -> int | None:
        """Return the process of a rank, if it has one."""
        rank = self.state.tasks[task].ranks.get(global_rank)
        return rank.pid if rank is not None else None

    def view(self, max_losses: int | None = 120) -> ClusterView:
        """Return the cluster as operators see it now."""
        frame = Frame(
            cluster="demo",
            started_wall_s=self._clock.started_wall_s,
            is_auto_heal=self._options.policy.is_auto_heal,
            is_closing=self._is_closing,
            drills=self._offered,
            max_losses=max_losses,
            explanations=self._controller.precomputed_plans.explanations,
            prepared=self._controller.precomputed_plans.prepared,
        )
        return project(self.state, self._clock.now(), frame)

    @property
    def state(self) -> ClusterState:
        """What the core knows now; not to be changed."""
        return self._controller.state

    def post(self, body: EventBody) -> None:
        """Tell the core of something, as a console would."""
        self._controller.post(body)

    def inject(self, node: NodeId, task: TaskId, rank: RankRef, fault: RankFault) -> None:
        """Drill: stage a fault in a rank."""
        self._controller.fleet.inject(node, task, rank, fault)

    async def run(self, script: Callable[[], Awaitable[None]] | None = None) -> bool:
        """Serve until the end; return whether every task and every drill got there.

        With ``script`` the end is when that is over.
        """
        try:
            async with asyncio.TaskGroup() as group:
                services = [
                    group.create_task(self._serve_controllers()),
                    group.create_task(self._drills.run()),
                    group.create_task(self._answer_questions()),
                ]
                self._hub.say(
                    "demo", f"consoles: unicron-console --connect {self._socket}", level="info"
                )
                await (script or self._reach_the_end)()
                for service in services:
                    service.cancel()
            self._tell_missed_drills()
        finally:
            if self._event_log:
                self._event_log.close()
        return self._has_reached_target() and not self._schedule.missed

    async def _serve_controllers(self) -> None:
        """Serve one controller after the other; the next one has the files the last one kept, no more."""
        while True:
            async with asyncio.TaskGroup() as group:
                services = [
                    group.create_task(self._server.run(self._socket)),
                    group.create_task(self._controller.run(self._hub, self._drills)),
                ]
                await self._is_killed.wait()
                for service in services:
                    service.cancel()
            await asyncio.sleep(_RESTART_S)
            self._is_killed.clear()
            self._controller = self._next_controller()

    def _tell_missed_drills(self) -> None:
        for drill in self._schedule.missed:
            text = (
                f"drill {drill.kind}@{drill.iteration} was not carried out: {drill.task} had ended"
            )
            self._hub.say("demo", text, level="error")

    def _has_reached_target(self) -> bool:
        target, tasks = self._options.num_iterations, self.state.tasks.values()
        return target is not None and all(
            task.iteration >= target or task.phase is TaskPhase.FINISHED for task in tasks
        )

    async def _reach_the_end(self) -> None:
        """Run drills when due; return when a console ends the demo, or a headless run is over."""
        stuck_since = self._clock.now()
        while not self._is_closing and not self._is_run_done():
            self._schedule.post_due(self.state)
            await self.next_change()
            if not (reason := why_stuck(self.state)):
                stuck_since = self._clock.now()
            elif self._is_over(stuck_since):
                self._hub.say("demo", f"gave up: {reason}", level="error")
                return
        rest_until = self._clock.now() + _REST_LIMIT_S
        while (
            not self._is_closing and not has_settled(self.state) and self._clock.now() < rest_until
        ):
            await self.next_change()

    def _is_over(self, stuck_since: float) -> bool:
        """Whether a run that heals by itself has stood still for too long to go on."""
        heals_alone = self._options.is_headless and self._options.policy.is_auto_heal
        return heals_alone and self._clock.now() - stuck_since > _STUCK_LIMIT_S

    def _is_run_done(self) -> bool:
        return self._options.is_headless and self._has_reached_target() and self._schedule.is_done

    async def next_change(self) -> None:
        """Return when something has changed, or after a second at the latest."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._changed.wait()
        self._changed.clear()

    async def _answer_questions(self) -> None:
        """Answer what consoles ask, one question after the other."""
        while True:
            question = await self._questions.get()
            reply = await answer(question, self.state, self._config.policy, self._clock.now())
            self._server.answer(reply)

    def _take_command(self, command: wire.Command) -> None:
        """Turn a console's command into an event; ``Shutdown`` is the demo's own."""
        match command:
            case wire.Shutdown():
                self._is_closing = True
                self._changed.set()
                self._hub.answer(
                    AnswerRequest(0, command.request_id, is_ok=True, code="ok", message="ending")
                )
            case wire.AskWhatIf() | wire.DescribeCluster():
                self._questions.put_nowait(command)
            case _:
                self.post(event_of(command))
