"""A node: its state, its workers, the findings of its probes, and its faults."""

from console.viewmodel.console_state import State
from console.viewmodel.details.labelled import (
    commands,
    events_of,
    instant,
    label_line,
    labelled,
    title,
)
from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.numbers import mebibytes, seconds
from console.viewmodel.drawing.text import Line, Tone, span
from console.viewmodel.panels.incidents_panel import incident_line
from console.viewmodel.panels.nodes_panel import node_word
from console.viewmodel.words import marked
from controller.api.views import NodeCondition, NodeView, WorkerView


def node_lines(state: State, name: str, width: int, glyphs: Glyphs) -> list[Line]:
    """Return all that is known of a node."""
    view = state.view
    node = next((each for each in view.nodes if each.node == name), None) if view else None
    if view is None or node is None:
        return [Line((span(f"there is no node {name} any more", Tone.WARN),))]
    lines = [
        label_line("condition", marked(node_word(node), glyphs)),
        *labelled("why", node.isolated or node.note, width, glyphs, Tone.WARN),
        *_upkeep(state, node, width, glyphs),
        *labelled("address", node.address, width, glyphs),
        *_agent(state, node, width, glyphs),
        Line(),
        title(f"WORKERS {len(node.workers)}"),
        *(_worker(each, glyphs) for each in node.workers),
        Line(),
        title(f"FINDINGS {len(node.findings)}"),
    ]
    for finding in node.findings:
        lines += labelled(glyphs.warn, finding, width, glyphs, Tone.WARN)
    incidents = [each for each in view.incidents if name in {each.node, *each.nodes}]
    lines += [Line(), title(f"INCIDENTS {len(incidents)}")]
    lines += [incident_line(state, each, width, glyphs) for each in reversed(incidents)]
    return [*lines, *commands(_verbs(node)), *events_of(state, [name], width, glyphs)]


def _upkeep(state: State, node: NodeView, width: int, glyphs: Glyphs) -> list[Line]:
    if node.upkeep is None:
        return []
    why = f": {node.upkeep.reason}" if node.upkeep.reason else ""
    since = instant(state, node.upkeep.since)
    text = f"{node.upkeep.state} since {since}, ordered by {node.upkeep.by}{why}"
    return labelled("upkeep", text, width, glyphs)


def _agent(state: State, node: NodeView, width: int, glyphs: Glyphs) -> list[Line]:
    if node.agent_pid is None:
        return labelled("agent", "none is in contact", width, glyphs, Tone.DIM)
    memory = "" if node.agent_rss_bytes is None else f", {mebibytes(node.agent_rss_bytes)}"
    age = (
        ""
        if node.heartbeat_at is None
        else f", last heartbeat {seconds(state.cluster_now - node.heartbeat_at)} ago"
    )
    return labelled("agent", f"process {node.agent_pid}{memory}{age}", width, glyphs)


def _worker(slot: WorkerView, glyphs: Glyphs) -> Line:
    number = f"{slot.worker:>3}  "
    if slot.isolated:
        return Line((span(number), span(f"{glyphs.bad} isolated: {slot.isolated}", Tone.BAD)))
    if slot.waits_for is not None:
        return Line((span(number), span(f"{glyphs.idle} spare for {slot.waits_for}", Tone.DIM)))
    if slot.task is None:
        return Line((span(number), span(f"{glyphs.idle} idle", Tone.DIM)))
    memory = "" if slot.rss_bytes is None else f", {mebibytes(slot.rss_bytes)}"
    at = "" if slot.iteration is None else f", iteration {slot.iteration}"
    if slot.pid is None:
        return Line(
            (
                span(number),
                span(f"{glyphs.busy} rank {slot.global_rank} of {slot.task} starts", Tone.BUSY),
            )
        )
    text = f"rank {slot.global_rank} of {slot.task}, process {slot.pid}{at}{memory}"
    return Line((span(number), span(f"{glyphs.ok} ", Tone.GOOD), span(text)))


def _verbs(node: NodeView) -> tuple[str, ...]:
    """Return the commands that make sense for a node in its state."""
    name = node.node
    if node.upkeep is not None and node.upkeep.state in {"repair", "drained"}:
        return (f"unicron repair {name} --done", f"unicron uncordon {name}")
    if node.isolated:
        return (f"unicron repair {name}", f"unicron uncordon {name}")
    if node.asked_at is not None or node.condition is NodeCondition.UNREACHABLE:
        return (f"unicron unreachable {name} --lost", f"unicron unreachable {name} --wait")
    return (f"unicron cordon {name}", f"unicron drain {name} --wait", f"unicron isolate {name}")
