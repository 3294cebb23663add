"""What the core remembers of a measurement: a task's speed at several sizes, on idle workers.

A measurement is no task. Its ranks train for a few iterations, from fresh weights and without
leaving anything behind, under a name of their own; no plan counts them, and no fault of theirs is
recovered. What is done about it is in ``controller.core.measuring.sizes``.
"""

from dataclasses import dataclass, field
from typing import Final, Literal

from controller.core.rules.evidence import Evidence
from controller.core.rules.placement import Placement, Worker
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.rank_status import RankStatus
from profiles.layout import Layout

SizePhase = Literal["waiting", "running", "measured", "failed", "skipped"]

NUM_WARM_UP: Final = 2
"""First iterations that are not counted: they load libraries and make connections."""


@dataclass(slots=True)
class MeasuredSize:
    """One size of a measurement; ``reason`` says why it was left out, or failed."""

    workers: int
    layout: Layout
    phase: SizePhase = "waiting"
    reason: str = ""
    iteration_s: float | None = None
    """Median of its iterations."""
    flops_per_s: float | None = None

    def begin(self) -> None:
        """It is measured now."""
        self.phase = "running"

    def keep(self, iteration_s: float) -> None:
        """It is measured."""
        self.phase, self.iteration_s = "measured", iteration_s

    def rate(self, work: float) -> None:
        """An iteration is so much work, in FLOPs; a size that is not timed has no rate."""
        if self.iteration_s is not None:
            self.flops_per_s = work / self.iteration_s

    def leave_out(self, phase: Literal["failed", "skipped"], reason: str) -> None:
        """It is not measured."""
        self.phase, self.reason = phase, reason

    def explain(self, reason: str) -> None:
        """A better reason why it failed is known now."""
        self.reason = reason


@dataclass(slots=True)
class MeasuredRun:
    """The ranks of the size that is being measured.

    Attributes:
        task: Name that they run under: no task has it, and no file.
        generation: Increases from one run to the next, whatever they measure.
        size: What they measure.
        placement: Their workers.
        living: Those that may still have a process, by global rank.
        reporter: The rank whose iterations count; None before the first.
        committed_at: When its newest iteration was committed, by the clock of its node.
        num_commits: Its iterations.
        durations_s: How long those took that count.
        evidence: Why it failed, if it has.
        is_ending: Its ranks were ordered to end.
        stopped_nodes: Nodes that have carried that out; what they don't list is gone.
    """

    task: TaskId
    generation: Generation
    size: MeasuredSize
    placement: Placement
    living: dict[int, Worker]
    reporter: int | None = None
    committed_at: float | None = None
    num_commits: int = 0
    durations_s: list[float] = field(default_factory=list)
    evidence: Evidence | None = None
    is_ending: bool = False
    stopped_nodes: set[NodeId] = field(default_factory=set)

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        """Nodes of the living ranks, sorted."""
        return tuple(sorted({worker.node for worker in self.living.values()}))

    def holds(self, node: NodeId, status: RankStatus) -> bool:
        """Return whether what lives on ``node`` is one of its ranks."""
        worker = self.living.get(status.global_rank)
        is_named = (status.task, status.generation) == (self.task, self.generation)
        return is_named and worker is not None and worker.node == node

    def measure(self, size: MeasuredSize) -> None:
        """This size is what its ranks measure."""
        self.size = size

    def lose(self, number: int) -> None:
        """A rank has no process any more."""
        self.living.pop(number, None)

    def note_stopped(self, node: NodeId) -> None:
        """A node has ended its ranks."""
        self.stopped_nodes.add(node)

    def fail(self, evidence: Evidence | None) -> None:
        """Keep why it fails.

        A cause counts more than its echoes, and nothing once the size is measured or skipped.
        """
        known = self.evidence
        is_better = known is None or bool(
            evidence and evidence.is_conclusive and not known.is_conclusive
        )
        if is_better and self.size.phase in {"running", "failed"}:
            self.evidence = evidence

    def is_reported_by(self, number: int) -> bool:
        """Return whether this rank's iterations count: the first rank to report one is chosen."""
        self.reporter = number if self.reporter is None else self.reporter
        return self.reporter == number

    def time_commit(self, observed_at: float) -> float | None:
        """An iteration is committed; return since when, or None for the first."""
        since, self.committed_at = self.committed_at, observed_at
        self.num_commits += 1
        return since

    def add_duration(self, duration_s: float) -> None:
        """An iteration after the first ``NUM_WARM_UP`` took so long."""
        if self.num_commits > NUM_WARM_UP:
            self.durations_s.append(duration_s)

    def begin_ending(self) -> None:
        """Its ranks are ordered to end."""
        self.is_ending = True


@dataclass(slots=True)
class Measurement:
    """The one that runs, or the newest.

    Attributes:
        name: Distinct in the run of the cluster.
        task: Whose speed is measured.
        num_iterations: How many count at each size.
        sizes: All that were asked for, ascending.
        run: The present run; None between two sizes and after the last.
        ended: Why no further size is begun; empty while it continues.
    """

    name: str
    task: TaskId
    num_iterations: int
    sizes: list[MeasuredSize]
    run: MeasuredRun | None = None
    ended: str = ""

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left to come, and no rank lives."""
        return bool(self.ended) and self.run is None

    def end(self, reason: str) -> None:
        """Begin no further size; the first reason counts. Nothing ends if it is empty."""
        self.ended = self.ended or reason

    def rejoin_run(self) -> None:
        """The measurement was read from a file: its run measures one of its sizes."""
        if self.run is not None:
            size = next(each for each in self.sizes if each.layout == self.run.size.layout)
            self.run.measure(size)

    def begin_run(self, run: MeasuredRun | None) -> None:
        """These ranks measure now; None: the run is over."""
        self.run = run


@dataclass(slots=True)
class MeasurementLog:
    """Measurements of the run."""

    current: Measurement | None = None
    """The one that runs, or the newest."""
    num_named: int = 0
    num_runs: int = 0

    def begin(self, task: TaskId, num_iterations: int, sizes: list[MeasuredSize]) -> Measurement:
        """A measurement begins; return it."""
        self.num_named += 1
        self.current = Measurement(f"M-{self.num_named}", task, num_iterations, sizes)
        return self.current

    def next_generation(self) -> Generation:
        """Return the generation of the next run."""
        self.num_runs += 1
        return Generation(self.num_runs)
