"""Scheduled drills: each is run once, when it is due, however often it is looked at."""

from typing import Any

import pytest

from controller.core.events import (
    DrillRequested,
    Event,
    EventBody,
    NodeAttached,
    Observed,
    RanksListed,
    TimerFired,
)
from controller.core.instructions import AnswerRequest
from controller.core.machine import Machine
from controller.core.rules.policy import Policy
from controller.core.specs import NodeSpec, TaskSpec
from controller.core.state.cluster import ClusterState
from controller.core.state.phases import NodeCondition, TaskPhase
from controller.core.timers import CommandLives
from controller.drills.drill_arguments import ScheduledDrill
from controller.drills.drill_schedule import (
    ATTACH_LIMIT_S,
    MUTE_LIMIT_S,
    DrillSchedule,
    are_all_held,
    has_settled,
    why_stuck,
)
from nodeagent.protocol.ids import AgentId, Generation, NodeId, TaskId
from nodeagent.protocol.observations import (
    IterationCommitted,
    RankDone,
    RankExited,
    RankStarted,
)
from nodeagent.protocol.rank_status import RankStatus
from tests.fakes.clusters import demo_machine, table
from tests.fakes.world import World

A, B = TaskId("gpt-a"), TaskId("gpt-b")


class Watched:
    """A schedule over a make-believe cluster, which is looked at after everything that happens."""

    def __init__(self, *drills: ScheduledDrill, num_iterations: int = 10**6) -> None:
        self.world = World(demo_machine(), num_iterations=num_iterations)
        self.posted: list[DrillRequested] = []
        self.schedule = DrillSchedule(drills, self._post)

    @property
    def state(self) -> ClusterState:
        return self.world.machine.state

    def _post(self, body: EventBody) -> None:
        assert isinstance(body, DrillRequested)
        self.posted.append(body)

    def look(self) -> bool:
        """Look three times, as the session does after changes; return whether all is done."""
        for _ in range(3):
            self.schedule.post_due(self.state)
        return self.schedule.is_done

    def run_until_posted(self, count: int) -> None:
        self.world.run_until(lambda: self.look() or len(self.posted) >= count)

    def answer(self, *, is_ok: bool) -> None:
        request_id = self.posted[-1].request_id
        self.schedule.note_answer(AnswerRequest(1, request_id, is_ok=is_ok, code="", message=""))


def test_a_drill_is_asked_for_when_its_task_has_committed_the_iteration() -> None:
    watched = Watched(ScheduledDrill("kill-rank", 3, B, global_rank=1))
    watched.world.run_until(
        lambda: watched.look() or watched.state.tasks[B].progress.iteration == 2
    )
    assert not watched.posted
    watched.run_until_posted(1)
    assert watched.state.tasks[B].progress.iteration == 3
    [request] = watched.posted
    assert (request.actor, request.drill) == ("schedule", "kill-rank")
    assert (request.task, request.global_rank, request.node) == (B, 1, None)


def test_a_drill_is_asked_for_once() -> None:
    watched = Watched(ScheduledDrill("lose-node", 2, A, node=NodeId("n2")))
    watched.run_until_posted(1)
    assert not watched.look()
    watched.answer(is_ok=True)
    assert watched.schedule.is_done
    watched.world.run_until(lambda: watched.state.tasks[A].progress.iteration == 6)
    assert watched.look()
    assert [request.node for request in watched.posted] == ["n2"]
    assert not watched.schedule.missed


def test_a_drill_is_not_asked_for_again_while_its_answer_is_out() -> None:
    watched = Watched(ScheduledDrill("kill-rank", 2, A))
    watched.run_until_posted(1)
    watched.world.cut("n4", 1.0)
    watched.look()
    assert len(watched.posted) == 1


def test_drills_of_one_iteration_are_told_apart() -> None:
    watched = Watched(ScheduledDrill("kill-ssh", 2, A), ScheduledDrill("kill-agent", 2, A))
    watched.run_until_posted(2)
    assert {request.drill for request in watched.posted} == {"kill-ssh", "kill-agent"}
    assert len({request.request_id for request in watched.posted}) == 2
    watched.answer(is_ok=True)
    assert not watched.schedule.is_done


def test_a_refused_drill_is_asked_for_again_once_the_cluster_has_changed() -> None:
    watched = Watched(ScheduledDrill("kill-ssh", 2, A, node=NodeId("n4")))
    watched.run_until_posted(1)
    watched.answer(is_ok=False)
    watched.look()
    assert len(watched.posted) == 1  # not in a loop while everything is as it was
    watched.world.cut("n4", 1.0)
    watched.run_until_posted(2)
    watched.answer(is_ok=True)
    assert watched.schedule.is_done


