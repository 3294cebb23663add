"""Who hangs, by where the ranks of a stalled task stand."""

import pytest

from controller.core.rules.hang import Hang, find_absent, find_hang
from nodeagent.detect.stacks import parse_dump, standing_of
from nodeagent.protocol.regroup import Phase
from nodeagent.protocol.standing import Standing, Where
from profiles.layout import Layout

DP4, TP2 = Layout(dp=4), Layout(tp=2, dp=2)


def waits(
    phase: Phase = "reduce", collective: str = "_wait", *, iteration: int = 9, num: int = 3
) -> Standing:
    return Standing(
        where="collective", place="wait (threading.py:1)", collective=collective,
        iteration=iteration, phase=phase, num_micro_batches=num, idle_s=2.0, source="rank",
    )  # fmt: skip


def computes(idle_s: float | None = 2.0) -> Standing:
    return Standing(
        where="computing", place="forward (model.py:7)", iteration=9, phase="accumulate",
        idle_s=idle_s, source="rank",
    )  # fmt: skip


def silent(where: Where) -> Standing:
    return Standing(where=where, source="kernel")


def hang_of(*standings: Standing | None, layout: Layout = DP4) -> Hang | None:
    """Judge ranks that stand so; None was not seen."""
    seen = {number: one for number, one in enumerate(standings) if one is not None}
    return find_hang(seen, layout, patience_s=1.0, is_complete=None not in standings)


def culprits(*standings: Standing | None, layout: Layout = DP4) -> set[int] | None:
    hang = hang_of(*standings, layout=layout)
    return None if hang is None else set(hang.reasons)


DEAD_LOADER = """\
Thread 0x00007f58d6be7b80 (most recent call first):
  File "/usr/lib/python3.11/multiprocessing/connection.py", line 395 in _recv
  File "/usr/lib/python3.11/multiprocessing/connection.py", line 437 in _recv_bytes
  File "/usr/lib/python3.11/multiprocessing/connection.py", line 216 in recv_bytes
  File "/usr/lib/python3.11/multiprocessing/queues.py", line 117 in get
  File "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 1291 in _try_get_data
  File "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 1464 in _get_data
  File "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 1505 in _next_data
  File "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 725 in __next__
  File "/repo/nodeagent/rank/iteration/accumulation.py", line 60 in micro_batch
"""
"""A rank that waits for the rest of a sample whose sender is dead, captured with torch 2.13."""


def test_rank_that_waits_for_a_dead_worker_of_its_data_loader_is_the_culprit() -> None:
    standing = standing_of(parse_dump(DEAD_LOADER), "faulthandler", lambda _file, _line: "")
    assert standing is not None
    hang = hang_of(waits(), waits(), standing.model_copy(update={"idle_s": 2.0}), waits())
    assert hang is not None
    assert hang.reasons == {2: "is in _recv (python3.11/multiprocessing/connection.py:395)"}


@pytest.mark.parametrize(
    ("where", "words"),
    [("stopped", "by a signal"), ("blocked", "in the kernel"), ("no answer", "does not answer")],
)
def test_rank_that_can_not_run_is_the_culprit(where: Where, words: str) -> None:
    hang = hang_of(waits(), waits(), silent(where), waits())
    assert hang is not None
    assert words in hang.reasons[2]
    assert hang.summary == "3 rank(s) wait in _wait"


def test_rank_that_is_elsewhere_is_the_culprit_and_its_frame_is_named() -> None:
    hang = hang_of(waits(), computes(), waits(), waits())
    assert hang is not None
    assert hang.reasons == {1: "is in forward (model.py:7)"}


def test_rank_of_which_only_the_stack_is_known_is_the_culprit_too() -> None:
    assert culprits(waits(), computes(idle_s=None), waits(), waits()) == {1}


def test_rank_that_has_just_begun_something_is_slow_and_named_by_nobody() -> None:
    assert culprits(waits(), computes(idle_s=0.1), waits(), waits()) is None


def test_of_two_that_compute_the_idle_one_hangs() -> None:
    assert culprits(waits(), computes(idle_s=0.1), computes(), waits()) == {2}


def test_stopped_rank_explains_those_that_have_not_come_to_wait_yet() -> None:
    assert culprits(computes(), silent("stopped"), waits(), waits()) == {1}


def test_rank_that_waits_in_an_earlier_phase_is_the_culprit() -> None:
    assert culprits(waits("vote"), waits("vote"), waits("reduce"), waits("vote")) == {2}
    assert culprits(waits(iteration=10), waits(iteration=10), waits(iteration=10), waits()) == {3}


def test_rank_in_another_collective_is_the_culprit() -> None:
    assert culprits(waits(), waits(), waits(), waits(collective="barrier in f")) == {3}


