"""The setup that all policies share: profiles of tasks, initial split, and the core's policy."""

from dataclasses import dataclass

from controller.core.rules.planner.cost import PlanTask, Quantum, horizon_s
from controller.core.rules.planner.search import best_division
from controller.core.rules.planner.solver import solve
from controller.core.rules.policy import Policy
from controller.simulation.scenarios.estimated_tables import Profile, profiles_of
from controller.simulation.scenarios.scenario import Scenario, TracedFaults, Values
from controller.simulation.world.event_sequence import EventSequence
from nodeagent.protocol.ids import TaskId
from profiles.estimate.hardware import unmeasured_size
from profiles.records import RecordError


@dataclass(frozen=True, slots=True)
class InitialSetup:
    """The setup at the start of a run.

    Attributes:
        scenario: The scenario.
        profiles: The profiles of the tasks, sorted by name.
        split: The initial number of workers of each task.
        policy: The core's policy; each run sets ``is_auto_heal`` itself.
        unmeasured: What of its estimated throughput no published point supports, for people.
    """

    scenario: Scenario
    profiles: tuple[Profile, ...]
    split: dict[str, int]
    policy: Policy
    unmeasured: tuple[str, ...] = ()

    def profile(self, name: str) -> Profile:
        """Return the profile of a task."""
        return next(each for each in self.profiles if each.task.name == name)


def setup_of(scenario: Scenario, sequence: EventSequence) -> InitialSetup:
    """Return the setup of a scenario's runs.

    The initial split is the planner's, but every task gets some workers.

    Raises:
        RecordError: The tasks do not all fit on the nodes.
    """
    values = scenario.values
    num_workers = sequence.num_nodes * values.workers_per_node
    num_standby = (values.standby_nodes + len(sequence.absent)) * values.workers_per_node
    found = tuple(sorted(profiles_of(scenario, num_workers), key=lambda each: each.task.name))
    split = _split(found, values, num_workers - num_standby)
    if split is None:
        raise RecordError(f"{scenario.place}: {_no_room(values, sequence)}")
    unknown = unmeasured_size(max(split.values()) * values.gpus_per_worker)
    return InitialSetup(scenario, found, split, policy_of(values), tuple(unknown))


def policy_of(values: Values) -> Policy:
    """Return the default policy with the scenario's MTBF and recovery times."""
    steps = values.steps
    return Policy(
        worker_mtbf_s=3600.0 * values.worker_mtbf_hours,
        step_s={
            "park": steps.park.mean_s,
            "stop": steps.park.mean_s,
            "start": steps.restart.mean_s,
            "form": 0.0,
            "state": 0.0,
            "first iteration": 0.0,
        },
    )


def plan_tasks_of(profiles: tuple[Profile, ...]) -> list[PlanTask]:
    """Return the planner's tasks before any task runs."""
    return [
        PlanTask(
            name=TaskId(each.task.name),
            weight=each.task.weight,
            rates=each.table.rates,
            workers=0,
            min_workers=each.task.min_workers,
            is_faulted=False,
            transition_s=0.0,
        )
        for each in profiles
    ]


def _split(
    profiles: tuple[Profile, ...], values: Values, num_workers: int
) -> dict[str, int] | None:
    """Return the workers of each task; None if the tasks do not all fit."""
    tasks = plan_tasks_of(profiles)
    running_s = horizon_s(3600.0 * values.worker_mtbf_hours, num_workers)
    decision = solve(tasks, num_workers=num_workers, running_s=running_s)
    if all(decision.assignments.values()):
        return {str(name): size for name, size in decision.assignments.items()}
    quantum = Quantum.for_tasks(tasks, running_s)
    options = [quantum.options(task, num_workers, running_s).without(0) for task in tasks]
    sizes = best_division(options, num_workers)
    if sizes is None:
        return None
    return {str(task.name): size for task, size in zip(tasks, sizes, strict=True)}


def _no_room(values: Values, sequence: EventSequence) -> str:
    num_nodes = sequence.num_nodes - values.standby_nodes - len(sequence.absent)
    num_tasks = len(values.tasks)
    tasks = "the task does" if num_tasks == 1 else f"the {num_tasks} tasks do"
    nodes = f"{num_nodes} node" if num_nodes == 1 else f"{num_nodes} nodes"
    reason = f"{tasks} not fit on the {num_nodes * values.workers_per_node} workers of {nodes}"
    if not isinstance(values.faults, TracedFaults):
        return f"{reason}; give more nodes, or fewer or smaller tasks"
    return (
        f"{reason} that are present {values.faults.begin_s:g} s into the trace; give a later"
        ' faults.begin_s, or fewer or smaller tasks, in a scenario with base = "spot-g4dn"'
    )
