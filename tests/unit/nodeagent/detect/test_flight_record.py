"""What torch's flight recorder says, in the format of torch 2.13 (version 2.10 of the record)."""

import json

import pytest

from nodeagent.detect.flight_record import newest_collectives
from nodeagent.protocol.standing import MAX_COLLECTIVES, Collective

NOON_NS = 1_795_312_233_000_000_000


def entry(sequence: int, **changes: object) -> dict[str, object]:
    """Return an entry as NCCL's recorder writes it."""
    return {
        "collective_seq_id": sequence,
        "input_dtypes": ["Float"],
        "input_sizes": [[4]],
        "is_p2p": False,
        "op_id": sequence,
        "output_dtypes": ["Float"],
        "output_sizes": [[4]],
        "p2p_seq_id": 0,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "profiling_name": "nccl:all_reduce",
        "record_id": sequence,
        "retired": False,
        "state": "started",
        "thread_id": "139722527861632",
        "thread_name": "python",
        "time_created_ns": NOON_NS + sequence,
        "time_discovered_completed_ns": 0,
        "time_discovered_started_ns": 0,
        "timeout_ms": 600000,
        **changes,
    }


def record(*entries: object) -> bytes:
    status = {"0": {"last_completed_collective": "2", "last_enqueued_collective": "3"}}
    return json.dumps(
        {"comm_lib_version": "2.27.7", "entries": entries, "pg_status": status, "version": "2.10"}
    ).encode()


def sequences(*entries: object, since_ns: int = NOON_NS) -> dict[str, int]:
    found = newest_collectives([record(*entries)], since_ns)
    return {one.group: one.sequence for one in found}


def test_the_newest_collective_of_each_group_is_told_whatever_the_order_of_the_ring() -> None:
    other = entry(7, process_group=["3", "DATA_PARALLEL_GROUP"], retired=True, state="completed")
    found = newest_collectives([record(entry(5), other, entry(6), entry(4))], NOON_NS)
    assert found == (
        Collective(
            group="3", description="DATA_PARALLEL_GROUP", sequence=7, name="nccl:all_reduce",
            state="completed", is_over=True,
        ),
        Collective(
            group="0", description="default_pg", sequence=6, name="nccl:all_reduce",
            state="started", is_over=False,
        ),
    )  # fmt: skip


def test_a_group_that_was_made_anew_under_its_name_counts_from_one_again() -> None:
    assert sequences(entry(900), entry(2, pg_id=5)) == {"0": 2}


def test_nothing_of_an_earlier_generation_counts() -> None:
    old = entry(900, process_group=["9", ""], time_created_ns=NOON_NS - 1)
    assert sequences(old, entry(2)) == {"0": 2}


def test_what_goes_from_rank_to_rank_has_no_number_in_the_group() -> None:
    assert sequences(entry(3), entry(9, is_p2p=True, profiling_name="nccl:send 0->1")) == {"0": 3}


def test_what_gloo_has_ended_is_retired_and_keeps_its_state() -> None:
    [one] = newest_collectives([record(entry(3, state="scheduled", retired=True))], NOON_NS)
    assert (one.state, one.is_over) == ("scheduled", True)


def test_the_newest_of_two_backends_come_first_together() -> None:
    nccl = [entry(n, process_group=[str(n), ""]) for n in range(1, 2 * MAX_COLLECTIVES, 2)]
    gloo = [entry(n, process_group=[str(n), ""]) for n in range(2, 2 * MAX_COLLECTIVES, 2)]
    found = newest_collectives([record(*nccl), record(*gloo)], NOON_NS)
    newest = 2 * MAX_COLLECTIVES - 1
    assert [one.sequence for one in found] == list(range(newest, newest - MAX_COLLECTIVES, -1))


def test_a_group_of_two_backends_is_told_once_by_the_first_that_knows_it() -> None:
    other = entry(2, process_group=["7", ""], profiling_name="gloo:all_reduce")
    gloo = record(entry(900, profiling_name="gloo:all_reduce"), other)
    found = newest_collectives([record(entry(5)), gloo], NOON_NS)
    assert [(one.group, one.name, one.sequence) for one in found] == [
        ("0", "nccl:all_reduce", 5),
        ("7", "gloo:all_reduce", 2),
    ]


def test_many_groups_are_cut_to_the_newest() -> None:
    entries = [entry(n, process_group=[str(n), ""]) for n in range(1, 40)]
    found = newest_collectives([record(*entries)], NOON_NS)
    assert [one.sequence for one in found] == list(range(39, 39 - MAX_COLLECTIVES, -1))


@pytest.mark.parametrize(
    "text",
    [b"", b"no json", b"[]", b"{}", b'{"entries": 7}', b'{"entries": null}', b"\xff", b"[" * 9999],
)
def test_a_record_of_another_format_says_nothing(text: bytes) -> None:
    assert newest_collectives([text], 0) == ()


def test_an_entry_that_is_not_understood_is_passed_over() -> None:
    broken = [7, {}, entry(9, process_group="0"), entry(9, process_group=[]), entry(9, pg_id="x")]
    assert sequences(*broken, entry(2)) == {"0": 2}
