"""Sequence numbers, marks, and what an overfull outbox drops."""

from pydantic import TypeAdapter

from nodeagent.outbox.contents import MAX_PROCESS_MARKS, Outbox
from nodeagent.outbox.outbox_records import Mark, MarkScope, OutboxRecord
from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.messages import Report
from nodeagent.protocol.observations import (
    AnyObservation,
    RankExited,
    RankHalted,
    RankJoined,
)
from nodeagent.protocol.orders import HaltOrder
from nodeagent.protocol.regroup import Position
from tests.fakes.observations import committed

RECORDS: TypeAdapter[OutboxRecord] = TypeAdapter(OutboxRecord)
TASK, GENERATION = TaskId("gpt-a"), Generation(1)


def exited(pid: int = 7) -> RankExited:
    return RankExited(task=TASK, generation=GENERATION, global_rank=0, pid=pid, exit_code=1)


def store(outbox: Outbox, observation: AnyObservation, mark: Mark | None = None) -> bool:
    record = outbox.store(observation, 0.0, mark)
    if record is not None:
        outbox.apply(record)
    return record is not None


def attach(outbox: Outbox, run_id: str, last_seq: int = 0, processes: tuple[str, ...] = ()) -> None:
    for record in outbox.attach(run_id, 1, last_seq, processes):
        outbox.apply(record)


def acknowledge(outbox: Outbox, seq: int) -> None:
    record = outbox.acknowledge(seq)
    if record is not None:
        outbox.apply(record)


def held_seqs(outbox: Outbox) -> list[int]:
    return [held.seq for held in outbox.after(0)]


def restored(outbox: Outbox) -> Outbox:
    again = Outbox()
    for line in outbox.snapshot():
        again.apply(RECORDS.validate_json(line))
    return again


def test_reports_are_numbered_from_one_and_held_until_acknowledged() -> None:
    outbox = Outbox()
    for iteration in range(1, 5):
        assert store(outbox, committed(iteration))
    assert held_seqs(outbox) == [1, 2, 3, 4]
    acknowledge(outbox, 2)
    assert held_seqs(outbox) == [3, 4]
    assert (outbox.first_seq, outbox.next_seq) == (3, 5)
    acknowledge(outbox, 4)
    assert (outbox.first_seq, outbox.num_bytes) == (5, 0)


def test_numbers_go_on_after_everything_was_acknowledged() -> None:
    outbox = Outbox()
    store(outbox, committed(1))
    acknowledge(outbox, 1)
    outbox = restored(outbox)
    store(outbox, committed(2))
    assert held_seqs(outbox) == [2]


def test_held_line_is_the_report_as_it_travels() -> None:
    outbox = Outbox()
    store(outbox, exited())
    (held,) = outbox.after(0)
    assert Report.model_validate_json(held.line).observation == exited()


def test_mark_keeps_a_report_from_being_stored_twice() -> None:
    outbox = Outbox()
    mark = Mark(scope=MarkScope.EXIT, name="gpt-a.1.0.7")
    assert store(outbox, exited(), mark)
    assert not store(outbox, exited(), mark)


def test_mark_outlives_the_acknowledgement_and_the_agent() -> None:
    outbox = Outbox()
    store(outbox, committed(1), Mark(scope=MarkScope.INTAKE, name="gpt-a.1.0.7", value=1))
    acknowledge(outbox, 1)
    outbox = restored(outbox)
    again = Mark(scope=MarkScope.INTAKE, name="gpt-a.1.0.7", value=1)
    assert not store(outbox, committed(1), again)
    assert store(outbox, committed(2), again.model_copy(update={"value": 2}))


def test_other_run_clears_reports_and_marks_of_the_run() -> None:
    outbox = Outbox()
    attach(outbox, "run-1")
    store(outbox, committed(1), Mark(scope=MarkScope.START, name="gpt-a.1.0"))
    store(outbox, exited(), Mark(scope=MarkScope.EXIT, name="gpt-a.1.0.7"))
    attach(outbox, "run-2", processes=("gpt-a.1.1.8",))
    assert (outbox.first_seq, outbox.next_seq, outbox.num_reports) == (1, 1, 0)
    assert not outbox.mark(MarkScope.START, "gpt-a.1.0")
    assert outbox.mark(MarkScope.EXIT, "gpt-a.1.0.7")
    assert outbox.mark(MarkScope.FOREIGN, "gpt-a.1.1.8")


