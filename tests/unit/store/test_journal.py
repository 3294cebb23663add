"""The journal: what is written comes back equal, and damage is found and named."""

import json
import stat
import zlib
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings, strategies as st

from controller.core.events import (
    AutomationResumed,
    ClockMeasured,
    CommandFailed,
    ContactLost,
    ControllerStarted,
    CureApproved,
    DrillRequested,
    Event,
    EventBody,
    FileReloaded,
    HaltCarriedOut,
    LossDecided,
    MeasurementCancelled,
    MeasurementRequested,
    NodeAdded,
    NodeAnswered,
    NodeAttached,
    NodeFellSilent,
    NodeOrdered,
    NodeRemoved,
    Observed,
    PeerProbed,
    PlanApproved,
    PlanDeferred,
    PlanRejected,
    PlanRequested,
    PolicyChanged,
    RanksListed,
    RankVanished,
    ShutdownRequested,
    StopCarriedOut,
    StragglerFound,
    StragglerOver,
    TaskAdded,
    TaskAdvanced,
    TaskChanged,
    TaskLimited,
    TaskOrdered,
    TaskRemoved,
    TaskSubmitted,
    TimerFired,
    UncordonRequested,
    WaitingChanged,
)
from controller.core.rules.policy import Policy
from controller.core.specs import NodeSpec
from controller.core.timers import (
    BurstOver,
    CapacityOverdue,
    CommandLives,
    HaltOverdue,
    HeldRetryDue,
    InspectionDue,
    InspectionOverdue,
    IterationOverdue,
    JoinOverdue,
    JudgeNode,
    MeasurementOverdue,
    PlanDue,
    ReplicaPeersOverdue,
    SettleIncident,
    SparesOverdue,
    StartOverdue,
    StopOverdue,
    Timer,
)
from controller.store.journal import Journal, JournalError, read_journal
from controller.store.journal_lines import (
    LineReader,
    encode_event,
    encode_header,
)
from controller.store.segments import segments_of
from nodeagent.protocol.findings import NodeFinding
from nodeagent.protocol.ids import AgentId, Generation, NodeId, TaskId
from nodeagent.protocol.observations import (
    AnyObservation,
    CheckpointMissed,
    CheckpointSaved,
    IterationCommitted,
    LaunchFailed,
    ProgressUnread,
    RankDone,
    RankExited,
    RankHalted,
    RankInspected,
    RankJoined,
    RankRaised,
    RankStarted,
)
from nodeagent.protocol.rank_status import RankStatus
from nodeagent.protocol.regroup import HeldCopy, Position, VoteResult
from nodeagent.protocol.standing import Standing
from tests.fakes.clusters import demo_machine, spec_of
from tests.fakes.log_lines import log_entries
from tests.fakes.saved_runs import with_crc
from tests.fakes.world import Who, World

N1, A, G2 = NodeId("n1"), TaskId("gpt-a"), Generation(2)
WHO: Who = {"task": A, "generation": G2, "global_rank": 3}
STATUS = RankStatus(
    task=A, generation=G2, global_rank=3, worker=1, pid=77, iteration=9, duration_s=0.4, rss_bytes=5
)

POSITION = Position(
    committed=4,
    has_state=True,
    phase="vote",
    counted=(3, 4, 5),
    is_torn=True,
    reduced=("0a", "ff"),
    num_buckets=3,
    vote=VoteResult(
        iteration=5, loss=2.5, grad_norm=float("inf"), num_tokens=768.0, is_park_wanted=True
    ),
    copies=(HeldCopy(tp_rank=1, pp_rank=0, dp_rank=2, iteration=4),),
)

