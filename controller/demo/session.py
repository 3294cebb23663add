"""The demo's controller over a running local cluster: wiring, drills on time, and the end."""

import asyncio
import contextlib
import secrets
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, assert_never

from controller.api import wire
from controller.api.projection import Frame, project
from controller.api.server import ApiServer
from controller.api.views import ClusterView
from controller.clock import SystemClock
from controller.core.events import (
    DrillRequested,
    EventBody,
    PlanApproved,
    PlanRejected,
    PlanRequested,
    UncordonRequested,
)
from controller.core.instructions import AnswerRequest
from controller.core.machine import Machine
from controller.core.phases import TaskPhase
from controller.core.state import ClusterState, NodeSpec
from controller.core.tasks import TaskSpec
from controller.demo.cluster import LocalCluster
from controller.demo.drillground import LocalDrillGround
from controller.demo.drills import offered
from controller.demo.hub import Hub, Screen
from controller.demo.localnode import LocalNode
from controller.demo.options import DemoOptions
from controller.demo.schedule import DrillSchedule, has_settled, why_stuck
from controller.fleet.address import NodeAddress
from controller.fleet.fleet import SshFleet
from controller.fleet.link import Identity
from controller.launches import CommandTask, TaskProgram
from controller.runtime import Runtime, Surroundings
from controller.store.eventlog import EventLog
from controller.store.journal import Journal
from nodeagent.protocol.ids import NodeId, TaskId
from nodeagent.protocol.training import TrainingSpec
from profiles.tasks import TaskProfile

_REST_LIMIT_S: Final = 20.0
"""How long a headless run waits, after the last iteration, for what is still under way."""

_STUCK_LIMIT_S: Final = 90.0
"""How long a headless run that heals by itself may stand still before it gives up."""


class Session:
    """One controller over one local cluster. ``run`` ends when the demo has reached its end."""

    def __init__(
        self,
        options: DemoOptions,
        cluster: LocalCluster,
        clock: SystemClock,
        screen: Screen,
    ) -> None:
        self._options = options
        self._clock = clock
        self._is_closing = False
        self._offered = offered(has_namespaces=cluster.has_namespaces)
        self._socket = options.serve or cluster.root / "api.sock"
        self._event_log = EventLog(options.event_log) if options.event_log else None
        self._journal = Journal(cluster.root / "journal.jsonl")
        checkpoints = cluster.root / "checkpoints"
        self._runtime = Runtime(
            Machine(
                [NodeSpec(n.node, f"{n.host}:{n.port}", n.num_workers) for n in cluster.nodes],
                [_task_spec(profile, options.num_iterations) for profile in options.profiles],
                options.policy,
            ),
            self._journal,
            clock,
            {
                TaskId(profile.name): _program(profile, options, checkpoints)
                for profile in options.profiles
            },
        )
        self._server = ApiServer("demo", self.view, self._take_command)
        self._schedule = DrillSchedule(options.drills, self._runtime.post)
        self._changed = asyncio.Event()
        self._hub = Hub(self._server, screen, self._event_log, clock, self._schedule, self._changed)
        addresses = [_address(node, cluster.kernel_log(node)) for node in cluster.nodes]
        identity = Identity(run_id=secrets.token_hex(8), term=1)
        self._fleet = SshFleet(addresses, identity, _FleetEars(self._runtime, self._hub), clock)
        self._drills = LocalDrillGround(
            self._fleet,
            cluster,
            lambda node: self.state.nodes[node].agent_pid,
            self._rank_pid,
            lambda text: self._hub.say("drill", text),
        )

    def _rank_pid(self, task: TaskId, global_rank: int) -> int | None:
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
        )
        return project(self.state, self._clock.now(), frame)

    @property
    def state(self) -> ClusterState:
        """What the core knows now; not to be changed."""
        return self._runtime.machine.state

    def post(self, body: EventBody) -> None:
        """Tell the core of something, as a console would."""
        self._runtime.post(body)

    async def run(self, script: Callable[[], Awaitable[None]] | None = None) -> bool:
        """Serve until the end; return whether every task and every drill got there.

        With ``script`` the end is when that is over.
        """
        surroundings = Surroundings(self._fleet, self._hub, self._drills)
        try:
            async with asyncio.TaskGroup() as group:
                services = [
                    group.create_task(self._server.run(self._socket)),
                    group.create_task(self._runtime.run(surroundings)),
                    group.create_task(self._fleet.run()),
                    group.create_task(self._drills.run()),
                ]
                self._hub.say(
                    "demo", f"consoles: unicron-console --connect {self._socket}", level="info"
                )
                await (script or self._reach_the_end)()
                for service in services:
                    service.cancel()
            self._tell_missed_drills()
        finally:
            self._journal.close()
            if self._event_log:
                self._event_log.close()
        return self._has_reached_target() and not self._schedule.missed

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
            self._schedule.look(self.state)
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

    def _take_command(self, command: wire.Command) -> None:
        """Turn a console's command into an event; ``Shutdown`` is the demo's own."""
        if isinstance(command, wire.Shutdown):
            self._is_closing = True
            self._changed.set()
            self._hub.answer(
                AnswerRequest(0, command.request_id, is_ok=True, code="ok", message="ending")
            )
        else:
            self._runtime.post(_event_of(command))


