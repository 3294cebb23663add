"""What the core wants done: imperative, immutable, idempotent.

Each instruction carries the number of the event that caused it. What becomes of it comes back as
an event; carrying one out never raises.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from controller.core.rules.placement import Placement, Worker
from controller.core.timers import Timer
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.orders import HaltOrder, InspectOrder, StopOrder
from nodeagent.protocol.regroup import RankRef, Resume
from profiles.layout import Layout

Level = Literal["trace", "info", "good", "warning", "error", "drill"]
"""Weight of an announcement. ``trace`` goes to the event log alone, not to the console."""

Fact = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class ParkedSpare:
    """A parked process without a part in the next generation, which waits to be a rank again.

    Attributes:
        worker: Where it is.
        continues: What it was.
        stands_for: A rank of the generation that has the same part of the model.
    """

    worker: Worker
    continues: RankRef
    stands_for: int


@dataclass(frozen=True, slots=True)
class StartRanks:
    """Start the ranks ``global_ranks`` of a generation; ``placement`` is that of all its ranks.

    ``continues`` names the parked process of each rank that has one. Every other rank gets a new
    process. All other processes of the task on these nodes are ended, except the ``parked_spares``,
    which are numbered from the world size on. All ranks take up training as ``resume`` says.

    With ``measures`` the ranks train like that task, from fresh weights and at full speed, and save
    nothing. ``task`` is then a name of the measurement. ``program`` is that of the task's spec.
    """

    cause: int
    task: TaskId
    generation: Generation
    layout: Layout
    placement: Placement
    global_ranks: tuple[int, ...]
    continues: Mapping[int, RankRef] = field(default_factory=dict)
    resume: Resume = field(default_factory=Resume)
    parked_spares: Mapping[int, ParkedSpare] = field(default_factory=dict)
    measures: TaskId | None = None
    program: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ConnectNode:
    """Keep a node in contact from now on; ``access`` says how to log in."""

    cause: int
    node: NodeId
    access: str


@dataclass(frozen=True, slots=True)
class DisconnectNode:
    """End the contact with a node that has left the cluster. Its agent is not ended."""

    cause: int
    node: NodeId


@dataclass(frozen=True, slots=True)
class HaltRanks:
    """Have ranks on these nodes park."""

    cause: int
    nodes: tuple[NodeId, ...]
    order: HaltOrder


@dataclass(frozen=True, slots=True)
class StopRanks:
    """Have ranks on these nodes ended."""

    cause: int
    nodes: tuple[NodeId, ...]
    order: StopOrder


@dataclass(frozen=True, slots=True)
class PrepareSpares:
    """Start processes that build their models while the task's ``generation`` trains on.

    Attributes:
        cause: Number of the event.
        task: The task.
        generation: The generation that trains.
        target: Layout that they are to be ranks of.
        spares: By their number, beyond those of the world: the worker, and the rank it is to be.
        program: The program of the task's spec.
    """

    cause: int
    task: TaskId
    generation: Generation
    target: Layout
    spares: Mapping[int, tuple[Worker, int]]
    program: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class InspectRanks:
    """Have the agents of these nodes report where ranks stand. A rank may end before that."""

    cause: int
    nodes: tuple[NodeId, ...]
    order: InspectOrder


@dataclass(frozen=True, slots=True)
class ProbeNode:
    """Have each of ``by`` try the SSH port of ``node``."""

    cause: int
    node: NodeId
    by: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Post ``TimerFired(timer)`` after ``after_s`` seconds."""

    cause: int
    timer: Timer
    after_s: float


@dataclass(frozen=True, slots=True)
class DropRendezvous:
    """Refuse rendezvous calls of ``generation`` and older: nobody may join it any more."""

    cause: int
    task: TaskId
    generation: Generation


@dataclass(frozen=True, slots=True)
class RecordIterations:
    """Keep how long iterations of a task take in a layout of its table.

    Attributes:
        cause: Number of the event.
        task: The task.
        layout: Where they ran.
        iteration_s: Seconds of one, or the typical one of several.
        num_iterations: How many that stands for.
    """

    cause: int
    task: TaskId
    layout: Layout
    iteration_s: float
    num_iterations: int


@dataclass(frozen=True, slots=True)
class Announce:
    """Show operators what happened, and write it to the event log.

    Attributes:
        cause: Number of the event.
        level: Weight.
        kind: One word for programs, for instance ``iteration`` or ``incident``.
        source: Node, task, plan or incident that it is about.
        text: A sentence for people.
        facts: The same for programs.
    """

    cause: int
    level: Level
    kind: str
    source: str
    text: str
    facts: tuple[tuple[str, Fact], ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """Answer an operator's request."""

    cause: int
    request_id: str
    is_ok: bool
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class CarryOutDrill:
    """Break the named thing; where no node is named, the controller.

    Nothing is left to be chosen.
    """

    cause: int
    drill: str
    node: NodeId | None = None
    task: TaskId | None = None
    generation: Generation | None = None
    global_rank: int | None = None


Instruction = (
    StartRanks
    | ConnectNode
    | DisconnectNode
    | PrepareSpares
    | HaltRanks
    | StopRanks
    | InspectRanks
    | ProbeNode
    | SetTimer
    | DropRendezvous
    | RecordIterations
    | Announce
    | AnswerRequest
    | CarryOutDrill
)
