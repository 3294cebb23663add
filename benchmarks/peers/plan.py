"""What is trained and when it breaks: one file that every process of a run reads."""

import dataclasses
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

FaultKind = Literal["kill", "exception"]


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


@dataclass(frozen=True, slots=True)
class Fault:
    """A rank breaks in the middle of a micro-batch: after its forward pass, before its backward one.

    Attributes:
        iteration: The iteration that is not finished.
        global_rank: The rank.
        num_done: Micro-batches of the iteration that the rank has finished before.
        kind: SIGKILL, or an exception.
    """

    iteration: int
    global_rank: int
    num_done: int
    kind: FaultKind


@dataclass(frozen=True, slots=True)
class Plan:
    """One run. ``settings`` are those of the alternative, by name."""

    workload: Workload
    faults: tuple[Fault, ...]
    directory: str
    settings: dict[str, float] = field(default_factory=dict)

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


def read_plan(path: Path) -> Plan:
    """Return the plan that ``Plan.write`` wrote."""
    data: dict[str, Any] = json.loads(path.read_text())
    return Plan(
        workload=Workload(**data["workload"]),
        faults=tuple(Fault(**fault) for fault in data["faults"]),
        directory=data["directory"],
        settings=data["settings"],
    )


def now_s() -> float:
    """Return the machine's monotonic clock, which all its processes share."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)
