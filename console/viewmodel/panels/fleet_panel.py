"""The fleet at a glance: a sign per worker, per node, or per group of nodes, whatever fits.

A cell of several workers shows the worst of them, so nothing that is wrong is averaged away.
"""

from collections.abc import Sequence
from typing import Final

from console.viewmodel.console_state import State
from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.numbers import plural
from console.viewmodel.drawing.text import Ground, Line, Span, Tone, fit, span
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


def fleet_lines(state: State, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Return the heading and the map, in ``width`` by ``height`` cells."""
    nodes = state.view.nodes if state.view else []
    counts = [0] * len(_WORDS)
    worst = [_count(node, counts) for node in nodes]
    rows, unit = _map(nodes, worst, max(1, width - _LABEL - 2), max(1, height - 1))
    words = [
        Span(f"  {getattr(glyphs, sign)} {counts[kind]} {word}", tone)
        for word, (kind, sign, tone) in reversed(_WORDS)
        if counts[kind]
    ]
    head = (
        Span("  "),
        span(f"WORKERS {sum(counts)}", Tone.TITLE),
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
    nodes: Sequence[NodeView], worst: Sequence[FleetSign], width: int, height: int
) -> tuple[list[tuple[str, list[FleetSign | None]]], str]:
    """Return rows of a label and cells, and what a cell is. None is a gap between nodes."""
    widest = max((len(node.workers) for node in nodes), default=0)
    per_row = width // (widest + 1)
    if nodes and per_row and -(-len(nodes) // per_row) <= height:
        rows = [nodes[first : first + per_row] for first in range(0, len(nodes), per_row)]
        return [(row[0].node, _cells(row)) for row in rows], "a sign is a worker"
    size = max(1, -(-len(nodes) // (width * height)))
    joined = [max(worst[first : first + size]) for first in range(0, len(worst), size)]
    found: list[tuple[str, list[FleetSign | None]]] = [
        (nodes[first * size].node, list(joined[first : first + width]))
        for first in range(0, len(joined), width)
    ]
    return found, f"a sign is {plural(size, 'node')}: the worst"


def _cells(nodes: Sequence[NodeView]) -> list[FleetSign | None]:
    cells: list[FleetSign | None] = []
    for node in nodes:
        of_all = _of_condition(node)
        cells += [of_all or _of_worker(worker) for worker in node.workers]
        cells.append(None)
    return cells[:-1]


def _count(node: NodeView, counts: list[int]) -> FleetSign:
    """Count a node's workers by kind, and return the worst; an idle one is no worse than others."""
    of_all = _of_condition(node)
    if of_all is not None:
        counts[of_all[0]] += len(node.workers)
        return of_all
    worst = _IDLE if node.workers else _STARTS
    is_used = False
    for worker in node.workers:
        kind = _of_worker(worker)
        counts[kind[0]] += 1
        if kind is not _IDLE:
            worst, is_used = (max(worst, kind) if is_used else kind), True
    return worst


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
