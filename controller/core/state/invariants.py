"""Invariants that hold after every event. Checked in tests, simulation and drills."""

from controller.core.state.cluster import ClusterState
from controller.core.state.phases import (
    AT_REST,
    InvariantViolationError,
    NodeCondition,
    PlanState,
    TaskPhase,
)
from controller.core.state.task import TaskState


def check_invariants(state: ClusterState) -> None:
    """Raise if the state breaks a promise.

    Raises:
        InvariantViolationError: Two tasks hold a worker, a rank lives on a lost node or is to live
            on one, or on an isolated node or GPU, a task without ranks has some, a generation takes
            up training from ranks that it does not have, more than one plan is pending or under
            way, or workers are measured on that are not idle.
    """
    holder: dict[object, str] = {}
    for task in state.tasks.values():
        for worker in task.occupied_workers:
            if holder.setdefault(worker, task.spec.task) != task.spec.task:
                raise InvariantViolationError(
                    f"{worker} is held by two tasks", holder[worker], task.spec.task
                )
            if state.nodes[worker.node].contact.condition is NodeCondition.LOST:
                raise InvariantViolationError(
                    f"{task.spec.task} has a rank on lost {worker.node}",
                    task.spec.task,
                    worker.node,
                )
        if task.lifecycle.phase in AT_REST and task.living_ranks:
            raise InvariantViolationError(
                f"{task.spec.task} is {task.lifecycle.phase} but has ranks", task.spec.task
            )
        if task.layout and task.layout.num_workers != len(task.placement):
            raise InvariantViolationError(
                f"{task.spec.task}: layout and placement differ in size", task.spec.task
            )
        if task.assignment.target and any(
            state.nodes[worker.node].contact.condition is NodeCondition.LOST
            or state.nodes[worker.node].service.isolated
            or worker.slot in state.nodes[worker.node].service.isolated_gpus
            for worker in task.assignment.target.placement
        ):
            raise InvariantViolationError(
                f"{task.spec.task} is to run where nobody may", task.spec.task
            )
        _check_generation(task)
    run = state.measurements.current.run if state.measurements.current else None
    for worker in run.living.values() if run else ():
        if worker in holder or state.nodes[worker.node].contact.condition is NodeCondition.LOST:
            raise InvariantViolationError(f"{worker} is measured on, but is not idle", worker.node)
    for plan_state in (PlanState.PENDING, PlanState.APPROVED):
        if sum(plan.state is plan_state for plan in state.plans.all) > 1:
            raise InvariantViolationError(f"more than one plan is {plan_state}")


def _check_generation(task: TaskState) -> None:
    """Raise if the records of a task's generation contradict each other.

    Raises:
        InvariantViolationError: The text says what.
    """
    name, resume = task.spec.task, task.resume
    if (task.lifecycle.phase is TaskPhase.PARKING) != (task.lifecycle.parking is not None):
        raise InvariantViolationError(
            f"{name} is {task.lifecycle.phase}, but parking: {task.lifecycle.parking}", name
        )
    if any(
        generation > task.generation or (generation == task.generation and number in task.ranks)
        for generation, number in task.leaving.workers
    ):
        raise InvariantViolationError(
            f"{name}: a process of the present generation is left out", name
        )
    if not set(resume.kept) <= set(resume.state_from):
        raise InvariantViolationError(f"{name}: sums are kept by a rank without the state", name)
    if task.layout is None:
        return
    handing = set(resume.state_from)
    handing.update(bucket.holder for bucket in resume.reduced)
    handing.update(shard.holder for shard in resume.shards)
    for number in handing:
        rank = task.ranks.get(number)
        if rank is None or rank.continues is None:
            raise InvariantViolationError(
                f"{name}: rank {number} hands out what it can't have", name
            )
    computed = [each for share in resume.shares for each in share]
    if len(computed) != len(set(computed)) or len(resume.shares) not in {0, task.layout.dp}:
        raise InvariantViolationError(
            f"{name}: shares {resume.shares} do not divide the batch", name
        )
