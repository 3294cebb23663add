"""The records that a task is made of. Each has one writing module, which its docstring names.

Everybody may read them. ``tests/unit/core/test_one_writer.py`` holds the rule.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from controller.core.rules.actions import Cure
from controller.core.rules.failed_start import FailedStart
from controller.core.rules.placement import Placement, Worker
from controller.core.rules.regroup.replicas import ModelPart
from controller.core.rules.transitions import Experience, Transition
from controller.core.specs import TaskSpec
from controller.core.state.phases import TaskPhase
from controller.core.state.rank import RankState
from nodeagent.protocol.ids import Generation, NodeId
from profiles.layout import Layout

Intent = Literal["run", "stop", "hold", "remove"]
"""What becomes of a task once its ranks are gone.

It waits to run, stays stopped, is held, or is finished because it was removed.
"""


@dataclass(frozen=True)
class Target:
    """Where a task is to run next."""

    layout: Layout
    placement: Placement

    @cached_property
    def ranks(self) -> dict[Worker, int]:
        """The rank at each worker."""
        return {worker: rank for rank, worker in enumerate(self.placement)}

    def uses(self, node: NodeId) -> bool:
        """Return whether a rank is to run on ``node``."""
        return any(worker.node == node for worker in self.placement)


@dataclass(slots=True)
class Parking:
    """The parked, or parking, generation of a task. Written by ``lifecycle.parking``."""

    since: float
    at_boundary: bool
    broken: tuple[int, ...]
    """Ranks that are lost or can't continue, as last sent to the nodes."""
    completes_copies: bool = False
    """Whether ranks park with complete in-memory checkpoints: not all state stays at the target."""
    left: set[int] = field(default_factory=set)
    """Parked ranks that other ranks of their replica no longer wait for."""
    answered_nodes: set[NodeId] = field(default_factory=set)
    """Nodes that have sent a message since they last lost a rank: these nodes live."""
    is_settled: bool = False
    """Enough time has passed for a message from each node that lost a rank."""
    parked_at: float | None = None
    """When all ranks had reported their positions."""
    waits_for_capacity: bool = False
    is_impatient: bool = False
    """It has waited for workers of other tasks for long enough."""


@dataclass(slots=True)
class Lifecycle:
    """The phase of a task. Written by ``lifecycle.phase_changes``."""

    phase: TaskPhase = TaskPhase.WAITING
    note: str = ""
    """Why, for operators."""
    parking: Parking | None = None
    """Present exactly while the phase is PARKING."""


@dataclass(slots=True)
class Assignment:
    """Where a task is to run. Written by ``lifecycle.assignments``."""

    target: Target | None = None
    """Where it is to be; None until a plan decides, if the task has lost workers."""
    interim: Target | None = None
    """Where it continues meanwhile, with the ranks that it has left."""
    granted: Layout | None = None
    """What it was last given to run with; less may run where workers were lost since."""


@dataclass(slots=True)
class Stopping:
    """The present stop of a task, or the newest. Written by ``lifecycle.start_stop``."""

    intent: Intent = "run"
    is_graceful: bool = False
    since: float = 0.0
    took_s: float = 0.0
    """How long the newest stop took."""
    stopped_nodes: set[NodeId] = field(default_factory=set)
    """Nodes that have carried out the present stop; ranks that they do not list are gone."""


@dataclass(slots=True)
class Spares:
    """Processes that wait beside the generation, with their models, to be ranks again.

    Some were left out when their replica lost a rank. Others are started for the task's target.
    Written by ``lifecycle.spares``.
    """

    ranks: dict[int, RankState] = field(default_factory=dict)
    """By number, beyond the ranks of the generation; with a position once they wait."""
    parts: dict[int, ModelPart] = field(default_factory=dict)
    """The part of the model that each has."""
    target: Target | None = None
    """What new ones were last started for."""
    is_over: bool = False
    """The time to prepare is over: the task waits for none of them."""
    next_number: int = 0
    """Number of the next process that prepares in this generation."""


@dataclass(slots=True)
class LeavingRanks:
    """Processes that are being ended. Written by ``lifecycle.leaving_ranks``."""

    workers: dict[tuple[Generation, int], Worker] = field(default_factory=dict)
    """By generation and number, the worker that each process still occupies."""


@dataclass(slots=True)
class Transitions:
    """The task's steps from one generation to the next.

    Written by ``lifecycle.transition_times``.
    """

    current: Transition | None = None
    """The present one, or the newest."""
    experience: Experience = field(default_factory=Experience)


@dataclass(slots=True)
class RunProgress:
    """How far a task is, and how fast. Written by ``lifecycle.progress``."""

    iteration: int = 0
    """Newest iteration that is committed."""
    losses: dict[int, float] = field(default_factory=dict)
    state_iteration: int = 0
    """Iteration whose state the ranks have; behind ``iteration`` while iterations are run again."""
    num_rerun_iterations: int = 0
    redivided_after: int = 0
    """Newest iteration at the last change of tp or pp.

    Losses before it come from another division.
    """
    voted_iteration: int | None = None
    """Newest iteration that is known to be committed from its vote alone, without a report."""
    checkpoint_iteration: int = 0
    checkpoint_s: float = 0.0
    """How long the slowest checkpoint took to be complete on disk."""
    num_memory_uses: int = 0
    """Generations since the last new iteration that took state from in-memory checkpoints."""
    committed_at: float | None = None
    advanced_at: float = 0.0
    """When a rank was first known to have finished an iteration that none had."""
    mean_iteration_s: float | None = None
    tokens_per_s: float | None = None
    trained_in: Generation | None = None
    """The newest generation that has trained; None if the program has never trained here."""
    reporter: int | None = None
    """Rank whose iterations count in this generation of a command, where several print them."""
    is_unread_told: bool = False
    """Whether it was announced that a command's lines look like iterations and are not read."""


@dataclass(slots=True)
class FaultHistory:
    """Recoveries of a task since its last new iteration. Written by ``lifecycle.fault_history``."""

    num_recoveries: int = 0
    num_tries: int = 0
    """How often the controller has tried it again after it was handed to the operator."""
    last_cure: Cure | None = None
    """The newest cure of a fault."""
    suspects: list[NodeId | Worker] = field(default_factory=list)
    """Nodes, and workers for single GPUs, that were isolated because a restart there failed."""
    accused: list[NodeId] = field(default_factory=list)
    """Nodes that were isolated because only the task's ranks named broken hardware there."""
    failed_starts: list[FailedStart] = field(default_factory=list)
    """Starts that ended before an iteration, with the program's own words."""


@dataclass(slots=True)
class RegroupLimits:
    """What a regroup of the task can't use. Written by ``recovery.regroup_limits``."""

    unsupported: tuple[str, ...] = ()
    """Settings that do not recover in process; with any of them, no process continues."""
    copies_failed_in: Generation | None = None
    """The generation that stayed at its old place because its copies did not get complete."""


@dataclass(slots=True)
class TaskMembership:
    """Whether the task belongs to the cluster. Written by ``lifecycle.generation_start``."""

    is_removed: bool = False
    """Operators have removed it: its ranks are stopped, or gone."""
    is_rejoining: bool = False
    """It was added again while its ranks are being stopped."""
    next_spec: TaskSpec | None = None
    """What it becomes at its next start with new processes only."""
    program: str = ""
    """The program of its present processes."""
