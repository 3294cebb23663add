"""The table of sweeps holds its order and its instructions; a broken promise tells its story."""

import pytest

from controller.core import sweeps
from controller.core.events import Event, TimerFired
from controller.core.instructions import Announce, StartRanks
from controller.core.state.phases import InvariantViolationError, NodeCondition, TaskPhase
from controller.core.state.turn import Turn
from controller.core.sweeps import SWEEPS, Sweep, run_sweeps
from controller.core.timers import JudgeNode
from nodeagent.protocol.ids import NodeId, TaskId
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World


def test_each_sweep_comes_after_the_sweeps_that_it_needs() -> None:
    done: set[str] = set()
    for sweep in SWEEPS:
        assert sweep.needs <= done, sweep.name
        assert sweep.why
        done.add(sweep.name)


def test_names_of_sweeps_are_unique() -> None:
    assert len({sweep.name for sweep in SWEEPS}) == len(SWEEPS)


@pytest.fixture
def turn() -> Turn:
    machine = demo_machine()
    return Turn(machine.state, machine.policy, cause=1, at=0.0)


def test_an_instruction_that_the_table_does_not_list_is_refused(
    turn: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def announce(turn: Turn) -> None:
        turn.announce("info", "test", "n1", "text")

    for allowed, is_refused in ((Announce, False), (StartRanks, True)):
        one = Sweep("one", announce, frozenset(), "test", frozenset({allowed}))
        monkeypatch.setattr(sweeps, "SWEEPS", (one,))
        if is_refused:
            with pytest.raises(InvariantViolationError, match="sweep 'one' emitted Announce"):
                run_sweeps(turn, is_checked=True)
        else:
            run_sweeps(turn, is_checked=True)


def test_a_broken_invariant_tells_the_last_events_of_its_node() -> None:
    world = World(demo_machine())
    world.run(5.0)
    machine = world.machine
    machine.state.nodes[NodeId("n2")].contact.condition = NodeCondition.LOST  # as a bug would
    with pytest.raises(InvariantViolationError, match="lost n2") as raised:
        machine.handle(Event(len(world.events) + 1, world.now, TimerFired(JudgeNode(NodeId("n1")))))
    story = raised.value.story
    assert 0 < len(story) <= 10
    subjects = raised.value.subjects
    assert NodeId("n2") in subjects
    assert all(any(f"'{name}'" in line for name in subjects) for line in story)
    assert str(raised.value).count("\n") == len(story) + 1


def test_an_impossible_change_names_its_task() -> None:
    world = World(demo_machine())
    world.run(5.0)
    task = world.machine.state.tasks[TaskId("gpt-a")]
    with pytest.raises(InvariantViolationError, match="gpt-a can't go from running to held") as it:
        task.lifecycle._change(TaskPhase.HELD)
    assert it.value.subjects == ("gpt-a",)


def test_a_gap_in_the_journal_is_refused() -> None:
    with pytest.raises(InvariantViolationError, match="the journal has a gap"):
        demo_machine().handle(Event(2, 0.0, TimerFired(JudgeNode(NodeId("n1")))))
