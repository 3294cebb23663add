"""Nodes and their workers: one row per node, one cell per worker.

A worker cell is the letter of its task and the number of its rank. A sign in front marks a problem.
If the cells do not fit, the workers are counted per task instead.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from console.viewmodel.console_state import State
from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.numbers import mebibytes, seconds
from console.viewmodel.drawing.table_layout import Column, RowsOnDemand, TableRow, TextTable, draw
from console.viewmodel.drawing.text import Cell, Span, Tone, cell, cells_wide, span
from console.viewmodel.kept_by_node import KeptByNode
from console.viewmodel.words import (
    ISOLATED_WORD,
    NODE_WORDS,
    UPKEEP_WORDS,
    StateWord,
    marked,
    task_letter,
    task_tone,
)
from controller.api.views import ClusterView, NodeCondition, NodeView, WorkerView

Signs = tuple[str, str, str, str]
"""Signs of workers: lost, without a rank, out of contact, starting."""
LATE_AFTER_S = 3.0
"""A heartbeat older than this is shown as a warning."""


def node_table(state: State, width: int, glyphs: Glyphs) -> TextTable:
    """Return one row per node, in the controller's order."""
    view = state.view
    nodes = view.nodes if view else []
    size = _label_size(nodes)
    most = max((len(node.workers) for node in nodes), default=0)
    is_counted = most * (size + 1) > width * 45 // 100
    positions = {task.name: index for index, task in enumerate(view.tasks)} if view else {}
    signs = (glyphs.bad, glyphs.dash, glyphs.ask, glyphs.busy)

    def workers(node: NodeView) -> Cell:
        if is_counted:
            return _counted(node, positions, glyphs)
        return _workers(node, positions, signs, size)

    most_cells = most * (size + 1) - 1
    if is_counted:
        most_cells = max((cells_wide(workers(node)) for node in nodes), default=0)
    rows = RowsOnDemand(
        [node.node for node in nodes],
        lambda index: _row(state, nodes[index], workers(nodes[index]), glyphs),
    )
    return draw(_columns(nodes, max(1, most_cells), width, glyphs), rows, width, glyphs)


def _columns(
    nodes: Sequence[NodeView], most_cells: int, width: int, glyphs: Glyphs
) -> tuple[Column, ...]:
    """Return the columns with their widths, which are known without the rows' cells."""
    words = _WORDS_OF_NODES.of(nodes)
    conditions = {word for word, _ in words}
    notes = [note for _, note in words if note]
    memory = max((node.agent_rss_bytes or 0 for node in nodes), default=0)
    agent = max((node.agent_pid or 0 for node in nodes), default=0)
    return (
        Column(
            "name", f"NODES {len(nodes)}", 0, least=8, widest=_widest(node.node for node in nodes)
        ),
        Column(
            "condition", "condition", 0, least=13,
            widest=max((cells_wide(marked(word, glyphs)) for word in conditions), default=0),
        ),
        Column("workers", "workers", 1, least=7, most=max(20, width), widest=most_cells),
        Column("heartbeat", "heartbeat", 2, least=8, align_right=True, widest=8),
        Column(
            "memory", "memory", 4, least=7, align_right=True,
            widest=len(mebibytes(memory)) if memory else 0,
        ),
        Column(
            "agent", "agent", 5, least=7, align_right=True, widest=len(f"{agent}") if agent else 0
        ),
        Column("address", "address", 6, least=9, widest=_widest(node.address for node in nodes)),
        Column("note", "note", 3, least=8, most=44, is_flexible=True, widest=_widest(notes)),
    )  # fmt: skip


def _widest(texts: Iterable[str]) -> int:
    return max((_cells_of(text) for text in texts if text), default=0)


@lru_cache(maxsize=1 << 14)
def _cells_of(text: str) -> int:
    """Return how wide a text is. Names and addresses are nearly always as before."""
    return cells_wide(cell(text))


def _label_size(nodes: list[NodeView]) -> int:
    """Return the cells of the widest worker label: sign, letter, and digits of a rank."""
    return 2 + len(str(max(_LARGEST_RANKS.of(nodes), default=0)))


_LARGEST_RANKS: Final = KeptByNode(
    lambda node: max((worker.global_rank or 0 for worker in node.workers), default=0)
)


def _row(state: State, node: NodeView, workers: Cell, glyphs: Glyphs) -> TableRow:
    word, note = node_word(node), _note(node)
    cells = {
        "name": cell(node.node, Tone.STRONG),
        "condition": marked(word, glyphs),
        "workers": workers,
        "heartbeat": _heartbeat(state, node, glyphs),
    }
    if note:
        is_calm = word[2] is Tone.GOOD and not node.findings and not _isolated_gpus(node)
        tone = Tone.WARN if word[2] is Tone.GOOD else word[2]
        cells["note"] = cell(note, Tone.DIM if is_calm else tone)
    if node.agent_pid is not None:
        cells["agent"] = cell(f"{node.agent_pid}", Tone.DIM)
    if node.agent_rss_bytes is not None:
        cells["memory"] = cell(mebibytes(node.agent_rss_bytes), Tone.DIM)
    if node.address:
        cells["address"] = cell(node.address, Tone.DIM)
    return TableRow(node.node, cells)


