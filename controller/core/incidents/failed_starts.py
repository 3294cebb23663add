"""Starts that fail before an iteration: the program's fault, or that of its node.

Only a second node can tell. So ranks whose start failed are started on another node if one has
free workers, before anything is isolated. A program that fails there alike is held, and no node is
blamed. ``controller.core.rules.failed_start`` has the rules.
"""

from controller.core.incidents.naming import handle
from controller.core.lifecycle.assignments import move
from controller.core.lifecycle.fault_history import note_failed_starts
from controller.core.rules.actions import Handling
from controller.core.rules.diagnosis import Diagnosis
from controller.core.rules.evidence import Evidence
from controller.core.rules.failed_start import alike, failed_starts, is_of_program, likeness
from controller.core.rules.placement import Unplaceable, Worker, place
from controller.core.state.incident import Incident
from controller.core.state.rank import RankState
from controller.core.state.task import TaskState
from controller.core.state.task_records import Target
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import NodeId


def is_failed_start(task: TaskState, root: Evidence) -> bool:
    """Return whether the present generation never trained, and the program says what is wrong."""
    is_own = bool(root.own_words) and root.node is not None
    return is_own and task.progress.trained_in != task.generation


def has_trained(task: TaskState) -> bool:
    """Return whether the program has ever trained here."""
    return task.progress.trained_in is not None


def why_program_fails(turn: Turn, task: TaskState, incident: Incident, diagnosis: Diagnosis) -> str:
    """Note a failed start; return why it is the program's fault, or nothing if it may be a node's.

    The text is for operators: what failed, where, and what to mend.
    """
    root = diagnosis.root
    if root.node is None or not is_failed_start(task, root):
        return ""
    note_failed_starts(task, failed_starts(incident.evidence, task.generation))
    same = alike(task.faults.failed_starts, likeness(root.own_words))
    can_move = place_elsewhere(turn, task, root.node) is not None
    if not is_of_program(same, has_trained=has_trained(task), can_move=can_move):
        return ""
    nodes = sorted({start.node for start in same})
    num_times = len({start.generation for start in same})
    where = f"alike on {', '.join(nodes)}"
    if len(nodes) == 1:
        where = f"{num_times} times alike on {nodes[0]}, and no other node has free workers"
    never = "" if has_trained(task) else " and has never committed an iteration"
    log = f" (log: {root.log} on {root.node})" if root.log else ""
    return (
        f"its start failed {where}{never}, so no node is blamed: {root.summary}{log};"
        f" the task is held: mend the program, its command or its data, then propose a plan"
    )


def handle_of_task(
    turn: Turn,
    task: TaskState,
    incident: Incident,
    diagnosis: Diagnosis,
    rank: RankState | None,
) -> Handling:
    """Choose the action for a fault of a task: a second node is tried before one is isolated.

    A program that has never trained is tried elsewhere at once, and speaks against no node.
    """
    root, is_start = diagnosis.root, is_failed_start(task, diagnosis.root)
    is_counted = has_trained(task) or not is_start
    handling = handle(turn, incident, diagnosis, rank, task.faults.last_cure, is_counted=is_counted)
    is_tried = is_start and (handling.action == "reconfigure" or not is_counted)
    if not is_tried or root.node is None or not (where := _start_elsewhere(turn, task, root.node)):
        return handling
    stays = f"{root.node} stays a suspect, and " if is_counted else ""
    return Handling("restart", f"{stays}a second node is tried first: it starts on {where}")


def _start_elsewhere(turn: Turn, task: TaskState, node: NodeId) -> str:
    """Have the ranks on ``node`` start on other nodes next; return where, or nothing if nowhere."""
    target = place_elsewhere(turn, task, node)
    if target is None:
        return ""
    move(task, target)
    return ", ".join(sorted({worker.node for worker in target.placement}))


def place_elsewhere(turn: Turn, task: TaskState, node: NodeId) -> Target | None:
    """Return a place of the same layout without ``node``, on free workers; None if there is none.

    Ranks on other nodes stay where they are.
    """
    if task.layout is None or task.assignment.target is None:
        return None
    num_workers = {
        name: each.spec.num_workers
        for name, each in turn.state.nodes.items()
        if each.is_in_service and name != node
    }
    domains = {name: turn.state.nodes[name].spec.failure_domain for name in num_workers}
    found = place(
        {task.spec.task: task.layout},
        {task.spec.task: task.placement},
        num_workers,
        layouts_before={task.spec.task: task.layout},
        blocked={each for each in _blocked(turn, task) if each.node in num_workers},
        domains=domains,
    )
    return None if isinstance(found, Unplaceable) else Target(task.layout, found[task.spec.task])


def _blocked(turn: Turn, task: TaskState) -> set[Worker]:
    """Return the workers that the task may not get."""
    blocked: set[Worker] = set()
    for other in turn.state.tasks.values():
        if other is not task:
            blocked |= other.occupied_workers
            blocked.update(other.assignment.target.placement if other.assignment.target else ())
    for name, node in turn.state.nodes.items():
        blocked.update(Worker(name, slot) for slot in node.service.isolated_gpus)
        blocked.update(node.inventory.strays)
    measurement = turn.state.measurements.current
    if measurement is not None and measurement.run is not None:
        blocked.update(measurement.run.living.values())
    return blocked
