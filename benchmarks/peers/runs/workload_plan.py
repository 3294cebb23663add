"""What is trained and when it breaks: one file that every process of a run reads."""

import dataclasses
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

FaultKind = Literal["kill", "exception", "hang", "lost-node", "killed-node"]

NODE_KINDS: Final[frozenset[FaultKind]] = frozenset({"lost-node", "killed-node"})
"""Faults of a whole node, where the others are faults of one rank."""

SILENT_KINDS: Final[frozenset[FaultKind]] = frozenset({"hang", "lost-node"})
"""Faults that no exit code, exception or closed connection tells of."""

NUM_NODES: Final = 2
"""Nodes of a run in which one is lost. In all other runs the alternatives have one."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The training, the same for all alternatives.

    Attributes:
        num_ranks: Data-parallel ranks; there is no other parallelism.
        num_micro_batches: Micro-batches of the global batch; a multiple of ``num_ranks``.
        checkpoint_interval: Iterations between two checkpoints on disk.
    """

    num_ranks: int = 4
    num_iterations: int = 60
    num_micro_batches: int = 12
    micro_batch_size: int = 1
    checkpoint_interval: int = 10
    learning_rate: float = 1e-3
    seed: int = 1
    num_layers: int = 4
    hidden_size: int = 128
    num_attention_heads: int = 4
    seq_length: int = 256
    vocab_size: int = 256

    @property
    def num_ranks_per_node(self) -> int:
        """Ranks of each of the nodes, where there are several; the last one may have fewer."""
        return -(-self.num_ranks // NUM_NODES)


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """A rank, or its node, breaks in a micro-batch: between forward and backward pass.

    Attributes:
        iteration: The iteration that is not finished.
        global_rank: The rank.
        num_done: Micro-batches of the iteration that the rank has finished before.
        kind: SIGKILL, an exception, a hang (SIGSTOP); or what takes all processes of the rank's
            node at once: SIGSTOP, which closes no connection (``lost-node``), or SIGKILL, which
            closes all of them (``killed-node``).
    """

    iteration: int
    global_rank: int
    num_done: int
    kind: FaultKind


@dataclass(frozen=True, slots=True)
class RunPlan:
    """One run. ``settings`` are those of the alternative, by name."""

    workload: Workload
    faults: tuple[PlannedFault, ...]
    directory: str
    settings: dict[str, float] = field(default_factory=dict)

    @property
    def loses_a_node(self) -> bool:
        """Whether a fault takes a whole node, so that there must be several."""
        return any(fault.kind in NODE_KINDS for fault in self.faults)

    @property
    def is_silent(self) -> bool:
        """Whether a fault must be found by a timeout."""
        return any(fault.kind in SILENT_KINDS for fault in self.faults)

    @property
    def journal(self) -> Path:
        """Where all ranks write what they did."""
        return Path(self.directory) / "journal.jsonl"

    @property
    def checkpoint(self) -> Path:
        """The newest checkpoint."""
        return Path(self.directory) / "checkpoint.pt"

    def write(self) -> Path:
        """Write the plan into its directory and return the file."""
        path = Path(self.directory) / "plan.json"
        path.write_text(json.dumps(dataclasses.asdict(self)))
        return path


def read_plan(path: Path) -> RunPlan:
    """Return the plan that ``Plan.write`` wrote."""
    data: dict[str, Any] = json.loads(path.read_text())
    return RunPlan(
        workload=Workload(**data["workload"]),
        faults=tuple(PlannedFault(**fault) for fault in data["faults"]),
        directory=data["directory"],
        settings=data["settings"],
    )


def now_s() -> float:
    """Return the machine's monotonic clock, which all its processes share."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)