def test_a_drill_waits_while_its_task_does_not_run() -> None:
    watched = Watched(ScheduledDrill("exception", 4, A))
    watched.world.run_until(lambda: watched.state.tasks[A].progress.iteration == 3)
    watched.world.kill_rank("gpt-a", 0)
    watched.run_until_posted(1)
    task = watched.state.tasks[A]
    assert (task.generation, task.lifecycle.phase) == (2, TaskPhase.RUNNING)


def test_a_drill_whose_task_has_ended_is_missed_and_nothing_waits_for_it() -> None:
    drill = ScheduledDrill("kill-rank", 4, A)
    watched = Watched(drill, num_iterations=4)
    watched.world.run_until(lambda: watched.state.tasks[A].lifecycle.phase is TaskPhase.FINISHED)
    assert watched.look()
    assert watched.schedule.missed == [drill]
    assert not watched.posted


def test_an_answer_to_somebody_else_changes_nothing() -> None:
    watched = Watched(ScheduledDrill("lose-node", 1, A))
    watched.run_until_posted(1)
    watched.schedule.note_answer(AnswerRequest(1, "console-1", is_ok=True, code="ok", message=""))
    assert not watched.schedule.is_done


def test_nothing_has_settled_before_every_task_has_finished() -> None:
    world = World(demo_machine(), num_iterations=5)
    assert not has_settled(world.machine.state)
    tasks = world.machine.state.tasks
    world.run_until(
        lambda: any(task.lifecycle.phase is TaskPhase.FINISHED for task in tasks.values())
    )
    assert not has_settled(world.machine.state)
    world.run_until(
        lambda: all(task.lifecycle.phase is TaskPhase.FINISHED for task in tasks.values())
    )
    assert has_settled(world.machine.state)


def test_a_run_has_not_settled_while_a_node_is_out_of_sight() -> None:
    world = World(demo_machine(), num_iterations=5)
    world.run(30.0)
    assert has_settled(world.machine.state)
    world.cut("n1", 2.0)
    assert not has_settled(world.machine.state)
    world.run_until(lambda: has_settled(world.machine.state))
    assert world.machine.state.nodes[NodeId("n1")].contact.condition is NodeCondition.HEALTHY


def test_a_run_has_not_settled_while_an_incident_is_open() -> None:
    world = World(demo_machine(), num_iterations=9)
    world.run(6.0)
    world.lose_node("n2")
    world.run_until(lambda: bool(world.machine.state.incidents.all))
    assert not has_settled(world.machine.state)
    world.run_until(lambda: has_settled(world.machine.state))
    assert [task.progress.iteration for task in world.machine.state.tasks.values()] == [9, 9]


def test_a_cluster_in_training_is_not_stuck_and_a_finished_one_neither() -> None:
    world = World(demo_machine(), num_iterations=5)
    world.run(3.0)
    assert why_stuck(world.machine.state) is None
    world.run(30.0)
    assert why_stuck(world.machine.state) is None


def test_a_cluster_is_stuck_while_nobody_decides_about_what_is_left() -> None:
    world = World(demo_machine(is_auto_heal=False), num_iterations=12)
    world.run(4.0)
    for name in ("n1", "n2"):
        world.lose_node(name, is_silent=True)
    world.run(8.0)
    assert why_stuck(world.machine.state) is None  # gpt-b trains on
    world.run_until(lambda: world.machine.state.tasks[B].lifecycle.phase is TaskPhase.FINISHED)
    reason = why_stuck(world.machine.state)
    assert reason is not None
    assert reason.startswith("gpt-a is waiting")


@pytest.mark.parametrize("name", ["gpt-a", "gpt-b"])
def test_a_cluster_that_waits_for_its_nodes_says_for_which(name: str) -> None:
    world = World(demo_machine())
    world.nodes[NodeId("n1")].is_up = world.nodes[NodeId("n3")].is_up = False
    world.run(5.0)
    reason = why_stuck(world.machine.state)
    assert reason is not None
    assert f"{name} is waiting" in reason


