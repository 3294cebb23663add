"""Fleets of any size for the core alone: events in, and no world that answers."""

from collections.abc import Iterator

from controller.core.events import (
    ControllerStarted,
    Event,
    EventBody,
    NodeAttached,
    Observed,
)
from controller.core.instructions import Instruction, StartRanks
from controller.core.machine import Machine
from controller.core.rules.policy import Policy
from controller.core.specs import NodeSpec, TaskSpec
from controller.core.state.task import TaskState
from nodeagent.protocol.ids import AgentId, NodeId, TaskId
from nodeagent.protocol.messages import Heartbeat
from nodeagent.protocol.observations import (
    AnyObservation,
    IterationCommitted,
    RankJoined,
    RankStarted,
)
from nodeagent.protocol.rank_status import RankStatus
from profiles.layout import Layout
from profiles.throughput import ThroughputPoint, ThroughputTable

WORKERS = 8


def fleet_tasks(num_tasks: int, workers: int) -> list[TaskSpec]:
    """Return tasks that have whole nodes, with tp 8."""
    sizes = [size for size in range(WORKERS, workers + 1, WORKERS) if workers - size < 64]
    points = tuple(
        ThroughputPoint(workers=size, flops_per_s=1e12 * size, layout=Layout(tp=8, dp=size // 8))
        for size in sizes
    )
    return [
        TaskSpec(
            task=TaskId(f"t{number}"),
            weight=1.0,
            workers=workers,
            min_workers=WORKERS,
            table=ThroughputTable(points=points),
            flops_per_iteration=1e12,
            num_iterations=None,
            num_micro_batches=workers // 4,
        )
        for number in range(num_tasks)
    ]


class Fleet:
    """A machine over many nodes of eight workers, and what its nodes say."""

    def __init__(self, num_nodes: int, num_tasks: int, workers: int) -> None:
        """Make the machine; each task begins with so many workers."""
        nodes = [
            NodeSpec(NodeId(f"n{number}"), f"10.0.0.1:{number}", WORKERS)
            for number in range(1, num_nodes + 1)
        ]
        tasks = fleet_tasks(num_tasks, workers)
        self.machine = Machine(nodes, tasks, Policy(is_auto_heal=True))
        self.now, self.num_events = 0.0, 0
        self._seqs = dict.fromkeys(self.machine.state.nodes, 0)
        self.handle(ControllerStarted("run", 1, 0.0))

    def handle(self, body: EventBody) -> list[Instruction]:
        """Have the machine handle an event now."""
        self.num_events += 1
        return self.machine.handle(Event(self.num_events, self.now, body))

    def observe(self, node: NodeId, observation: AnyObservation) -> list[Instruction]:
        """Have a node report an observation."""
        return self.handle(self.report(node, observation))

    def report(self, node: NodeId, observation: AnyObservation) -> Observed:
        """Return the report of an observation."""
        self._seqs[node] += 1
        return Observed(node, self._seqs[node], self.now, observation)

    def attach(self) -> list[StartRanks]:
        """Attach all nodes; return the starts."""
        found = [
            self.handle(NodeAttached(name, AgentId(f"{name}-1"), 1, ()))
            for name in self.machine.state.nodes
        ]
        return [each for some in found for each in some if isinstance(each, StartRanks)]

    def form(self, start: StartRanks) -> Iterator[Observed]:
        """Yield what the ranks of a start report until they train."""
        name, generation, now = start.task, start.generation, self.now
        for number, worker in enumerate(start.placement):
            yield self.report(
                worker.node,
                RankStarted(
                    task=name, generation=generation, global_rank=number,
                    pid=1000 * (number + 1) + worker.slot, warm=True, start_s=0.1,
                ),
            )  # fmt: skip
        for number, worker in enumerate(start.placement):
            yield self.report(
                worker.node,
                RankJoined(
                    task=name, generation=generation, global_rank=number, iteration=0,
                    source="seed", form_s=0.04, state_s=0.01,
                ),
            )  # fmt: skip
        assert self.now == now

    def commit(self, task: TaskState, iteration: int) -> Observed:
        """Return the report of an iteration by the task's first rank."""
        return self.report(
            task.ranks[0].worker.node,
            IterationCommitted(
                task=task.spec.task, generation=task.generation, global_rank=0,
                iteration=iteration, loss=5.0, duration_s=1.0, num_tokens=768, grad_norm=1.0,
            ),
        )  # fmt: skip

    def train(self, num_iterations: int) -> None:
        """Start all tasks, and let each commit some iterations, one a second."""
        for start in self.attach():
            for report in self.form(start):
                self.handle(report)
        for iteration in range(1, num_iterations + 1):
            self.now += 1.0
            for task in self.machine.state.tasks.values():
                self.handle(self.commit(task, iteration))

    def beat(self, node: NodeId) -> Heartbeat:
        """Return a heartbeat of a node, with all that runs there."""
        ranks = [
            RankStatus(
                task=name, generation=task.generation, global_rank=number,
                worker=task.ranks[number].worker.slot, pid=task.ranks[number].pid or 0,
                iteration=task.newest_iteration, duration_s=1.0, busy_s=0.2, busy_spread_s=0.01,
                rss_bytes=10**9,
            )
            for name, task in self.machine.state.tasks.items()
            for number in task.numbers_on.get(node, ())
        ]  # fmt: skip
        return Heartbeat(wall_s=self.now, rss_bytes=3 * 10**7, is_template_ready=True, ranks=ranks)
