"""A rehearsal: what would be done about a fault is recorded, and an operator is asked first.

Until he approves, the fault stays unnamed for everybody else: its task waits parked, with all its
state. New evidence may ask for another cure; an approval is for the cure that was shown.
"""

from controller.core.incidents.naming import cause_of
from controller.core.rules.actions import Handling
from controller.core.rules.diagnosis import Diagnosis
from controller.core.state.incident import Incident
from controller.core.state.plan import Plan
from controller.core.state.turn import Turn


def asks_first(turn: Turn, incident: Incident, diagnosis: Diagnosis, handling: Handling) -> bool:
    """Return whether a cure has to wait for an operator; a new one is recorded and announced."""
    if not turn.policy.is_rehearsal:
        return False
    action, cause = str(handling.action), cause_of(turn, incident, diagnosis, handling)
    if incident.rehearse(turn.at, action, f"{cause.status}: {cause.reason}"):
        incident.name_cause(cause)
        where = f" on {cause.node}" if cause.node else ""
        turn.announce(
            "error", "rehearsed", incident.name,
            f"{cause.severity} {cause.status}{where}: {cause.reason}; auto-heal would {action} now:"
            f" `unicron approve {incident.name}` does",
            action=action, task=incident.task, node=cause.node,
        )  # fmt: skip
    return incident.awaits_consent


def rehearse_plan(turn: Turn, plan: Plan) -> None:
    """Record for the incidents of a plan that auto-heal would have applied it."""
    for name in plan.incidents:
        incident = turn.state.incidents.find(name)
        if incident is not None:
            incident.rehearse(turn.at, "reconfigure", f"{plan.name}: {plan.why}")