def _note(node: NodeView) -> str:
    out = node.isolated if node_word(node) is ISOLATED_WORD else ""
    found = out or node.note or _order(node)
    return found or "; ".join([*_isolated_gpus(node), *node.findings])


def _isolated_gpus(node: NodeView) -> list[str]:
    return [f"GPU {each.worker} {each.isolated}" for each in node.workers if each.isolated]


def node_word(node: NodeView) -> StateWord:
    """Return the state of a node that counts: its condition, or what took it out of service."""
    if node.condition is not NodeCondition.HEALTHY:
        return NODE_WORDS[node.condition]
    if node.isolated:
        return ISOLATED_WORD
    if node.upkeep is not None:
        return UPKEEP_WORDS.get(node.upkeep.state, ("held", node.upkeep.state, Tone.WARN))
    return NODE_WORDS[node.condition]


_WORDS_OF_NODES: Final = KeptByNode(lambda node: (node_word(node), _note(node)))


def _order(node: NodeView) -> str:
    """Return who ordered the state of a node, and why."""
    if node.upkeep is None:
        return ""
    return f"by {node.upkeep.by}{f': {node.upkeep.reason}' if node.upkeep.reason else ''}"


def _heartbeat(state: State, node: NodeView, glyphs: Glyphs) -> Cell:
    if node.heartbeat_at is None:
        return cell(glyphs.dash, Tone.DIM)
    age = state.cluster_now - node.heartbeat_at
    return cell(seconds(age), Tone.WARN if age > LATE_AFTER_S else Tone.DIM)


def _workers(node: NodeView, positions: dict[str, int], signs: Signs, size: int) -> Cell:
    last = len(positions)
    condition = node.condition.value  # a plain word: its hash costs less
    spans = [
        _label(
            condition,
            positions.get(worker.task or worker.waits_for or "", last),
            worker.global_rank,
            _kind(worker),
            signs,
            size,
        )
        for worker in node.workers
    ]
    if spans:
        spans[-1] = Span(spans[-1].text[:size], spans[-1].tone)
    return tuple(spans)


def _kind(worker: WorkerView) -> str:
    """Return why a worker has no rank, or whether the rank has a process."""
    if worker.task is not None:
        return "starting" if worker.pid is None else "rank"
    return "isolated" if worker.isolated else "idle" if worker.waits_for is None else "spare"


@lru_cache(maxsize=1 << 15)
def _label(
    condition: str, position: int, rank: int | None, kind: str, signs: Signs, size: int
) -> Span:
    """Return the label of a worker with a blank after it.

    There are thousands of workers in each picture, and their labels are nearly always as before.
    """
    bad, dash, ask, busy = signs
    text, tone = "", Tone.DIM
    if condition == NodeCondition.LOST or kind == "isolated":
        text, tone = f"{bad}{dash}", Tone.BAD
    elif kind in {"idle", "spare"}:
        text = f" {task_letter(position) if kind == 'spare' else ''}{dash}"
    else:
        sign, tone = " ", task_tone(position)
        if condition == NodeCondition.UNREACHABLE:
            sign, tone = ask, Tone.WARN
        elif kind == "starting":
            sign = busy
        text = f"{sign}{task_letter(position)}{'' if rank is None else rank}"
    return Span(f"{text.ljust(size)} ", tone)


def _counted(node: NodeView, positions: dict[str, int], glyphs: Glyphs) -> Cell:
    num_out = sum(bool(worker.isolated) and worker.task is None for worker in node.workers)
    counts = Counter(worker.task for worker in node.workers if worker.task or not worker.isolated)
    spans = [span(f"{glyphs.bad}{glyphs.dash}:{num_out} ", Tone.BAD)] if num_out else []
    for task, count in sorted(counts.items(), key=lambda item: positions.get(item[0] or "", 999)):
        if task is None:
            spans.append(span(f"{glyphs.dash}:{count} ", Tone.DIM))
        else:
            position = positions.get(task, len(positions))
            spans.append(span(f"{task_letter(position)}:{count} ", task_tone(position)))
    return tuple(spans)


def node_names(view: ClusterView) -> list[str]:
    """Return the nodes that hold at least one rank and can still be hit, in order."""
    return [
        node.node
        for node in view.nodes
        if node.condition is not NodeCondition.LOST
        and any(worker.task is not None for worker in node.workers)
    ]


def tasks_on(node: NodeView) -> list[str]:
    """Return the tasks with a rank on the node, sorted."""
    return sorted({worker.task for worker in node.workers if worker.task is not None})
