"""Whom to kill, start and adopt."""

from dataclasses import dataclass

import pytest

from nodeagent.outbox.outbox_records import MarkScope
from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.protocol.regroup import RankRef
from nodeagent.ranks.supervisor import (
    Adoption,
    RankKey,
    halt_refusal,
    is_exit_expected,
    judge_record,
    key_of,
    plan_halt,
    plan_start,
    plan_stop,
    refusal,
)
from tests.fakes.fake_rank import Script, launch

A, B = TaskId("gpt-a"), TaskId("gpt-b")


def key(task: TaskId, generation: int, global_rank: int = 0) -> RankKey:
    return RankKey(task, Generation(generation), global_rank)


@dataclass(frozen=True)
class Rank:
    key: RankKey
    is_foreign: bool = False


class Marks(dict[tuple[MarkScope, str], int]):
    def mark(self, scope: MarkScope, name: str) -> int:
        return self.get((scope, name), 0)


def start(
    task: str, generation: int, global_rank: int = 0, was: RankKey | None = None
) -> RankLaunch:
    ref = RankRef(generation=was.generation, global_rank=was.global_rank) if was else None
    return launch(Script(), task, generation, global_rank, continues=ref)


def test_older_generation_than_the_fence_is_refused_in_words() -> None:
    marks = Marks({(MarkScope.FENCE, "gpt-a"): 3})
    reason = refusal([start("gpt-a", 2)], marks)
    assert reason == "generation 2 of gpt-a is older than 3, which was started before"
    assert refusal([start("gpt-a", 3)], marks) is None
    assert refusal([start("gpt-b", 1)], marks) is None


def test_stopped_generation_is_refused() -> None:
    marks = Marks({(MarkScope.STOP, "gpt-a"): 3})
    assert refusal([start("gpt-a", 3)], marks) == "generation 3 of gpt-a was stopped"
    assert refusal([start("gpt-a", 4)], marks) is None


def test_start_kills_every_other_generation_of_the_task_only() -> None:
    living = [Rank(key(A, 1)), Rank(key(A, 2, 1)), Rank(key(B, 1))]
    plan = plan_start([start("gpt-a", 2)], living, Marks())
    assert plan.to_kill == (key(A, 1),)
    assert [key_of(one) for one in plan.to_launch] == [key(A, 2)]


def test_start_kills_ranks_of_an_earlier_run_whatever_their_generation() -> None:
    living = [Rank(key(A, 9), is_foreign=True), Rank(key(A, 1), is_foreign=True)]
    plan = plan_start([start("gpt-a", 1)], living, Marks())
    assert plan.to_kill == (key(A, 9), key(A, 1))
    assert len(plan.to_launch) == 1


def test_rank_that_was_started_is_not_started_again() -> None:
    marks = Marks({(MarkScope.START, "gpt-a.2.0"): 1})
    plan = plan_start([start("gpt-a", 2, 0), start("gpt-a", 2, 1)], [Rank(key(A, 2, 0))], marks)
    assert plan.to_kill == ()
    assert [one.global_rank for one in plan.to_launch] == [1]


def test_continued_process_is_spared_and_becomes_the_rank() -> None:
    living = [Rank(key(A, 1, 0)), Rank(key(A, 1, 1))]
    plan = plan_start([start(A, 2, 5, was=key(A, 1, 1)), start(A, 2, 0)], living, Marks())
    assert plan.to_kill == (key(A, 1, 0),)
    assert [key_of(one) for one in plan.to_continue] == [key(A, 2, 5)]
    assert [key_of(one) for one in plan.to_launch] == [key(A, 2, 0)]


def test_process_is_left_out_where_its_new_rank_has_another() -> None:
    """A launch that failed is over: what it was to continue has no part in the generation."""
    marks = Marks({(MarkScope.START, "gpt-a.2.0"): 1})
    plan = plan_start([start(A, 2, 0, was=key(A, 1, 0))], [Rank(key(A, 1, 0))], marks)
    assert (plan.to_kill, plan.to_continue, plan.to_launch) == ((key(A, 1, 0),), (), ())


def test_continued_rank_of_an_earlier_run_or_another_task_is_not_spared() -> None:
    living = [Rank(key(A, 1, 0), is_foreign=True), Rank(key(B, 1, 0))]
    launches = [start(A, 2, 0, was=key(A, 1, 0)), start(B, 2, 0)]
    assert plan_start(launches, living, Marks()).to_kill == (key(A, 1, 0), key(B, 1, 0))


def test_halt_is_about_its_generation_and_run_only() -> None:
    living = [
        Rank(key(A, 1)),
        Rank(key(A, 2)),
        Rank(key(A, 2, 1), is_foreign=True),
        Rank(key(B, 2)),
    ]
    assert plan_halt(A, Generation(2), living) == (key(A, 2),)


def test_halt_of_a_generation_that_gave_way_is_refused_in_words() -> None:
    marks = Marks({(MarkScope.FENCE, "gpt-a"): 3})
    assert halt_refusal(A, Generation(2), marks) == "generation 2 of gpt-a gave way to 3 before"
    assert halt_refusal(A, Generation(3), marks) is None


def test_stop_is_about_the_generation_and_older() -> None:
    living = [Rank(key(A, 1)), Rank(key(A, 2)), Rank(key(A, 3)), Rank(key(B, 1))]
    assert plan_stop(A, Generation(2), living) == (key(A, 1), key(A, 2))


@pytest.mark.parametrize(
    ("marks", "is_foreign", "is_expected"),
    [
        (Marks(), False, False),
        (Marks({(MarkScope.STOP, "gpt-a"): 1}), False, False),
        (Marks({(MarkScope.STOP, "gpt-a"): 2}), False, True),
        (Marks({(MarkScope.FENCE, "gpt-a"): 2}), False, False),
        (Marks({(MarkScope.FENCE, "gpt-a"): 3}), False, True),
        (Marks(), True, True),
    ],
)
def test_exit_is_expected_only_where_it_was_asked_for(
    marks: Marks, *, is_foreign: bool, is_expected: bool
) -> None:
    assert is_exit_expected(key(A, 2), is_foreign=is_foreign, marks=marks) == is_expected


@pytest.mark.parametrize(
    ("is_running", "is_exit_stored", "verdict"),
    [
        (True, False, Adoption.WATCH),
        (False, False, Adoption.REPORT_EXIT),
        (False, True, Adoption.CLEAN_UP),
        (True, True, Adoption.CLEAN_UP),
    ],
)
def test_record_on_disk_is_judged(
    *, is_running: bool, is_exit_stored: bool, verdict: Adoption
) -> None:
    assert judge_record(is_running=is_running, is_exit_stored=is_exit_stored) is verdict