class _FleetEars:
    """Where the fleet's events go: the runtime, and the terminal for lines about lost links."""

    def __init__(self, runtime: Runtime, hub: Hub) -> None:
        self._runtime = runtime
        self._hub = hub

    def post(self, body: EventBody) -> None:
        """Pass an event to the runtime."""
        self._runtime.post(body)

    def note(self, node: NodeId, text: str) -> None:
        """Show a line about a node that can't be reached."""
        self._hub.say(node, text)


def _event_of(
    command: wire.ApprovePlan
    | wire.RejectPlan
    | wire.RequestPlan
    | wire.UncordonNode
    | wire.RunDrill,
) -> EventBody:
    match command:
        case wire.ApprovePlan():
            return PlanApproved(command.request_id, command.actor, command.plan, command.revision)
        case wire.RejectPlan():
            return PlanRejected(
                command.request_id, command.actor, command.plan, command.revision, command.reason
            )
        case wire.RequestPlan():
            return PlanRequested(command.request_id, command.actor)
        case wire.UncordonNode():
            return UncordonRequested(
                command.request_id,
                command.actor,
                NodeId(command.node),
                command.is_forced,
                command.gpu,
            )
        case wire.RunDrill():
            return DrillRequested(
                command.request_id,
                command.actor,
                command.drill,
                TaskId(command.task) if command.task else None,
                command.rank,
                NodeId(command.node) if command.node else None,
            )
        case _:
            assert_never(command)


def _address(node: LocalNode, kernel_log: Path) -> NodeAddress:
    return NodeAddress(
        node=node.node,
        host=node.host,
        port=node.port,
        user=node.user,
        client_key=str(node.client_key_path),
        host_public_key=node.host_public_key,
        state_dir=str(node.state_dir),
        python=sys.executable,
        num_workers=node.num_workers,
        kernel_log=str(kernel_log),
    )


def _task_spec(profile: TaskProfile, num_iterations: int | None) -> TaskSpec:
    model, command = profile.model, profile.command
    num_samples = profile.num_micro_batches * profile.micro_batch_size
    return TaskSpec(
        task=TaskId(profile.name),
        weight=profile.weight,
        workers=profile.workers,
        min_workers=profile.min_workers,
        table=profile.throughput,
        flops_per_iteration=model.flops_per_sample() * num_samples if model else 0.0,
        # A command ends when it likes.
        num_iterations=num_iterations if command is None else None,
        num_micro_batches=profile.num_micro_batches,
        is_sharded=profile.shard_optimizer,
        is_command=command is not None,
        start_limit_s=command.start_limit_s if command else None,
        stop_limit_s=command.stop_limit_s if command else None,
        hang_limit_s=command.hang_limit_s if command else 0.0,
        long_intervals=(profile.checkpoint_interval,) if command is None else (),
    )


def _program(profile: TaskProfile, options: DemoOptions, checkpoints: Path) -> TaskProgram:
    if profile.command is not None:
        return CommandTask(profile.command, str(checkpoints / profile.name))
    assert profile.model is not None, "a profile has a command or a model"
    return TrainingSpec(
        model=profile.model,
        program=profile.program,
        data_path=options.data_path,
        checkpoint_dir=str(checkpoints / profile.name),
        checkpoint_interval=profile.checkpoint_interval,
        num_micro_batches=profile.num_micro_batches,
        micro_batch_size=profile.micro_batch_size,
        learning_rate=profile.learning_rate,
        seed=options.seed,
        num_iterations=options.num_iterations,
        iteration_floor_s=profile.iteration_floor_s,
        shard_optimizer=profile.shard_optimizer,
        memory_interval=profile.memory_interval,
    )
