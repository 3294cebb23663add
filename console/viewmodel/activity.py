"""One action of this operator, from the key press to its proven effect.

A reply from the controller only means that the command was accepted. An action counts as done when
a later view shows its effect: the plan is applied, a new plan waits, the drilled fault is cured. A
command whose reply never came is ``UNKNOWN``, never "failed": it may have happened.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from console.viewmodel.drawing.numbers import latency
from controller.api.views import ClusterView, IncidentState, NodeCondition, PlanState
from controller.api.wire import Reply


class ActionPhase(StrEnum):
    """How far an action has come."""

    SENT = "sent"
    ACCEPTED = "accepted"
    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "outcome unknown"


@dataclass(frozen=True, slots=True)
class PlanEffect:
    """Done when the plan reaches ``goal``."""

    plan: str
    goal: PlanState


@dataclass(frozen=True, slots=True)
class ProposalEffect:
    """Done when a plan waits that is not among ``known``."""

    known: frozenset[str]


@dataclass(frozen=True, slots=True)
class DrillEffect:
    """Followed through the first incident that is not among ``known``.

    A drill that must not cause an incident (a lost connection) has nothing to follow.
    """

    known: frozenset[str]
    expectation: str = ""


@dataclass(frozen=True, slots=True)
class LossEffect:
    """Done when the node is lost, or is not asked about any more."""

    node: str
    is_lost: bool


@dataclass(frozen=True, slots=True)
class SeenEffect:
    """Done when ``shown`` finds it in a view: it returns what is so, or an empty string."""

    shown: Callable[[ClusterView], str]


Effect = PlanEffect | ProposalEffect | DrillEffect | LossEffect | SeenEffect | None
"""None: the reply says that the action is done."""


@dataclass(frozen=True, slots=True)
class Activity:
    """One action. ``message`` explains the phase in the controller's or the console's words."""

    request_id: str
    title: str
    phase: ActionPhase
    sent_at: float
    changed_at: float
    message: str = ""
    effect: Effect = None

    @property
    def is_open(self) -> bool:
        """Whether its outcome is still open."""
        return self.phase in (ActionPhase.SENT, ActionPhase.ACCEPTED)


def answered(activity: Activity, reply: Reply, at: float) -> Activity:
    """Return the activity after the controller's reply."""
    if not reply.is_ok:
        message = f"{reply.message} ({reply.code})" if reply.message else reply.code
        return replace(activity, phase=ActionPhase.REFUSED, changed_at=at, message=message)
    message = reply.message
    if activity.effect is None:
        return replace(activity, phase=ActionPhase.DONE, changed_at=at, message=message)
    if isinstance(activity.effect, DrillEffect) and not message:
        message = activity.effect.expectation
    return replace(activity, phase=ActionPhase.ACCEPTED, changed_at=at, message=message)


def followed(activity: Activity, view: ClusterView, at: float) -> Activity:
    """Return the activity after what ``view`` shows of its effect."""
    if activity.phase is not ActionPhase.ACCEPTED:
        return activity
    match activity.effect:
        case PlanEffect() as effect:
            activity = _followed_plan(activity, effect, view, at)
        case ProposalEffect(known):
            activity = _followed_proposal(activity, known, view, at)
        case DrillEffect(known):
            activity = _followed_drill(activity, known, view, at)
        case LossEffect() as loss:
            activity = _followed_loss(activity, loss, view, at)
        case SeenEffect(shown):
            if done := shown(view):
                activity = _now(activity, ActionPhase.DONE, done, at)
        case None:
            pass
    return activity


def _followed_plan(
    activity: Activity, effect: PlanEffect, view: ClusterView, at: float
) -> Activity:
    state = next((plan.state for plan in view.plans if plan.id == effect.plan), None)
    if state is effect.goal:
        return _now(activity, ActionPhase.DONE, f"{effect.plan} is {effect.goal}", at)
    if state in (PlanState.SUPERSEDED, PlanState.REJECTED, PlanState.APPLIED):
        return _now(activity, ActionPhase.REFUSED, f"{effect.plan} was {state}", at)
    if state is PlanState.APPROVED:
        return _now(activity, ActionPhase.ACCEPTED, f"{effect.plan} is being applied", at)
    return activity


def _followed_proposal(
    activity: Activity, known: frozenset[str], view: ClusterView, at: float
) -> Activity:
    for plan in view.plans:
        if plan.id not in known and plan.state is PlanState.PENDING:
            return _now(activity, ActionPhase.DONE, f"{plan.id} waits for you", at)
    return activity


def _followed_loss(
    activity: Activity, effect: LossEffect, view: ClusterView, at: float
) -> Activity:
    node = next((one for one in view.nodes if one.node == effect.node), None)
    if node is None or (effect.is_lost and node.condition is NodeCondition.UNREACHABLE):
        return activity
    if effect.is_lost is (node.condition is NodeCondition.LOST):
        is_done = effect.is_lost or node.asked_at is None
        message = f"{node.node} is {node.condition}"
        return _now(activity, ActionPhase.DONE, message, at) if is_done else activity
    return _now(activity, ActionPhase.REFUSED, f"{node.node} is {node.condition}", at)


def _followed_drill(
    activity: Activity, known: frozenset[str], view: ClusterView, at: float
) -> Activity:
    incident = next((one for one in view.incidents if one.id not in known), None)
    if incident is None:
        return activity
    found = max(0.0, incident.detected_at - incident.fault_at)
    message = f"{incident.id} {incident.status}: found after {latency(found)}, {incident.state}"
    if incident.state is IncidentState.RESOLVED and incident.resolved_at is not None:
        if incident.is_recovery_unseen:
            return _now(
                activity, ActionPhase.DONE, f"{incident.id} {incident.status}: resolved", at
            )
        took = max(0.0, incident.resolved_at - incident.fault_at)
        return _now(activity, ActionPhase.DONE, f"{message} after {latency(took)}", at)
    return _now(activity, ActionPhase.ACCEPTED, message, at)


def _now(activity: Activity, phase: ActionPhase, message: str, at: float) -> Activity:
    if (activity.phase, activity.message) == (phase, message):
        return activity
    return replace(activity, phase=phase, message=message, changed_at=at)
