"""Orders about the ranks of one generation: halt, stop, inspect.

One record for the whole way: the core's instruction holds it, the controller's command carries it
to the agent, and the agent stores a halt and passes it on to its ranks.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from nodeagent.protocol.ids import Generation, TaskId


class _Order(BaseModel):
    model_config = ConfigDict(frozen=True)

    task: TaskId
    generation: Generation


class HaltOrder(_Order):
    """Park the ranks of ``generation``.

    A parked rank reports ``RankHalted``, or ``RankRaised`` if it raised an exception first.

    Attributes:
        broken: Global ranks that no longer take part in collectives of this generation: lost,
            failed, or parked while other ranks of their replica still wait for them.
        at_boundary: All ranks finish the running iteration and park together. If False, peers in a
            broken replica are woken at once; other ranks finish their micro-batch (with pipeline
            stages: their schedule) and are woken from collectives that span replicas.
        completes_copies: With ``at_boundary``: park after the in-memory checkpoints of that
            iteration are complete, if that is possible.
    """

    kind: Literal["halt"] = "halt"
    broken: tuple[int, ...] = ()
    at_boundary: bool = False
    completes_copies: bool = False


class StopOrder(_Order):
    """End the task's ranks of ``generation`` and of older ones.

    Attributes:
        is_graceful: Ranks finish the iteration and save a checkpoint. Otherwise SIGKILL.
        only: If not empty, these global ranks of ``generation`` are killed and no other rank.
    """

    kind: Literal["stop"] = "stop"
    is_graceful: bool
    only: tuple[int, ...] = ()


class InspectOrder(_Order):
    """Find out where the ranks of ``generation`` stand; each is reported as ``RankInspected``.

    A rank that does not answer within ``answer_limit_s`` seconds is looked at from outside. A rank
    of which nothing is known after ``limit_s`` seconds is reported as ``no answer``.
    """

    kind: Literal["inspect"] = "inspect"
    answer_limit_s: float
    limit_s: float


RankOrder = Annotated[HaltOrder | StopOrder | InspectOrder, Field(discriminator="kind")]
