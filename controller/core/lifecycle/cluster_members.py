"""The nodes and tasks that the state has. The one writer of ``ClusterState``'s own fields."""

from dataclasses import replace

from controller.core.lifecycle.command_tasks import NOT_IN_PROCESS
from controller.core.specs import NodeSpec, TaskSpec
from controller.core.state.cluster import ClusterState
from controller.core.state.node import Contact, NodeState
from controller.core.state.phases import NodeCondition
from controller.core.state.task import TaskState
from controller.core.state.task_records import RegroupLimits
from nodeagent.protocol.ids import Generation, TaskId


def put_node(
    state: ClusterState, spec: NodeSpec, condition: NodeCondition = NodeCondition.EXPECTED
) -> NodeState:
    """Add a node of which nothing is known; return it."""
    state.nodes[spec.node] = node = NodeState(spec, Contact(condition))
    return node


def put_task(state: ClusterState, spec: TaskSpec) -> TaskState:
    """Add a task that has never started; return it. A removed task of its name is replaced."""
    former = state.tasks.get(spec.task)
    task = TaskState(spec, limits=RegroupLimits((NOT_IN_PROCESS,) if spec.is_command else ()))
    if former is not None:
        # Processes, files and timers of older generations must stay harmless.
        task = replace(task, generation=Generation(former.generation + 1), leaving=former.leaving)
    state.tasks[spec.task] = task
    return task


def reweigh(
    state: ClusterState,
    name: TaskId,
    *,
    weight: float | None = None,
    keeps_running: bool | None = None,
) -> None:
    """Suppose another priority of a task, in a copy of the state."""
    task = state.tasks[name]
    spec = task.spec
    if weight is not None:
        spec = replace(spec, weight=weight)
    if keeps_running is not None:
        spec = replace(spec, keeps_running=keeps_running)
    state.tasks[name] = replace(task, spec=spec)