OBSERVATIONS: list[AnyObservation] = [
    RankStarted(**WHO, pid=7, warm=True, start_s=0.25),
    RankExited(**WHO, pid=7, signal=9, is_expected=True, stderr_tail='two\nlines and a "quote"\n'),
    RankExited(**WHO, pid=7, exit_code=1),
    RankRaised(
        **WHO, exception_type="ValueError", message="zu groß", traceback="T\n  F", iteration=4,
        is_in_collective=True, position=POSITION,
    ),
    RankHalted(**WHO, position=POSITION),
    RankJoined(**WHO, iteration=4, source="peer", form_s=0.02, state_s=0.3),
    LaunchFailed(**WHO, reason="no memory"),
    IterationCommitted(
        **WHO, iteration=5, loss=2.5, duration_s=0.1 + 0.2, num_tokens=768, grad_norm=float("inf")
    ),
    ProgressUnread(**WHO, line="step 3", pattern=r"step (?P<iteration>\d+)"),
    CheckpointMissed(**WHO, iteration=4, reason="no room on the disk"),
    CheckpointSaved(**WHO, iteration=5, duration_s=0.01, num_bytes=2**40),
    RankDone(**WHO, iteration=30, reason="finished"),
    RankInspected(
        **WHO, pid=7,
        standing=Standing(
            where="collective", place="wait (a.py:1)", collective="all_reduce in f (b.py:2)",
            iteration=5, phase="vote", num_micro_batches=3, idle_s=0.25, stack="T:\n  f",
            source="rank",
        ),
    ),
    NodeFinding(probe="disk", sign="disk_full", subject="/data", text="98 % full", value=0.98),
]  # fmt: skip
TIMERS: list[Timer] = [
    SettleIncident("I-1"),
    JoinOverdue(N1),
    JudgeNode(N1),
    StartOverdue(A, G2),
    BurstOver("I-1"),
    CommandLives(A, G2),
    StopOverdue(A, G2),
    HaltOverdue(A, G2),
    ReplicaPeersOverdue(A, G2),
    CapacityOverdue(A, G2),
    SparesOverdue(A, G2),
    HeldRetryDue(A, G2),
    CommandLives(A, G2),
    IterationOverdue(A, G2),
    InspectionDue(A, G2),
    InspectionOverdue(A, G2),
    MeasurementOverdue(TaskId("gpt-a@measure"), G2),
    PlanDue("P-1", 2),
]
SPEC = spec_of(demo_machine()).tasks[0]
BODIES: list[EventBody] = [
    ControllerStarted("run-1", 2, 1000.5),
    PolicyChanged(Policy(is_auto_heal=True, step_s={"park": 2.0})),
    NodeAdded(NodeSpec(N1, "h:22", 8, "rack-1", "10.1.0.1", '{"host": "h"}')),
    NodeRemoved(N1),
    TaskAdded(SPEC),
    TaskChanged(SPEC),
    TaskRemoved(A),
    NodeAttached(N1, AgentId("n1-abcd"), 4711, (STATUS, STATUS)),
    NodeAttached(N1, AgentId("n1-abcd"), 4711, ()),
    ContactLost(N1, 12.5, "connection lost"),
    RanksListed(N1, (STATUS,)),
    NodeFellSilent(N1, 10.5),
    NodeAnswered(N1),
    RankVanished(N1, A, G2, 3, 10.5),
    TaskAdvanced(N1, A, G2, 3, 17),
    ClockMeasured(N1, -3.5),
    StragglerFound(A, G2, 3, 0.5, 0.2, 0.1),
    StragglerOver(A, G2, 3),
    WaitingChanged(A, G2, 0.1),
    PeerProbed(N1, NodeId("n2"), "refused"),
    PeerProbed(N1, NodeId("n2"), None),
    *(Observed(N1, seq, 1.0, each) for seq, each in enumerate(OBSERVATIONS, start=1)),
    StopCarriedOut(N1, A, G2),
    HaltCarriedOut(N1, A, G2),
    CommandFailed(N1, "start", A, G2, "out of contact", is_outcome_unknown=True),
    *(TimerFired(timer) for timer in TIMERS),
    PlanApproved("r1", "op", "P-1", 2),
    PlanRejected("r2", "op", "P-1", 2, "not now"),
    CureApproved("r18", "op", "I-3", "restart"),
    PlanRequested("r3", "op"),
    PlanDeferred("r17", "op", "P-1", 2, 600.0),
    AutomationResumed("r18", "op"),
    LossDecided("r7", "op", N1, is_lost=True),
    UncordonRequested("r6", "op", N1, is_forced=True),
    UncordonRequested("r8", "op", N1, gpu=1),
    MeasurementRequested("r9", "op", A, (1, 2), 10, is_contained=True),
    MeasurementCancelled("r10", "op", "M-1"),
    DrillRequested("r4", "op", "lose-node"),
    DrillRequested("r5", "op", "kill-rank", A, 3, N1),
    TaskOrdered("r11", "op", "stop", A),
    TaskLimited("r12", "op", A, weight=2.0, max_workers=0),
    TaskSubmitted("r13", "op", (SPEC,)),
    NodeOrdered("r14", "op", "drain", N1, "new fan", is_forced=True),
    FileReloaded("r16", "op", ("node n6 joins", "task gpt-a: weight 1 -> 2")),
    ShutdownRequested("r15", "op"),
]


READER = LineReader.of(encode_header(1))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def write(path: Path, bodies: list[EventBody]) -> list[Event]:
    journal = Journal(path)
    events = [Event(number, number / 3, body) for number, body in enumerate(bodies, start=1)]
    for event in events:
        journal.append(event)
    journal.close()
    return events


def refusal(path: Path) -> str:
    with pytest.raises(JournalError) as caught:
        list(read_journal(path))
    return str(caught.value)


