"""The fleet at a glance: a sign per worker, per node, or per group of nodes, whatever fits.

A cell of several workers shows the worst of them, so nothing that is wrong is averaged away.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from console.viewmodel.console_state import State
from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.numbers import plural
from console.viewmodel.drawing.text import Ground, Line, Span, Tone, fit, span
from console.viewmodel.kept_by_node import KeptByNode
from controller.api.views import NodeCondition, NodeView, WorkerView

FleetSign = tuple[int, str, Tone]
"""How bad it is, the name of its sign, and its tone."""

_TRAINS: Final = (0, "ok", Tone.GOOD)
_IDLE: Final = (1, "idle", Tone.DIM)
_STARTS: Final = (2, "busy", Tone.BUSY)
_HELD: Final = (3, "held", Tone.WARN)
_SUSPECT: Final = (4, "warn", Tone.WARN)
_AWAY: Final = (5, "ask", Tone.WARN)
_OUT: Final = (6, "bad", Tone.BAD)
_WORDS: Final = (
    ("trains", _TRAINS), ("idle", _IDLE), ("starts", _STARTS), ("held", _HELD),
    ("suspect", _SUSPECT), ("unreachable", _AWAY), ("out", _OUT),
)  # fmt: skip
_LABEL: Final = 7


class _NodeSigns(NamedTuple):
    """The signs of a node's workers, and the worst; an idle one is no worse than others."""

    workers: tuple[FleetSign, ...]
    worst: FleetSign


def fleet_lines(state: State, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Return the heading and the map, in ``width`` by ``height`` cells."""
    nodes = state.view.nodes if state.view else []
    signs = _SIGNS_OF_NODES.of(nodes)
    counts = Counter(sign for each in signs for sign in each.workers)
    rows, unit = _map(nodes, signs, max(1, width - _LABEL - 2), max(1, height - 1))
    words = [
        Span(f"  {getattr(glyphs, sign[1])} {counts[sign]} {word}", sign[2])
        for word, sign in reversed(_WORDS)
        if counts[sign]
    ]
    head = (
        Span("  "),
        span(f"WORKERS {counts.total()}", Tone.TITLE),
        *words,
        Span(f"  {unit}", Tone.DIM),
    )
    lines = [Line(fit(head, width, glyphs.ellipsis), Ground.HEADING)]
    for label, cells in rows:
        spans = (
            Span(" ") if cell is None else Span(getattr(glyphs, cell[1]), cell[2]) for cell in cells
        )
        name = fit((span(label, Tone.DIM),), _LABEL - 1, glyphs.ellipsis)
        lines.append(Line((Span("  "), *name, Span(" "), *spans)))
    return lines[:height]


def _map(
    nodes: Sequence[NodeView], signs: Sequence[_NodeSigns], width: int, height: int
) -> tuple[list[tuple[str, list[FleetSign | None]]], str]:
    """Return rows of a label and cells, and what a cell is. None is a gap between nodes."""
    widest = max((len(node.workers) for node in nodes), default=0)
    per_row = width // (widest + 1)
    if nodes and per_row and -(-len(nodes) // per_row) <= height:
        firsts = range(0, len(nodes), per_row)
        rows = [(nodes[first].node, _cells(signs[first : first + per_row])) for first in firsts]
        return rows, "a sign is a worker"
    worst = [each.worst for each in signs]
    size = max(1, -(-len(nodes) // (width * height)))
    joined = [max(worst[first : first + size]) for first in range(0, len(worst), size)]
    found: list[tuple[str, list[FleetSign | None]]] = [
        (nodes[first * size].node, list(joined[first : first + width]))
        for first in range(0, len(joined), width)
    ]
    return found, f"a sign is {plural(size, 'node')}: the worst"


def _cells(signs: Sequence[_NodeSigns]) -> list[FleetSign | None]:
    cells: list[FleetSign | None] = []
    for each in signs:
        cells += each.workers
        cells.append(None)
    return cells[:-1]


def _signs_of(node: NodeView) -> _NodeSigns:
    of_all = _of_condition(node)
    if of_all is not None:
        return _NodeSigns((of_all,) * len(node.workers), of_all)
    signs = tuple(_of_worker(worker) for worker in node.workers)
    used = [sign for sign in signs if sign is not _IDLE]
    return _NodeSigns(signs, max(used) if used else _IDLE if signs else _STARTS)


_SIGNS_OF_NODES: Final = KeptByNode(_signs_of)


def _of_condition(node: NodeView) -> FleetSign | None:
    """Return what the node as a whole makes of all its workers; None if they count themselves."""
    if node.condition is NodeCondition.LOST or node.isolated:
        return _OUT
    if node.condition is NodeCondition.UNREACHABLE:
        return _AWAY
    if node.condition is not NodeCondition.HEALTHY:
        return _STARTS
    if node.upkeep is not None:
        return _HELD
    return _SUSPECT if node.findings else None


def _of_worker(worker: WorkerView) -> FleetSign:
    if worker.isolated:
        return _OUT
    if worker.task is None:
        return _IDLE
    return _STARTS if worker.pid is None else _TRAINS
