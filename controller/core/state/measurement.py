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
from nodeagent.protocol.messages import RankStatus
from profiles.layout import Layout

SizePhase = Literal["waiting", "running", "measured", "failed", "skipped"]

NUM_WARM_UP: Final = 2
"""First iterations that are not counted: they load libraries and make connections."""


@dataclass(slots=True)
class MeasuredSize:
    """One size of a measurement; ``reason`` says why it was left out, or failed.

    Written by ``measuring.sizes``.
    """

    workers: int
    layout: Layout
    phase: SizePhase = "waiting"
    reason: str = ""
    iteration_s: float | None = None
    """Median of its iterations."""
    flops_per_s: float | None = None


@dataclass(slots=True)
class MeasuredRun:
    """The ranks of the size that is being measured. Written by ``measuring.measured_ranks``.

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


@dataclass(slots=True)
class Measurement:
    """The one that runs, or the newest. Written by ``measuring.sizes``.

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


@dataclass(slots=True)
class MeasurementLog:
    """Measurements of the run. Written by ``measuring.sizes``."""

    current: Measurement | None = None
    """The one that runs, or the newest."""
    num_named: int = 0
    num_runs: int = 0
