"""How a task trains: what its profile says, and what its ranks get, with their training program.

A program is named here and nothing more: it is imported in the task's ranks (``nodeagent.rank``).
"""

import math
import re
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator

from profiles.layout import LARGEST

Option = str | int | float | bool
"""What a program can be handed: text, a number, or true and false."""

_FUNCTION: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def _is_function(name: str) -> str:
    if not _FUNCTION.fullmatch(name):
        raise ValueError("must be package.module:function")
    return name


def _is_plain(value: object) -> Option:
    if not isinstance(value, str | int | float) or not math.isfinite(
        0 if isinstance(value, str) else value
    ):
        raise ValueError("must be text, a finite number, true or false")
    return value


class Program(BaseModel):
    """A training program of one's own.

    Attributes:
        function: ``package.module:function``; the function returns the loop to train with.
        directory: Where the module is found: goes first on ``sys.path`` of every rank, so it must
            be there on every node. Empty where the module is installed.
        options: Handed to the function as they are.
        index_limit_s: How long a rank waits for another process that builds the indices of
            Megatron's data sets.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    function: Annotated[str, AfterValidator(_is_function)]
    directory: str = ""
    options: dict[str, Annotated[Option, PlainValidator(_is_plain)]] = {}
    index_limit_s: float = Field(default=100.0, gt=0, allow_inf_nan=False)


class TrainingSettings(BaseModel):
    """Settings of a training loop of Unicron's own. They depend neither on cluster nor on layout.

    Attributes:
        program: Training program; None for the built-in GPT. It says itself which layouts it can
            do.
        num_micro_batches: Micro-batches of the global batch, over all replicas; a multiple of
            every layout's dp.
        micro_batch_size: Samples of one micro-batch.
        learning_rate: Adam's step size, constant.
        checkpoint_interval: Iterations between two checkpoints.
        checkpoints_kept: Complete checkpoints to keep; older ones are removed.
        num_iterations: The training ends after this many iterations; None means never.
        iteration_floor_s: Shortest time an iteration takes, seconds. It slows toy models down to
            be watched; 0 trains at full speed.
        shard_optimizer: Whether each replica keeps a share of the optimizer state only, as with
            Megatron's distributed optimizer. The losses are the same.
        memory_interval: Iterations between two in-memory checkpoints; 0 makes none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    program: Program | None = None
    num_micro_batches: int = Field(default=1, gt=0, le=LARGEST)
    micro_batch_size: int = Field(default=1, gt=0, le=LARGEST)
    learning_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    checkpoint_interval: int = Field(default=5, gt=0, le=LARGEST)
    checkpoints_kept: int = Field(default=3, gt=0, le=LARGEST)
    num_iterations: Annotated[int, Field(gt=0, le=LARGEST)] | None = None
    iteration_floor_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    shard_optimizer: bool = False
    memory_interval: int = Field(default=1, ge=0, le=LARGEST)
