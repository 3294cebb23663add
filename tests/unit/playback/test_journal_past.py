"""A journal played back shows at each instant what the controller showed then."""

import random
from pathlib import Path

import pytest

from controller.api.projection import Frame, project
from controller.api.views import ClusterView
from controller.core.instructions import Announce
from controller.core.machine import Machine
from controller.playback import journal_past
from controller.playback.journal_past import JournalPast
from controller.playback.past import PastError
from controller.store.compaction import compact
from controller.store.journal import Journal
from controller.store.run_file import JOURNAL_NAME
from controller.store.segments import closed_segments, segments_of
from tests.fakes.world import World


@pytest.fixture(autouse=True)
def _short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_past, "_STRETCH_EVENTS", 20)
    monkeypatch.setattr(journal_past, "_LARGEST_SHARE", 1.0)


def shown_then(world: World, at: float, started_wall_s: float) -> ClusterView:
    """Return what a machine shows that has handled all events until then."""
    machine = Machine()
    for event in world.events:
        if event.at > at:
            break
        machine.handle(event)
    policy = machine.policy
    frame = Frame("c", started_wall_s, policy.is_auto_heal, policy=policy)
    return project(machine.state, at, frame)


def compacted(world: World, directory: Path) -> Path:
    """Write a journal of many segments, each with its snapshot; return its path."""
    path = directory / JOURNAL_NAME
    journal = Journal(path, segment_events=60)
    for event in world.events:
        journal.append(event)
        if journal.is_long:
            journal.commit_at_once()
            journal.begin_segment()
            compact(path, 10**9, 10**9, 0.0)
    journal.commit_at_once()
    journal.close()
    return path


def test_each_instant_is_as_it_was_in_whatever_order_they_are_looked_at(
    world: World, run_dir: Path
) -> None:
    past = JournalPast(run_dir, "c")
    assert len(past._stretches) > 5
    ends = past.facts.begin, past.facts.end
    assert ends == (world.events[0].at, world.events[-1].at)
    source = random.Random(1)
    instants = [*ends, *(source.choice(world.events).at for _ in range(20))]
    instants += [source.uniform(*ends) for _ in range(10)]
    for at in instants:
        assert past.view_at(at) == shown_then(world, at, past.facts.started_wall_s)
    back = [event.at for event in world.events[45:58]][::-1]  # within one stretch
    for at in (*sorted(instants), *back):
        assert past.view_at(at) == shown_then(world, at, past.facts.started_wall_s)


def test_lines_marks_and_shares_are_those_of_the_run(world: World, run_dir: Path) -> None:
    facts = JournalPast(run_dir, "c").facts
    machine, texts, shares = Machine(), list[str](), list[float]()
    incidents: dict[str, float] = {}
    for event in world.events:
        said = [each for each in machine.handle(event) if isinstance(each, Announce)]
        texts += [each.text for each in said if each.level != "trace"]
        incidents |= {each.name: each.detected_at for each in machine.state.incidents.all}
        waf = sum(task.waf for task in machine.state.tasks.values())
        shares.append(waf)
    assert [line.text for line in facts.lines] == texts
    kept = {mark.name: mark.at for mark in facts.marks if mark.kind == "incident"}
    there = {each.name for each in machine.state.incidents.all}
    assert kept == {name: at for name, at in incidents.items() if name in there}
    assert [mark.at for mark in facts.marks] == sorted(mark.at for mark in facts.marks)
    assert {mark.kind for mark in facts.marks} == {"incident", "plan", "controller"}
    assert all(
        before != after for (_, before), (_, after) in zip(facts.wafs, facts.wafs[1:], strict=False)
    )
    assert len({share > 0 for _, share in facts.wafs}) == 2
    assert (facts.wafs[-1][1] > 0) == (shares[-1] > 0)


def test_a_journal_whose_beginning_was_deleted_is_played_back_from_there(
    world: World, tmp_path: Path
) -> None:
    path = compacted(world, tmp_path)
    whole = JournalPast(tmp_path, "c")
    assert not whole.facts.has_earlier
    closed_segments(path)[0].path.unlink()
    first = segments_of(path)[0].first_event()
    past = JournalPast(tmp_path, "c")
    assert past.facts.begin == world.events[first - 1].at
    at = (past.facts.begin + past.facts.end) / 2
    assert past.view_at(at) == shown_then(world, at, past.facts.started_wall_s)
    known = {mark.name for mark in past.facts.marks}
    assert known < {mark.name for mark in whole.facts.marks}


def test_only_the_end_of_a_long_journal_is_read_if_that_is_wanted(
    world: World, tmp_path: Path
) -> None:
    compacted(world, tmp_path)
    past = JournalPast(tmp_path, "c", last_s=1.0)
    assert past.facts.has_earlier
    assert past.facts.begin > world.events[60].at
    at = past.facts.end
    assert past.view_at(at) == shown_then(world, at, past.facts.started_wall_s)
    assert JournalPast(tmp_path, "c", last_s=1e9).facts.begin == world.events[0].at


def test_what_can_t_be_played_back_is_named_with_the_reason(run_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(PastError, match="no run is saved there: it has no journal"):
        JournalPast(tmp_path / "nowhere", "c")
    path = run_dir / JOURNAL_NAME
    text = path.read_bytes()
    lines = text.splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:9], lines[9].replace(b'"', b"'"), *lines[10:]]))
    with pytest.raises(PastError, match=r"journal\.jsonl, line 10: "):
        JournalPast(run_dir, "c")
    path.write_bytes(lines[0])
    with pytest.raises(PastError, match=r"it has no events"):
        JournalPast(run_dir, "c")


def test_the_reading_is_told(run_dir: Path, world: World) -> None:
    told: list[tuple[int, int]] = []
    JournalPast(run_dir, "c", progress=lambda num, of: told.append((num, of)))
    assert [num for num, _ in told] == sorted(num for num, _ in told)
    assert told[-1][0] == len(world.events)
    assert abs(told[-1][1] - len(world.events)) <= 1
