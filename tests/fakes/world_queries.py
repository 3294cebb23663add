"""What tests ask a modelled cluster, and how far they let it run."""

from controller.core.events import PlanApproved
from controller.core.instructions import StartRanks
from controller.core.rules.policy import Policy
from controller.core.state.incident import Incident
from controller.core.state.node import NodeState
from controller.core.state.phases import TaskPhase
from controller.core.state.plan import Plan
from controller.core.state.task import TaskState
from nodeagent.protocol.ids import NodeId, TaskId
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World

A = TaskId("gpt-a")


def running_world(
    *, is_auto_heal: bool = True, num_nodes: int = 4, policy: Policy | None = None
) -> World:
    """Return a cluster that trains the demo's tasks since some seconds."""
    machine = demo_machine(is_auto_heal=is_auto_heal, num_nodes=num_nodes, policy=policy)
    world = World(machine, num_iterations=10**6)
    world.run(4.0)
    return world


def task(world: World, name: TaskId = A) -> TaskState:
    return world.machine.state.tasks[name]


def node(world: World, name: str = "n1") -> NodeState:
    return world.machine.state.nodes[NodeId(name)]


def pids(world: World, name: TaskId = A) -> list[int | None]:
    """Return the pids of a task's ranks, in the order of the ranks."""
    return [rank.pid for _, rank in sorted(task(world, name).ranks.items())]


def newest_start(world: World, name: TaskId = A) -> StartRanks:
    return next(start for _, start in reversed(world.starts) if start.task == name)


def newest_incident(world: World) -> Incident:
    return world.machine.state.incidents.all[-1]


def only_incident(world: World) -> Incident:
    [incident] = world.machine.state.incidents.all
    return incident


def all_run(world: World) -> bool:
    """Return whether every task runs."""
    tasks = world.machine.state.tasks.values()
    return all(task.lifecycle.phase is TaskPhase.RUNNING for task in tasks)


def trained(world: World, iteration: int) -> None:
    """Let time pass until every task has committed ``iteration``."""
    tasks = world.machine.state.tasks.values()
    world.run_until(lambda: all(task.progress.iteration >= iteration for task in tasks))


def task_trained(world: World, iteration: int, name: TaskId = A) -> None:
    """Let time pass until one task has committed ``iteration``."""
    world.run_until(lambda: task(world, name).progress.iteration >= iteration)


def approve_next(world: World) -> Plan:
    """Wait for the next plan that needs a decision, approve it, and return it."""
    plan = world.run_until(world.machine.state.plans.pending)
    world.post(PlanApproved("r1", "op", plan.name, plan.revision))
    return plan