def test_the_examples_here_cover_every_event_timer_and_observation() -> None:
    assert {type(body) for body in BODIES} == set(get_args(EventBody))
    assert {type(timer) for timer in TIMERS} == set(get_args(Timer))
    union = get_args(AnyObservation)[0]
    assert {type(observation) for observation in OBSERVATIONS} == set(get_args(union))


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_an_event_comes_back_equal_from_one_line(body: EventBody) -> None:
    event = Event(number=7, at=1.1, body=body)
    line = encode_event(event)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    again = READER.decode(line)
    assert again == event
    for field in fields(body):
        assert type(getattr(again.body, field.name)) is type(getattr(body, field.name))


def test_a_loss_that_is_no_number_stays_one() -> None:
    commit = IterationCommitted(
        **WHO, iteration=5, loss=float("nan"), duration_s=1.0, num_tokens=1, grad_norm=float("nan")
    )
    again = READER.decode(encode_event(Event(1, 0.0, Observed(N1, 1, 0.0, commit))))
    assert isinstance(again.body, Observed)
    assert isinstance(again.body.observation, IterationCommitted)
    assert again.body.observation.loss != again.body.observation.loss


@given(
    st.one_of(
        st.from_type(RankExited),
        st.from_type(RankRaised),
        st.from_type(RankHalted),
        st.from_type(LaunchFailed),
        st.from_type(IterationCommitted),
    ),
    st.integers(1, 2**50),
    st.floats(0, 1e9),
)
@settings(max_examples=60, deadline=None)
def test_whatever_an_agent_observes_comes_back_equal(
    observation: AnyObservation, seq: int, at: float
) -> None:
    event = Event(seq, at, Observed(N1, seq, at, observation))
    assert repr(READER.decode(encode_event(event))) == repr(event)  # NaN is not equal to itself


def test_a_journal_is_private(path: Path) -> None:
    Journal(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_journal_is_complete_after_every_commit(path: Path) -> None:
    journal = Journal(path)
    for number, body in enumerate(BODIES, start=1):
        journal.append(Event(number, 0.0, body))
        await journal.commit()
        assert [event.number for event in read_journal(path)] == list(range(1, number + 1))
    journal.close()


def test_an_empty_journal_has_no_events(path: Path) -> None:
    write(path, [])
    assert list(read_journal(path)) == []


def test_a_replayed_journal_rebuilds_the_state(path: Path) -> None:
    world = World(demo_machine(), num_iterations=12)
    world.run(6.0)
    world.kill_rank("gpt-a", 1)
    world.lose_node("n4")
    world.run(60.0)
    journal = Journal(path)
    for event in world.events:
        journal.append(event)
    journal.close()
    replayed = demo_machine()
    for event in read_journal(path):
        replayed.handle(event)
    assert replayed.state == world.machine.state


def test_a_last_line_cut_off_anywhere_is_dropped(path: Path) -> None:
    events = write(path, [PlanRequested("r1", "op"), ContactLost(N1, 1.0, "x")])
    whole = path.read_bytes()
    header, first, _, _ = whole.split(b"\n")
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        is_read = end > len(header) + 1 + len(first)
        assert list(read_journal(path)) == (events[:1] if is_read else [])


def test_a_journal_whose_first_line_was_cut_off_begins_anew(path: Path) -> None:
    path.write_bytes(b'{"format":"unic')
    events = write(path, [PlanRequested("r1", "op")])
    assert list(read_journal(path)) == events


def test_a_changed_digit_is_found(path: Path) -> None:
    write(path, [ContactLost(N1, 1.25, "x"), PlanRequested("r1", "op")])
    whole = path.read_bytes()
    assert whole.count(b"1.25") == 1
    path.write_bytes(whole.replace(b"1.25", b"1.35"))
    changed = "the checksum is wrong: the line was changed after it was written"
    assert refusal(path) == f"{path}, line 2: {changed}"


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ('{"format":"unicron-journal","version":3}', "the journal has format version 3, and this"),
        ('{"n":1,"at":0.0,"type":"PlanRequested","body":{}}', "this is no journal of a controller"),
        ('{"format":"unicron-journal","version":4}', "the checksum is wrong"),
        ("", "Invalid JSON"),
    ],
)
def test_a_file_of_another_format_is_refused(path: Path, first: str, reason: str) -> None:
    path.write_text(first + "\n")
    assert refusal(path).startswith(f"{path}, line 1: {reason}")


