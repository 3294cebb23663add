"""What one rank is told when it starts: the task's training settings and its own place in them."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.regroup import RankRef, Resume
from profiles.layout import Layout
from profiles.model import ModelShape
from profiles.program import Program


class TrainingSpec(BaseModel):
    """Settings of a task's training that do not depend on its layout.

    The same specification gives the same losses on every layout, within float32 rounding.

    Attributes:
        model: Shape of the model.
        program: Training program; None for the built-in GPT.
        data_path: Text file that is read as bytes; empty means the reference text of CPython.
        checkpoint_dir: Directory of the task's checkpoints, shared by all nodes.
        checkpoint_interval: Iterations between two checkpoints.
        num_micro_batches: Micro-batches of the global batch, over all replicas; at least dp.
        micro_batch_size: Samples of one micro-batch.
        learning_rate: Adam's step size, constant.
        seed: Seed of weights and data order.
        num_iterations: Iterations after which the task is finished; None trains on and on.
        iteration_floor_s: Shortest time an iteration takes, seconds. The demo slows its toy models
            down with it, so that an operator can follow; 0 trains at full speed.
        bucket_size: Elements of a gradient bucket, reduced as one; None takes Megatron's default.
        shard_optimizer: Whether each replica keeps a share of the optimizer state only, as with
            Megatron's distributed optimizer. The losses are the same.
        memory_interval: Iterations between two in-memory checkpoints; 0 makes none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: ModelShape
    program: Program | None = None
    data_path: str = ""
    checkpoint_dir: str
    checkpoint_interval: int = Field(default=5, gt=0)
    num_micro_batches: int = Field(default=12, gt=0)
    micro_batch_size: int = Field(default=1, gt=0)
    learning_rate: float = Field(default=1e-3, gt=0)
    seed: int = 1
    num_iterations: int | None = Field(default=None, gt=0)
    iteration_floor_s: float = Field(default=0.0, ge=0)
    bucket_size: int | None = Field(default=None, gt=0)
    shard_optimizer: bool = False
    memory_interval: int = Field(default=1, ge=0)


class RankLaunch(BaseModel):
    """One rank of a generation: to be started on a node, or to be taken over by a parked process.

    Attributes:
        task: The task.
        generation: Generation that the rank belongs to.
        global_rank: Rank in the task's world.
        worker: Slot of the node that the rank occupies, counted from 0; its GPU where there is one.
        layout: Parallel layout of this generation; its ``num_workers`` is the world size.
        backend: ``gloo`` on CPU, ``nccl`` on GPUs.
        training: Settings of the task's training.
        continues: The parked rank whose process becomes this rank; None starts a process.
        prepares_for: Not a rank of the generation, but a process that is to be this rank of a later
            one with ``layout``. It builds its model while the task trains on, and waits. Its own
            ``global_rank`` is beyond those of the world.
        resume: How the generation takes up training.
        copy_holders: By global rank, the rank in whose memory the in-memory checkpoints of its
            state lie; None for a rank whose state is not copied. Empty where no state is.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: TaskId
    generation: Generation
    global_rank: int = Field(ge=0)
    worker: int = Field(ge=0)
    layout: Layout
    backend: Literal["gloo", "nccl"] = "gloo"
    training: TrainingSpec
    continues: RankRef | None = None
    prepares_for: int | None = None
    resume: Resume = Resume()
    copy_holders: tuple[int | None, ...] = ()
