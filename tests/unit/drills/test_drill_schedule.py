"""Scheduled drills: each is run once, when it is due, however often it is looked at."""

import pytest

from controller.core.events import DrillRequested, EventBody
from controller.core.instructions import AnswerRequest
from controller.core.state.cluster import ClusterState
from controller.core.state.phases import NodeCondition, TaskPhase
from controller.drills.drill_arguments import ScheduledDrill
from controller.drills.drill_schedule import DrillSchedule, has_settled, why_stuck
from nodeagent.protocol.ids import NodeId, TaskId
from tests.fakes.clusters import demo_machine
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
    watched.world.run_until(lambda: watched.look() or watched.state.tasks[B].iteration == 2)
    assert not watched.posted
    watched.run_until_posted(1)
    assert watched.state.tasks[B].iteration == 3
    [request] = watched.posted
    assert (request.actor, request.drill) == ("schedule", "kill-rank")
    assert (request.task, request.global_rank, request.node) == (B, 1, None)


def test_a_drill_is_asked_for_once() -> None:
    watched = Watched(ScheduledDrill("lose-node", 2, A, node=NodeId("n2")))
    watched.run_until_posted(1)
    assert not watched.look()
    watched.answer(is_ok=True)
    assert watched.schedule.is_done
    watched.world.run_until(lambda: watched.state.tasks[A].iteration == 6)
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
    watched.world.run_until(lambda: watched.state.tasks[A].iteration == 3)
    watched.world.kill_rank("gpt-a", 0)
    watched.run_until_posted(1)
    task = watched.state.tasks[A]
    assert (task.generation, task.phase) == (2, TaskPhase.RUNNING)


def test_a_drill_whose_task_has_ended_is_missed_and_nothing_waits_for_it() -> None:
    drill = ScheduledDrill("kill-rank", 4, A)
    watched = Watched(drill, num_iterations=4)
    watched.world.run_until(lambda: watched.state.tasks[A].phase is TaskPhase.FINISHED)
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
    world.run_until(lambda: any(task.phase is TaskPhase.FINISHED for task in tasks.values()))
    assert not has_settled(world.machine.state)
    world.run_until(lambda: all(task.phase is TaskPhase.FINISHED for task in tasks.values()))
    assert has_settled(world.machine.state)


def test_a_run_has_not_settled_while_a_node_is_out_of_sight() -> None:
    world = World(demo_machine(), num_iterations=5)
    world.run(30.0)
    assert has_settled(world.machine.state)
    world.cut("n1", 2.0)
    assert not has_settled(world.machine.state)
    world.run_until(lambda: has_settled(world.machine.state))
    assert world.machine.state.nodes[NodeId("n1")].condition is NodeCondition.HEALTHY


def test_a_run_has_not_settled_while_an_incident_is_open() -> None:
    world = World(demo_machine(), num_iterations=9)
    world.run(6.0)
    world.lose_node("n2")
    world.run_until(lambda: bool(world.machine.state.incidents))
    assert not has_settled(world.machine.state)
    world.run_until(lambda: has_settled(world.machine.state))
    assert [task.iteration for task in world.machine.state.tasks.values()] == [9, 9]


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
    world.run_until(lambda: world.machine.state.tasks[B].phase is TaskPhase.FINISHED)
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
