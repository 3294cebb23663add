"""What happened while the console had no connection: said in one line when it is back."""

from dataclasses import dataclass

from console.viewmodel.drawing.numbers import plural, seconds
from controller.api.views import ClusterView, NodeCondition

_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class LinkAbsence:
    """The last view before the connection was lost, and when that was."""

    since: float
    view: ClusterView


def missed(absence: LinkAbsence, view: ClusterView, now: float) -> str:
    """Return what ``view`` shows that the console has not seen happen."""
    before = absence.view
    away = f"after {seconds(now - absence.since)}"
    if before.started_wall_s != view.started_wall_s:
        return f"{away}: this is another run"
    known = {incident.id for incident in before.incidents}
    parts = [
        _named("new incident", [each.id for each in view.incidents if each.id not in known]),
        _named("plan decided", _decided(before, view), is_counted=False),
        _named("node lost", _lost(before, view), is_counted=False),
        _taken_over(before, view),
    ]
    told = "; ".join(part for part in parts if part)
    return f"{away}: {told}" if told else f"{away}: nothing new"


def _named(noun: str, names: list[str], *, is_counted: bool = True) -> str:
    if not names:
        return ""
    shown = ", ".join(names[:_MOST_NAMED])
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    head = plural(len(names), noun) if is_counted else noun
    return f"{head} {shown}{more}"


def _decided(before: ClusterView, view: ClusterView) -> list[str]:
    states = {plan.id: plan.state for plan in before.plans}
    found = []
    for plan in view.plans:
        if plan.decided_at is not None and states.get(plan.id) is not plan.state:
            by = f" by {plan.approved_by}" if plan.approved_by else ""
            found.append(f"{plan.id} {plan.state.value}{by}")
    return found


def _lost(before: ClusterView, view: ClusterView) -> list[str]:
    gone = {node.node for node in before.nodes if node.condition is NodeCondition.LOST}
    return [
        node.node
        for node in view.nodes
        if node.condition is NodeCondition.LOST and node.node not in gone
    ]


def _taken_over(before: ClusterView, view: ClusterView) -> str:
    if before.controller is None or view.controller is None:
        return ""
    is_same = before.controller.term == view.controller.term
    return "" if is_same else f"controller {view.controller.term} has taken over"
