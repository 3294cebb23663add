"""Who is behind in a collective, by the ranks' flight recorders."""

from controller.core.rules.collectives import find_behind, record_of
from controller.core.rules.hang import find_hang
from nodeagent.protocol.standing import Collective, Standing
from profiles.layout import Layout


def called(
    group: str, sequence: int, *, name: str = "nccl:all_reduce", is_over: bool = True
) -> Collective:
    state = "completed" if is_over else "started"
    return Collective(
        group=group, description="dp", sequence=sequence, name=name, state=state, is_over=is_over
    )


def waits_in(group: str, sequence: int) -> Collective:
    return called(group, sequence, is_over=False)


def stands(*collectives: Collective) -> Standing:
    return Standing(
        where="collective", collective="_wait (wake.py:7)", iteration=9, phase="reduce", idle_s=2.0,
        source="rank", collectives=collectives,
    )  # fmt: skip


def behind(*standings: Standing) -> set[int]:
    return set(find_behind(dict(enumerate(standings))))


def test_whoever_has_not_entered_what_the_others_wait_in_is_behind_and_it_is_said_in_words() -> (
    None
):
    others = [stands(waits_in("0", 17)) for _ in range(3)]
    found = find_behind(dict(enumerate([*others, stands(called("0", 16, name="nccl:broadcast"))])))
    assert found == {
        3: "has not entered nccl:all_reduce number 17 of group 0 (dp), as 3 other(s) have; its last"
        " there was nccl:broadcast number 16"
    }


def test_nobody_is_behind_where_all_have_entered() -> None:
    assert not behind(stands(waits_in("0", 17)), stands(waits_in("0", 17)))


def test_whoever_waits_for_a_third_in_another_group_is_excused() -> None:
    # Tensor-parallel pairs 4 and 5, data-parallel pairs 6 and 7; rank 3 hangs, and 2 waits for it.
    assert behind(
        stands(called("4", 10), waits_in("6", 5)),
        stands(called("4", 10), waits_in("7", 5)),
        stands(waits_in("5", 10), called("6", 4)),
        stands(called("5", 9), called("7", 4)),
    ) == {3}


def test_a_reduction_under_way_that_all_have_entered_excuses_nobody() -> None:
    assert behind(
        stands(waits_in("0", 8), waits_in("1", 3)), stands(called("0", 7), waits_in("1", 3))
    ) == {1}


def test_ranks_that_wait_for_one_another_in_a_circle_are_not_named() -> None:
    assert not behind(
        stands(waits_in("0", 2), called("1", 1)), stands(called("0", 1), waits_in("1", 2))
    )


def test_a_rank_without_a_record_of_a_group_is_not_judged_by_it() -> None:
    assert not behind(stands(waits_in("0", 17)), stands(called("1", 1)), stands())


def test_the_recorder_names_the_culprit_where_all_wait_in_the_same_phase() -> None:
    standings = {n: stands(waits_in("0", 17)) for n in range(4)}
    standings[2] = stands(called("0", 16))
    hang = find_hang(standings, Layout(dp=4), patience_s=1.0, is_complete=True)
    assert hang is not None
    assert set(hang.reasons) == {2}
    assert "has not entered nccl:all_reduce number 17" in hang.reasons[2]
    assert hang.summary == "3 rank(s) wait in _wait (wake.py:7)"


def test_the_larger_part_is_not_behind() -> None:
    standings = {n: stands(called("0", 16)) for n in range(4)}
    standings[2] = stands(waits_in("0", 17))
    hang = find_hang(standings, Layout(dp=4), patience_s=1.0, is_complete=True)
    assert hang is not None
    assert not hang.reasons


def test_what_was_called_last_is_told_line_by_line() -> None:
    assert record_of(stands(waits_in("0", 17), called("1", 3))) == (
        "    nccl:all_reduce number 17 of group 0, started\n"
        "    nccl:all_reduce number 3 of group 1, completed, over"
    )
