"""Decides about the ranks of a node: which to kill, start, continue and adopt. Pure.

Pure functions from facts (the ranks that live, the marks of the outbox, what ``/proc`` says) to
decisions. They send no signal, read no file and know no clock; ``processes`` and ``commands`` carry
the decisions out.

The rules:

- A task's *fence* is the newest generation that was ordered to start here. An older one is refused.
- When a generation starts, all other processes of the task are killed: older generations, except
  the processes that become its ranks or its spares, and all ranks of an earlier run of the
  controller.
- New ranks start after these have ended, since they need the workers. A process that becomes
  another rank starts at once: it has its memory already, and the ended ranks are not in its
  generation.
- A rank is started, or taken over by a process, once per generation, also if the command arrives
  again after the agent was replaced.
- An exit that a newer generation or a stop has ordered is *expected*.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from nodeagent.outbox.outbox_records import MarkScope
from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.rank_launch import RankLaunch


class RankKey(NamedTuple):
    """Name of one rank of one generation: there is at most one process of it in a run.

    A process that continues in another generation gets another name. Its files and marks keep its
    first name.
    """

    task: TaskId
    generation: Generation
    global_rank: int

    @property
    def stem(self) -> str:
        """The name in one word, as in the names of files and marks."""
        return f"{self.task}.{self.generation}.{self.global_rank}"

    def process(self, pid: int) -> str:
        """Return the name in marks of the process whose first rank this is."""
        return f"{self.stem}.{pid}"


def key_of(launch: RankLaunch) -> RankKey:
    """Return the name of the rank that ``launch`` starts."""
    return RankKey(launch.task, launch.generation, launch.global_rank)


def continued_key(launch: RankLaunch) -> RankKey | None:
    """Return the present name of the process that ``launch`` continues; None if it starts one."""
    if launch.continues is None:
        return None
    return RankKey(launch.task, launch.continues.generation, launch.continues.global_rank)


class Marks(Protocol):
    """The marks of the outbox, to be read."""

    def mark(self, scope: MarkScope, name: str) -> int:
        """Return the value of a mark; 0 if it was never set."""


class Living(Protocol):
    """A living rank, as far as decisions need it."""

    @property
    def key(self) -> RankKey:
        """Its present name."""

    @property
    def is_foreign(self) -> bool:
        """Whether it was started for an earlier run of the controller."""


@dataclass(frozen=True, slots=True)
class StartPlan:
    """What starting some ranks takes.

    Attributes:
        to_kill: Ranks to end.
        to_continue: Ranks that a living process becomes, at once.
        to_launch: Ranks to start, after the exits of ``to_kill``.
    """

    to_kill: tuple[RankKey, ...]
    to_continue: tuple[RankLaunch, ...]
    to_launch: tuple[RankLaunch, ...]


def refusal(launches: Iterable[RankLaunch], marks: Marks) -> str | None:
    """Return why these ranks must not be started, in words for an operator, or None."""
    for launch in launches:
        fence = marks.mark(MarkScope.FENCE, launch.task)
        if launch.generation < fence:
            return (
                f"generation {launch.generation} of {launch.task} is older than {fence},"
                " which was started before"
            )
        stop = marks.mark(MarkScope.STOP, launch.task)
        if launch.generation <= stop:
            return f"generation {launch.generation} of {launch.task} was stopped"
    return None


def plan_start(
    launches: Sequence[RankLaunch], living: Collection[Living], marks: Marks
) -> StartPlan:
    """Return what is to be done. Empty where a repeated command finds all done."""
    missing = [
        launch for launch in launches if not marks.mark(MarkScope.START, key_of(launch).stem)
    ]
    generation_by_task = {launch.task: launch.generation for launch in launches}
    continued = {continued_key(launch) for launch in missing}

    def is_wanted(rank: Living) -> bool:
        is_present = rank.key.generation == generation_by_task[rank.key.task]
        return not rank.is_foreign and (is_present or rank.key in continued)

    to_kill = tuple(
        rank.key for rank in living if rank.key.task in generation_by_task and not is_wanted(rank)
    )
    return StartPlan(
        to_kill,
        to_continue=tuple(launch for launch in missing if launch.continues is not None),
        to_launch=tuple(launch for launch in missing if launch.continues is None),
    )


def plan_halt(
    task: TaskId, generation: Generation, living: Collection[Living]
) -> tuple[RankKey, ...]:
    """Return the ranks that a halt of ``generation`` is about."""
    return tuple(
        rank.key
        for rank in living
        if (rank.key.task, rank.key.generation) == (task, generation) and not rank.is_foreign
    )


def halt_refusal(task: TaskId, generation: Generation, marks: Marks) -> str | None:
    """Return why this generation needs no halt any more, in words for an operator, or None."""
    fence = marks.mark(MarkScope.FENCE, task)
    if generation < fence:
        return f"generation {generation} of {task} gave way to {fence} before"
    return None


def plan_stop(
    task: TaskId, generation: Generation, living: Collection[Living]
) -> tuple[RankKey, ...]:
    """Return the ranks of ``task`` that a stop of ``generation`` and older is about."""
    return tuple(
        rank.key
        for rank in living
        if rank.key.task == task and (rank.is_foreign or rank.key.generation <= generation)
    )


def is_exit_expected(key: RankKey, *, is_foreign: bool, marks: Marks) -> bool:
    """Return whether the agent was ordered to end this rank."""
    return (
        is_foreign
        or key.generation <= marks.mark(MarkScope.STOP, key.task)
        or key.generation < marks.mark(MarkScope.FENCE, key.task)
    )


class Adoption(StrEnum):
    """What an agent does with a rank's record that it finds on disk."""

    WATCH = "watch"
    """The process lives: watch it."""
    REPORT_EXIT = "report_exit"
    """It is gone and nobody said so: report its exit."""
    CLEAN_UP = "clean_up"
    """Its exit is stored; the former agent died before it had removed the files."""


def judge_record(*, is_running: bool, is_exit_stored: bool) -> Adoption:
    """Return what to do with a rank found on disk. A stored exit wins: it was certain."""
    if is_exit_stored:
        return Adoption.CLEAN_UP
    return Adoption.WATCH if is_running else Adoption.REPORT_EXIT