def test_same_run_keeps_what_was_seen_and_not_acknowledged() -> None:
    outbox = Outbox()
    attach(outbox, "run-1")
    store(outbox, committed(1))
    attach(outbox, "run-1", last_seq=1)
    assert held_seqs(outbox) == [1]


def test_numbers_go_on_after_those_that_the_controller_has_of_a_lost_file() -> None:
    outbox = Outbox()
    attach(outbox, "run-1", last_seq=57)
    store(outbox, committed(1))
    assert held_seqs(outbox) == [58]


def test_overfull_outbox_drops_the_oldest_routine_reports_and_no_exit() -> None:
    outbox = Outbox(max_reports=10)
    store(outbox, exited())
    for iteration in range(1, 11):
        store(outbox, committed(iteration))
    assert outbox.trim() == 2
    assert held_seqs(outbox) == [1, 4, 5, 6, 7, 8, 9, 10, 11]
    assert outbox.trim() == 0


def test_exits_are_never_dropped() -> None:
    outbox = Outbox(max_reports=5)
    for pid in range(20):
        store(outbox, exited(pid))
    assert outbox.trim() == 0
    assert outbox.num_reports == 20


def test_what_a_regroup_waits_for_is_never_dropped() -> None:
    outbox = Outbox(max_reports=5)
    who = {"task": TASK, "generation": GENERATION, "global_rank": 0}
    halted = RankHalted.model_validate({**who, "position": Position(committed=3, has_state=True)})
    joined = RankJoined.model_validate(
        {**who, "iteration": 3, "source": "own", "form_s": 0.0, "state_s": 0.0}
    )
    for _ in range(5):
        store(outbox, halted)
        store(outbox, joined)
    assert outbox.trim() == 0


def request_halt(outbox: Outbox, generation: int, *broken: int, at_boundary: bool = False) -> bool:
    halt = HaltOrder(
        task=TASK, generation=Generation(generation), broken=broken, at_boundary=at_boundary
    )
    record = outbox.request_halt(halt)
    if record is not None:
        outbox.apply(record)
    return record is not None


def test_halts_of_a_generation_add_up_whatever_their_order() -> None:
    for first, second in (((3, False), (1, True)), ((1, True), (3, False))):
        outbox = Outbox()
        for rank, at_boundary in (first, second):
            assert request_halt(outbox, 1, rank, at_boundary=at_boundary)
        assert outbox.halt(TASK) == HaltOrder(
            task=TASK,
            generation=GENERATION,
            broken=(
                1,
                3,
            ),
            at_boundary=False,
        )
        assert not request_halt(outbox, 1, 3, at_boundary=True)


def test_halt_of_a_newer_generation_takes_the_place_of_the_older() -> None:
    outbox = Outbox()
    request_halt(outbox, 2, 1, at_boundary=True)
    assert not request_halt(outbox, 1, 5)
    assert request_halt(outbox, 3)
    assert outbox.halt(TASK) == HaltOrder(task=TASK, generation=Generation(3))
    assert outbox.halt(TaskId("gpt-b")) is None


def test_halt_survives_the_agent_but_not_the_run() -> None:
    outbox = Outbox()
    attach(outbox, "run-1")
    request_halt(outbox, 1, 2)
    outbox = restored(outbox)
    attach(outbox, "run-1")
    assert outbox.halt(TASK) == HaltOrder(task=TASK, generation=GENERATION, broken=(2,))
    attach(outbox, "run-2")
    assert outbox.halt(TASK) is None
    assert restored(outbox).halt(TASK) is None


def test_large_reports_count_by_their_bytes() -> None:
    outbox = Outbox(max_report_bytes=2000)
    for iteration in range(1, 21):
        store(outbox, committed(iteration))
        outbox.trim()
    assert outbox.num_bytes <= 2000
    assert outbox.num_bytes == sum(len(held.line) for held in outbox.after(0))
    assert held_seqs(outbox)[-1] == 20


def test_marks_of_processes_are_bounded_and_the_oldest_go() -> None:
    outbox = Outbox()
    fence = outbox.advance(Mark(scope=MarkScope.FENCE, name="gpt-a", value=3))
    assert fence is not None
    outbox.apply(fence)
    for pid in range(MAX_PROCESS_MARKS + 10):
        store(outbox, exited(pid), Mark(scope=MarkScope.EXIT, name=str(pid)))
    outbox = restored(outbox)
    assert outbox.mark(MarkScope.FENCE, "gpt-a") == 3
    assert not outbox.mark(MarkScope.EXIT, "9")
    assert outbox.mark(MarkScope.EXIT, "10")
