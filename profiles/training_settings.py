"""How a task trains: what its profile says of that, and what its ranks are given."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from profiles.training_program import Program


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
    num_micro_batches: int = Field(default=1, gt=0)
    micro_batch_size: int = Field(default=1, gt=0)
    learning_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    checkpoint_interval: int = Field(default=5, gt=0)
    checkpoints_kept: int = Field(default=3, gt=0)
    num_iterations: Annotated[int, Field(gt=0)] | None = None
    iteration_floor_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    shard_optimizer: bool = False
    memory_interval: int = Field(default=1, ge=0)
