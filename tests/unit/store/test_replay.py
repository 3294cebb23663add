"""The facts that one controller leaves to the next beside the core's state."""

from pathlib import Path

import pytest

from controller.clock import SystemClock
from controller.core.events import Event, NodeAttached, TimerFired
from controller.core.machine import Machine
from controller.core.timers import JudgeNode, Timer
from controller.store.journal import JournalError, read_journal
from controller.store.replay import ReplayedRun, replay
from nodeagent.protocol.ids import AgentId, NodeId, TaskId
from tests.fakes.clusters import demo_machine
from tests.fakes.log_lines import log_entries
from tests.fakes.saved_runs import write_journal
from tests.fakes.world import World

A = TaskId("gpt-a")


@pytest.fixture
def world() -> World:
    world = World(demo_machine(num_nodes=5), num_iterations=10**6)
    world.run(6.0)
    return world


def test_the_state_is_rebuilt_and_the_newest_report_of_each_node_is_known(
    world: World, tmp_path: Path
) -> None:
    world.kill_rank(A, 1)
    world.run(12.0)
    machine = Machine()
    replayed = replay(machine, read_journal(write_journal(world, tmp_path / "journal")))
    assert machine.state == world.machine.state
    assert (replayed.num_events, replayed.at) == (len(world.events), world.events[-1].at)
    assert replayed.last_seqs == {name: node.seq for name, node in world.nodes.items() if node.seq}
    assert replayed.ended == {A: world.machine.state.tasks[A].generation - 1}
    assert replayed.started == world.events[0].body


def test_timers_that_have_not_fired_are_left_with_their_lengths(world: World) -> None:
    world.cut("n1", 1000.0)
    timer: Timer = JudgeNode(NodeId("n1"))
    machine = Machine()
    assert replay(machine, world.events).timers[timer] == machine.policy.judge_interval_s


def test_a_timer_that_has_fired_is_over() -> None:
    timer: Timer = JudgeNode(NodeId("n1"))
    first = World(demo_machine(num_nodes=5)).events
    events = [*first, Event(len(first) + 1, 0.0, TimerFired(timer))]
    assert timer not in replay(Machine(), events).timers


def test_nothing_is_left_where_nobody_was() -> None:
    assert replay(Machine(), []) == ReplayedRun()


def test_a_journal_that_does_not_begin_with_a_controller_is_refused_in_words() -> None:
    attached = NodeAttached(NodeId("x9"), AgentId("x9-1"), 1, ())
    with pytest.raises(JournalError, match="does not begin with the start of a controller"):
        replay(Machine(), [Event(1, 0.0, attached)])


def test_a_gap_is_named(world: World) -> None:
    with pytest.raises(JournalError, match="a gap: event 4 follows 2"):
        replay(Machine(), [*world.events[:2], *world.events[3:]])


@pytest.mark.parametrize(("started_wall_s", "newest"), [(-100.0, 40.0), (0.0, 5000.0), (50.0, 7.0)])
def test_a_clock_goes_on_where_another_one_stood(started_wall_s: float, newest: float) -> None:
    """Also where the wall clock was set back meanwhile: what was shown is never undercut."""
    clock = SystemClock()
    began_at = clock.started_wall_s
    clock.continue_from(began_at + started_wall_s, newest)
    assert clock.now() >= max(newest, -started_wall_s)
    assert clock.started_wall_s == began_at + started_wall_s


def test_a_clock_that_goes_on_with_itself_is_not_moved() -> None:
    clock = SystemClock()
    before = clock.now()
    clock.continue_from(clock.started_wall_s, before)
    assert clock.now() < before + 5.0


def test_the_log_tells_how_long_a_replay_took(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    replay(demo_machine(num_nodes=5), world.events)
    [entry] = log_entries(caplog, "controller.store.replay")
    assert entry.message == "journal replayed"
    assert entry.fields["events"] == len(world.events)
    assert isinstance(entry.fields["duration_s"], float)
