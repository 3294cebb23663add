"""The modelled cluster's nodes, and the link between them and the controller's core."""

import random
from collections.abc import Callable, Iterable
from typing import Any

from controller.core.events import Event, EventBody, Observed
from controller.core.instructions import Instruction
from controller.core.machine import Machine
from controller.core.state.phases import TaskPhase
from controller.simulation.scenarios.duration_laws import Law
from controller.simulation.scenarios.estimated_tables import Profile
from controller.simulation.scenarios.scenario import Values
from controller.simulation.world.modelled_generation import ModelledGeneration
from controller.simulation.world.virtual_clock import VirtualClock
from controller.simulation.world.worker_time import WorkerActivity, WorkerTimeLedger
from nodeagent.protocol.ids import NodeId, TaskId
from nodeagent.protocol.observations import AnyObservation, RankHalted, RankJoined

_STEPS = frozenset({RankHalted, RankJoined})
AGENT_S = 0.05
"""Delay of an agent's answer, or of a process's end."""


class ModelledNodes:
    """The state that all parts of the modelled cluster share.

    Attributes:
        machine: The core.
        values: The scenario's values.
        profiles: The throughput of each task.
        ledger: The account of the run.
        clock: Virtual time.
        names: The nodes' names, by number.
        down: Nodes that are away.
        in_repair: Nodes with broken hardware that still answer.
        slow: For each slow node, the speed of its task as a fraction of the usual speed.
        runs: The newest generation of every task that has had one.
        carry_out: Takes the core's instructions.
    """

    def __init__(
        self,
        machine: Machine,
        values: Values,
        profiles: Iterable[Profile],
        ledger: WorkerTimeLedger,
        clock: VirtualClock,
        rng: random.Random,
    ) -> None:
        self.machine = machine
        self.values = values
        self.profiles = {TaskId(each.task.name): each for each in profiles}
        self.ledger = ledger
        self.clock = clock
        self.names = list(machine.state.nodes)
        self.down: set[NodeId] = set()
        self.in_repair: set[NodeId] = set()
        self.slow: dict[NodeId, float] = {}
        self.runs: dict[TaskId, ModelledGeneration] = {}
        self.carry_out: Callable[[Instruction], None] = lambda _instruction: None
        self.num_events = 0
        self._rng = rng
        self._num_reports: dict[NodeId, int] = {}
        self._num_requests = 0

    def post(self, body: EventBody) -> None:
        """Give the core an event, and carry out its instructions."""
        self.num_events += 1
        event = Event(number=self.num_events, at=self.clock.now_s, body=body)
        instructions = self.machine.handle(event)
        for instruction in instructions:
            self.carry_out(instruction)
        # Most reports are of these kinds, and no task stops with them.
        if instructions or not (isinstance(body, Observed) and type(body.observation) in _STEPS):
            self._note_stopped()

    def post_if_up(self, node: NodeId, body: EventBody) -> None:
        """Post an event of a node, unless the node is down."""
        if node not in self.down:
            self.post(body)

    def observe(self, node: NodeId, observation: AnyObservation) -> None:
        """Post an observation of a node's agent, unless the node is down."""
        if node in self.down:
            return
        seq = self._num_reports[node] = self._num_reports.get(node, 0) + 1
        self.post(Observed(node, seq, self.clock.now_s, observation))

    def next_request(self) -> str:
        """Return the id of an operator's next request."""
        self._num_requests += 1
        return f"request-{self._num_requests}"

    def draw(self, law: Law) -> float:
        """Return a duration drawn from a law, in seconds."""
        return law.draw(self._rng)

    def draw_fraction(self) -> float:
        """Return a number from 0 to 1: the progress of an iteration, or the age of a checkpoint."""
        return self._rng.random()

    def _note_stopped(self) -> None:
        """Note tasks that a plan has stopped. No instruction says so if no process was left."""
        for name, task in self.machine.state.tasks.items():
            if (
                task.lifecycle.phase is TaskPhase.STOPPED
                and self.ledger.activity_of(name) != "stopped"
            ):
                self.ledger.task(self.clock.now_s, name, "stopped", workers=0)

    def record_activity(self, run: ModelledGeneration, activity: WorkerActivity) -> None:
        """Write a generation's new activity into the ledger."""
        if self.runs.get(run.start.task) is not run:
            return
        reached = [*run.alive.values()]
        if self.down:
            reached = [worker for worker in reached if worker.node not in self.down]
        num_held = self.machine.state.num_usable(reached)
        self.ledger.task(
            self.clock.now_s,
            run.start.task,
            activity,
            workers=num_held,
            waf=run.waf,
            speed=run.speed,
        )

    def record_service(self) -> None:
        """Write into the ledger the workers out of service, and the workers that tasks hold."""
        num_out = sum(
            state.spec.num_workers
            if name in self.down or state.service.isolated
            else len(state.service.isolated_gpus)
            for name, state in self.machine.state.nodes.items()
        )
        self.ledger.out_of_service(self.clock.now_s, num_out)
        for run in self.runs.values():
            if run.stage != "over":
                self.record_activity(run, self.ledger.activity_of(run.start.task))


def rank_fields(run: ModelledGeneration, number: int) -> dict[str, Any]:
    """Return the fields of an observation that identify a rank."""
    return {
        "task": run.start.task,
        "generation": run.start.generation,
        "global_rank": number,
    }
