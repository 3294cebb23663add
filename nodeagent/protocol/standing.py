"""The standing of a rank: where its training thread is at this moment, from inside or outside.

Hangs are explained by standings. A rank that waits for others is inside a collective. The culprit
is not, or gives no answer.
"""

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from nodeagent.protocol.regroup import Phase
from nodeagent.protocol.reported_numbers import Count, Elapsed

Where = Literal[
    "collective",  # it waits for other ranks
    "computing",  # it is anywhere else in its program
    "stopped",  # by a signal, or a debugger
    "blocked",  # inside the kernel, and can't be interrupted
    "no answer",  # it lives, and neither it nor anybody else says where it is
]

MAX_STACK_CHARS: Final = 8_000
MAX_COLLECTIVES: Final = 16


class Collective(BaseModel):
    """A collective that a rank has called, as torch's flight recorder shows it.

    Attributes:
        group: Name of its process group, the same on all members.
        description: What the group is for, where the program has said so.
        sequence: Its number in the group; all members count alike.
        name: For instance ``nccl:all_reduce``.
        state: ``scheduled``, ``started`` or ``completed``; gloo's stay at ``scheduled``.
        is_over: Whether it has ended.
    """

    model_config = ConfigDict(frozen=True)

    group: str
    description: str = ""
    sequence: Count
    name: str
    state: str
    is_over: bool


class Standing(BaseModel):
    """Where a rank stands. Looking changes nothing: nobody is woken by it.

    Attributes:
        where: In a word.
        place: Innermost frame of the training thread, for instance ``step (rank/iteration.py:12)``.
        collective: The collective that it waits in, and its caller; empty unless ``where`` is
            ``collective``.
        iteration: The iteration that runs; None where only the stack is known.
        phase: Phase of it.
        num_micro_batches: Micro-batches of it that are done.
        idle_s: Seconds since it last began a micro-batch, an iteration or a checkpoint.
        waited_s: Seconds of ``idle_s`` in which its threads were ready and had no core, summed over
            the threads; 0 if unknown. The agent fills it in.
        stack: Stacks of its threads, the training thread first, each innermost frame first; at most
            ``MAX_STACK_CHARS``.
        source: Where this is from: the rank itself, its fault handler, ``py-spy``, or the kernel.
        collectives: The newest of each process group, newest first, at most ``MAX_COLLECTIVES``;
            empty where the rank does not answer itself.
    """

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    where: Where
    place: str = ""
    collective: str = ""
    iteration: Count | None = None
    phase: Phase | None = None
    num_micro_batches: Count = 0
    idle_s: Elapsed | None = None
    waited_s: Elapsed = 0.0
    stack: str = ""
    source: Literal["rank", "faulthandler", "py-spy", "kernel"]
    collectives: tuple[Collective, ...] = ()
