"""Exact points in a rank's life at which a test can break it, and what happens there.

A test writes the faults of a task before it starts the ranks; the ranks of ``faulty_template`` read
them and count how often they pass each point. They also write down what went into each bucket, so
that a test can check that every micro-batch was counted once.
"""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

Point = Literal[
    "forward",  # before the forward pass of a micro-batch
    "backward",  # between its forward pass and its backward pass
    "counted",  # a micro-batch was counted
    "started",  # the all-reduce of a bucket has begun
    "reduced",  # a bucket was marked as reduced
    "restored",  # the reduced gradients are where Megatron looks for them
    "finalised",  # one of the sums inside the replica is done
    "voting",  # before the all-reduce of the vote
    "in vote",  # while it travels
    "voted",  # its result has come
    "stepping",  # before the gradients are scaled
    "scaled",  # between that and the optimizer
    "stepped",  # after the optimizer, before the iteration is marked as committed
    "committed",  # the iteration is committed here, and nobody was told
    "gathered",  # a sharded optimizer's parameters are gathered after the step
    "sending",  # before an in-memory checkpoint goes to its holder (in the thread for it)
    "saving",  # before the copy for a checkpoint is taken
    "copied",  # the copy is taken, and is being written
    "written",  # this rank's part of the checkpoint is written (in the checkpoint's thread)
    "publishing",  # the checkpoint is complete but for its name (there, on rank 0 only)
    "forming",  # before a process group is made
    "introduced",  # a key of the rendezvous is set: for instance where the rank can be reached
    "formed",  # after the last one
    "transfer",  # before a piece of the state travels; of sharded state, before a shard is taken in
    "transferred",  # after the last one
    "sharing",  # before a reduced bucket is copied
    "resumed",  # the generation has taken up training, and computes next
]

Action = Literal["kill", "stop", "raise", "sleep", "receive", "linger", "spin"]


class Fault(BaseModel):
    """One fault.

    Attributes:
        generation: Generation in which the rank breaks.
        global_rank: Which rank of it.
        point: Where.
        iteration: In which iteration; None counts over all iterations.
        count: At which passage of the point.
        action: SIGKILL, SIGSTOP, an exception, a sleep without end, waiting in a collective for a
            message that nobody sends, or (no fault) waiting until the rank is halted or to pause;
            spin waits for a kernel on the GPU that does not end.
    """

    model_config = ConfigDict(frozen=True)

    generation: int = 1
    global_rank: int
    point: Point
    iteration: int | None = None
    count: int = 1
    action: Action = "kill"


class FaultPlan(BaseModel):
    """All faults of a task."""

    faults: tuple[Fault, ...] = ()


class Contribution(BaseModel):
    """What one rank gave to the reduction of one bucket."""

    generation: int
    iteration: int
    tp_rank: int
    pp_rank: int
    dp_rank: int
    bucket: str
    micro_batches: tuple[int, ...]


def lingering(iteration: int, *, generation: int = 1) -> Fault:
    """Return the fault that holds rank 0 at an iteration, so no task runs away from a test."""
    return Fault(
        generation=generation, global_rank=0, point="forward", iteration=iteration, action="linger"
    )


def plan_path(state_dir: Path, task: str) -> Path:
    return state_dir / f"{task}.faults.json"


def contributions_path(state_dir: Path, task: str) -> Path:
    return state_dir / f"{task}.contributions.jsonl"
