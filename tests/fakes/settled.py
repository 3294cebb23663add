"""What must hold of a modelled cluster once everything has had its time."""

from controller.core.state.phases import IncidentState, PlanState, TaskPhase
from tests.fakes.world import World


def assert_settled(world: World) -> None:
    """No incident and no plan is open, and what can train does."""
    state = world.machine.state
    assert all(i.state in {IncidentState.RESOLVED, IncidentState.HELD} for i in state.incidents.all)
    assert all(plan.state is not PlanState.PENDING for plan in state.plans.all)
    for task in state.tasks.values():
        if task.lifecycle.phase is TaskPhase.RUNNING:
            assert task.progress.committed_at is not None
            assert world.now - task.progress.committed_at < 5.0
        elif task.lifecycle.phase is TaskPhase.WAITING:
            assert not any(node.is_in_service for node in state.nodes.values())
        else:
            assert task.lifecycle.phase in {TaskPhase.STOPPED, TaskPhase.HELD}
