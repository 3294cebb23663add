"""The targets of a drill, and the target that the menu proposes.

The menu proposes the node or task selected on the overview if it fits the drill. Otherwise it
proposes the highest rank of the first running task with a second replica, or the last node with
ranks.
"""

from dataclasses import dataclass

from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.text import Cell, Tone, span
from console.viewmodel.panels.nodes_panel import node_names
from console.viewmodel.words import task_letter, task_tone
from controller.api.views import ClusterView, DrillView, NodeCondition, TaskPhase


@dataclass(frozen=True, slots=True)
class DrillTarget:
    """One thing a drill can hit. ``node`` names where it is even if the drill wants a rank."""

    node: str
    task: str | None = None
    rank: int | None = None
    pid: int | None = None

    @property
    def key(self) -> str:
        """Identity of the target across views."""
        return self.node if self.task is None else f"{self.task}/{self.rank}"

    @property
    def name(self) -> str:
        """The target in words."""
        if self.task is None:
            return f"node {self.node}"
        return f"rank {self.rank} of {self.task} on {self.node}"


def targets(view: ClusterView, drill: DrillView) -> list[DrillTarget]:
    """Return everything ``drill`` can hit now: ranks by task and number, or nodes."""
    if drill.target == "node":
        return [DrillTarget(name) for name in node_names(view)]
    ranks = [
        DrillTarget(node.node, worker.task, worker.global_rank, worker.pid)
        for node in view.nodes
        if node.condition is not NodeCondition.LOST
        for worker in node.workers
        if worker.task is not None and worker.global_rank is not None
    ]
    order = {task.name: index for index, task in enumerate(view.tasks)}
    return sorted(ranks, key=lambda item: (order.get(item.task or "", 999), item.rank or 0))


def proposed(view: ClusterView, offered: list[DrillTarget], selected: str | None) -> int:
    """Return the position of the target to preselect.

    Args:
        view: The cluster now.
        offered: At least one target.
        selected: Name of the node or task that the operator has selected, if any.
    """
    for index, target in enumerate(offered):
        if selected is not None and target.task is None and target.node == selected:
            return index
    by_task = [index for index, target in enumerate(offered) if target.task == selected]
    if selected is not None and by_task:
        return by_task[-1]
    for task in view.tasks:
        has_replica = task.layout is not None and task.layout.dp > 1
        ranks = [index for index, target in enumerate(offered) if target.task == task.name]
        if task.phase is TaskPhase.RUNNING and has_replica and ranks:
            return ranks[-1]
    return len(offered) - 1


def hit_lines(view: ClusterView, target: DrillTarget) -> list[str]:
    """Return the ranks on the target, one sentence per task."""
    if target.task is not None:
        layout = next((task.layout for task in view.tasks if task.name == target.task), None)
        peers = f", data-parallel replicas: {layout.dp}" if layout else ""
        process = f"process {target.pid}" if target.pid else "no process yet"
        return [f"{target.task} rank {target.rank} ({process}) on {target.node}{peers}"]
    node = next((node for node in view.nodes if node.node == target.node), None)
    ranks = [worker for worker in node.workers if worker.task] if node else []
    held: dict[str, list[int]] = {}
    for worker in ranks:
        held.setdefault(worker.task or "", []).append(worker.global_rank or 0)
    return [
        f"{task}: rank{'s' if len(numbers) > 1 else ''} "
        f"{', '.join(str(number) for number in sorted(numbers))} on {target.node}"
        for task, numbers in held.items()
    ] or [f"no rank on {target.node}"]


def target_cell(view: ClusterView, target: DrillTarget, glyphs: Glyphs) -> Cell:
    """Return a target as a line of the menu."""
    if target.task is None:
        held = "; ".join(hit_lines(view, target))
        return (span(target.node.ljust(6), Tone.STRONG), span(held, Tone.DIM))
    position = next((index for index, task in enumerate(view.tasks) if task.name == target.task), 0)
    process = f"process {target.pid}" if target.pid else glyphs.dash
    return (
        span(f"{task_letter(position)}{target.rank}".ljust(5), task_tone(position)),
        span(f"{target.task} rank {target.rank}", Tone.STRONG),
        span(f"  on {target.node}, {process}", Tone.DIM),
    )