def test_a_journal_that_is_written_on_loses_only_its_torn_line(path: Path) -> None:
    first, second = write(path, [PlanRequested("r1", "op"), PlanRequested("r2", "op")])
    path.write_bytes(path.read_bytes()[:-5])
    journal = Journal(path)
    journal.append(second)
    journal.close()
    assert list(read_journal(path)) == [first, second]
    journal = Journal(path)
    journal.close()
    assert list(read_journal(path)) == [first, second]


def row(*values: object) -> bytes:
    """Return a line with these fields."""
    text: str = json.dumps(values, separators=(",", ":"))
    return text.encode()


PLACES = {name: place for place, (name, _) in enumerate(READER.events)}


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (b"[2,1.0,7", "Invalid JSON"),
        (b"", "Invalid JSON"),
        (b"\xff\xfe", "Invalid JSON"),
        (b'{"n":2}', "array"),
        (row(2, 1.0), "an event has a number, a time and a type"),
        (row(2, 1.0, 99, "n1"), "unknown event 99"),
        (row(2, 1.0, "ContactLost", "n1"), "unknown event 'ContactLost'"),
        (row(2, 1.0, PLACES["ContactLost"], "n1"), "last_message_at"),
        (row("two", 1.0, PLACES["PlanRequested"], "r", "op"), "integer"),
        (row(2, 1.0, PLACES["PlanRequested"], None, "op"), "string"),
        (row(2, 1.0, PLACES["Observed"], "n1", 1, 1.0, [99]), "unknown observation 99"),
        (row(2, 1.0, PLACES["Observed"], "n1", 1, 1.0, []), "unknown observation None"),
        (row(2, 1.0, PLACES["Observed"], "n1", 1, 1.0, "x"), "observation"),
    ],
)
def test_a_damaged_line_is_named_with_its_file_and_number(
    path: Path, damage: bytes, reason: str
) -> None:
    write(path, [PlanRequested("r1", "op"), PlanRequested("r2", "op")])
    header, first, second, _ = path.read_bytes().split(b"\n")
    damage = with_crc(damage)
    for lines, number in (([first, damage, second], 3), ([first, second, damage], 4)):
        path.write_bytes(b"\n".join([header, *lines]) + b"\n")
        text = refusal(path)
        assert text.startswith(f"{path}, line {number}: ")
        assert reason in text
        assert "\n" not in text


def test_events_before_the_damage_are_still_read(path: Path) -> None:
    events = write(path, [PlanRequested("r1", "op")])
    path.write_bytes(path.read_bytes() + b"?\n")
    reader = read_journal(path)
    assert next(reader) == events[0]
    with pytest.raises(JournalError, match="line 3"):
        next(reader)


def test_the_log_tells_of_a_journal_and_of_its_damage(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(path, [PlanRequested("r1", "op")])
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"n": 2')
    Journal(path).close()
    path.write_bytes(whole + b"?\n")
    assert refusal(path)
    opened, cut, again, damaged = log_entries(caplog, "controller.store")
    assert opened.fields == {"path": str(path), "bytes": whole.index(b"\n") + 1}
    assert (cut.level, cut.fields) == ("warning", {"path": str(path), "bytes": 7})
    assert again.fields == {"path": str(path), "bytes": len(whole)}
    assert (damaged.level, damaged.fields["line"]) == ("error", 3)


# --- another version's segment ------------------------------------------------------------------


def of_another_version(path: Path, bodies: list[EventBody]) -> list[Event]:
    """Write a segment of a version that numbers the kinds of events in another order."""
    header = json.loads(encode_header(1))
    del header["crc"]
    kinds = [name for name, *_ in header["events"]]
    header["events"].reverse()
    lines = [json.dumps(header, separators=(",", ":"))[:-1]]
    lines[0] += f',"crc":"{zlib.crc32(lines[0].encode()):08x}"}}'
    events = [Event(number, number / 3, body) for number, body in enumerate(bodies, start=1)]
    for event in events:
        row = json.loads(encode_event(event))[:-1]
        row[2] = len(kinds) - 1 - row[2]
        text = json.dumps(row, separators=(",", ":"))[:-1]
        lines.append(f'{text},"{zlib.crc32(text.encode()):08x}"]')
    path.write_text("".join(f"{line}\n" for line in lines))
    return events


@pytest.mark.parametrize("num_before", [0, 1, len(BODIES)])
def test_a_segment_of_another_version_is_closed_and_not_continued(
    path: Path, num_before: int
) -> None:
    before = of_another_version(path, BODIES[:num_before])
    assert list(read_journal(path)) == before
    journal = Journal(path, num_before)
    more = [Event(number, 1e6, body) for number, body in enumerate(BODIES, start=num_before + 1)]
    for event in more:
        journal.append(event)
    journal.close()
    assert list(read_journal(path)) == [*before, *more]
    assert len(segments_of(path)) == (2 if num_before else 1)