def test_where_half_of_them_are_behind_nobody_is_named() -> None:
    assert culprits(waits("vote"), waits("vote"), waits(), waits()) == set()
    assert culprits(waits(), waits(collective="barrier in f"), layout=Layout(dp=2)) == set()


def test_where_all_wait_in_one_place_it_is_the_collective() -> None:
    hang = hang_of(waits(), waits(), waits(), waits())
    assert hang == Hang({}, "4 rank(s) wait in _wait")


def test_rank_that_has_moved_lately_shows_that_those_who_wait_go_on() -> None:
    fresh = waits().model_copy(update={"idle_s": 0.1})
    assert culprits(waits(), waits(), fresh, waits()) is None
    assert culprits(waits("vote"), waits("vote"), fresh, waits("vote")) is None
    assert culprits(silent("stopped"), fresh, waits(), waits()) == {0}


def test_inside_a_replica_the_rank_with_fewer_micro_batches_is_the_culprit() -> None:
    behind = waits("accumulate", "all_reduce in _reduce", num=2)
    ahead = waits("accumulate", "all_reduce in _reduce", num=3)
    assert culprits(behind, ahead, waits(), waits(), layout=TP2) == {0}
    assert culprits(ahead, ahead, waits(), waits(), layout=TP2) == set()


def test_nobody_is_named_by_where_he_waits_while_somebody_was_not_seen() -> None:
    assert culprits(waits(), None, waits("vote"), waits("vote")) is None
    assert culprits(waits(), None, waits(), silent("stopped")) == {3}
    assert hang_of() == Hang({}, "no rank waits in a collective")


def absent_of(
    *standings: Standing | None,
    arrived: tuple[int, ...] = (),
    missing: tuple[int, ...] = (),
    is_over: bool = True,
) -> set[int] | None:
    """Judge ranks that stand so; None was not seen."""
    seen = {number: one for number, one in enumerate(standings) if one is not None}
    is_complete = None not in standings
    hang = find_absent(
        seen, arrived=arrived, missing=missing, is_over=is_over, is_complete=is_complete
    )
    return None if hang is None else set(hang.reasons)


def test_stopped_rank_keeps_a_generation_from_forming_whatever_time_it_is() -> None:
    standings = (waits(), computes(), silent("stopped"), silent("blocked"))
    for is_over in (False, True):
        assert absent_of(*standings, is_over=is_over) == {2}


@pytest.mark.parametrize("other", [computes(), silent("blocked"), silent("no answer")])
def test_rank_that_keeps_others_waiting_is_named_once_time_is_over(other: Standing) -> None:
    assert absent_of(waits(), other, waits(), is_over=False) is None
    assert absent_of(waits(), other, waits()) == {1}
    assert absent_of(computes(), other, arrived=(0,)) == {1}


def test_nobody_is_named_while_all_build_their_models_or_all_wait() -> None:
    assert absent_of(computes(), computes()) is None
    assert absent_of(waits(), waits()) == set()


def test_no_collective_is_blamed_while_a_rank_has_not_been_seen() -> None:
    assert absent_of(waits(), None, waits()) is None
    assert absent_of(waits(), None, waits(), arrived=(0,)) is None
    assert absent_of(waits(), None, computes()) == {2}
    assert absent_of(waits(), None, silent("stopped"), is_over=False) == {2}


def test_rank_that_has_not_come_up_is_missing() -> None:
    assert absent_of(waits(), waits(), missing=(2,)) == {2}
    assert absent_of(waits(), waits(), missing=(2,), is_over=False) is None


def starved(idle_s: float, waited_s: float) -> Standing:
    return computes(idle_s).model_copy(update={"waited_s": waited_s})


def test_rank_that_had_no_core_is_not_the_culprit() -> None:
    assert culprits(starved(2.0, 1.5), waits(), waits(), waits()) is None
    assert culprits(starved(2.0, 0.9), waits(), waits(), waits()) == {0}


def test_reason_of_a_culprit_says_how_long_it_waited_for_a_core() -> None:
    hang = hang_of(starved(3.0, 0.4), waits(), waits(), waits())
    assert hang is not None
    assert hang.reasons[0] == "is in forward (model.py:7), waited 0.4 s for a core"


def test_rank_without_any_core_is_named_by_no_limit() -> None:
    for waited_s, is_named in ((2.0, False), (1.9, True), (0.0, True)):
        seen = dict(enumerate((starved(2.0, waited_s), waits(), waits(), waits())))
        hang = find_hang(seen, DP4, patience_s=0.0, is_complete=True)
        assert (hang is not None) is is_named, waited_s