class Command:
    """A command of one rank under a schedule, with a clock that the test turns."""

    def __init__(self, kind: str) -> None:
        spec = TaskSpec(A, 1.0, 1, 1, table({1: 1.0}), 0.0, None, 1, is_command=True)
        self.machine = Machine([NodeSpec(NodeId("n1"), "n1:22", 1)], [spec], Policy())
        self.now, self.num_events = 0.0, 0
        self.posted: list[EventBody] = []
        self.drill = ScheduledDrill(kind, 3, A)
        self.schedule = DrillSchedule([self.drill], self._post, lambda: self.now)
        self.post(NodeAttached(NodeId("n1"), AgentId("n1-a"), 7, ()))
        started = RankStarted(**self.who(), pid=9, warm=False, start_s=0.1)
        self.post(Observed(NodeId("n1"), 1, self.now, started))

    def who(self) -> dict[str, Any]:
        return {"task": A, "generation": Generation(1), "global_rank": 0}

    def post(self, body: EventBody) -> None:
        self.num_events += 1
        for each in self.machine.handle(Event(self.num_events, self.now, body)):
            if isinstance(each, AnswerRequest):
                self.schedule.note_answer(each)

    def _post(self, body: EventBody) -> None:
        self.posted.append(body)
        self.post(body)

    def commit(self, iteration: int) -> None:
        committed = IterationCommitted(
            **self.who(), iteration=iteration, loss=None, duration_s=0.1, num_tokens=0, grad_norm=None
        )  # fmt: skip
        self.post(Observed(NodeId("n1"), iteration, self.now, committed))

    def beat(self, *, is_attached: bool) -> None:
        status = RankStatus(**self.who(), worker=0, pid=9, iteration=3, is_attached=is_attached)
        self.post(RanksListed(NodeId("n1"), (status,)))

    def is_done(self) -> bool:
        return self.schedule.is_done

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.schedule.post_due(self.machine.state)
        self.schedule.post_due(self.machine.state)


def test_a_drill_that_its_program_can_not_stage_is_refused_and_nothing_waits_for_it() -> None:
    command = Command("exception")
    command.commit(3)
    command.wait(0.0)
    assert len(command.posted) == 1
    command.wait(ATTACH_LIMIT_S - 0.1)
    assert not command.is_done(), "it may be about to attach"
    command.wait(0.2)
    assert command.is_done()
    [(drill, reason)] = command.schedule.refused
    assert drill is command.drill
    assert "has not attached" in reason


def test_a_program_that_attaches_a_moment_later_gets_its_drill() -> None:
    command = Command("exception")
    command.commit(3)
    command.wait(0.0)
    command.beat(is_attached=True)
    command.wait(1.0)
    assert command.is_done()
    command.wait(60.0)
    assert not command.schedule.refused
    assert len(command.posted) == 2


def test_a_program_whose_iterations_nobody_sees_gets_no_drill_by_iteration() -> None:
    command = Command("kill-rank")
    command.wait(600.0)
    assert not command.is_done(), "it has not even started"
    command.post(TimerFired(CommandLives(A, Generation(1))))
    assert command.machine.state.tasks[A].lifecycle.phase is TaskPhase.RUNNING
    command.wait(0.0)
    command.wait(MUTE_LIMIT_S - 0.1)
    assert not command.is_done()
    command.wait(0.2)
    [(_, reason)] = command.schedule.refused
    assert reason.startswith("gpt-a runs, and no iteration of it was seen")


def test_one_that_prints_late_gets_its_drill() -> None:
    command = Command("kill-rank")
    command.post(TimerFired(CommandLives(A, Generation(1))))
    command.wait(MUTE_LIMIT_S - 0.1)
    command.commit(1)
    command.wait(600.0)
    assert not command.is_done()
    command.commit(3)
    command.wait(0.0)
    assert command.is_done()
    assert not command.schedule.refused


def test_one_that_has_finished_without_an_iteration_had_none_to_wait_for() -> None:
    command = Command("kill-rank")
    done = RankDone(**command.who(), iteration=0, reason="finished")
    command.post(Observed(NodeId("n1"), 2, 0.0, done))
    exited = RankExited(**command.who(), pid=9, exit_code=0)
    command.post(Observed(NodeId("n1"), 3, 0.0, exited))
    command.wait(0.0)
    [(_, reason)] = command.schedule.refused
    assert "has finished, and no iteration" in reason
    assert not command.schedule.missed


def test_a_cluster_of_held_tasks_is_told_from_one_that_may_go_on() -> None:
    spec = TaskSpec(A, 1.0, 1, 1, table({1: 1.0}), 0.0, None, 4, is_command=True)
    world = World(Machine([NodeSpec(NodeId("n1"), "h", 1)], [spec], Policy(is_auto_heal=True)))
    world.failing_starts = {(A, "n1"): "Traceback (most recent call last):\nKeyError: 'tokens'"}
    assert not are_all_held(world.machine.state)
    held = world.machine.state.tasks[A].lifecycle
    world.run_until(lambda: held.phase is TaskPhase.HELD)
    assert are_all_held(world.machine.state)
    reason = why_stuck(world.machine.state)
    assert reason is not None
    assert "KeyError: 'tokens'" in reason
