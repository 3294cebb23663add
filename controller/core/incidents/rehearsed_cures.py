"""A rehearsal: what would be done about a fault is recorded, and an operator is asked first.

Until he approves, the fault stays unnamed for everybody else: its task waits parked, with all its
state. New evidence may ask for another cure; an approval is for the cure that was shown.
"""

from controller.core.rules.actions import Handling
from controller.core.rules.diagnosis import Diagnosis
from controller.core.state.incident import Incident
from controller.core.state.plan import Plan
from controller.core.state.turn import Turn


def asks_first(turn: Turn, incident: Incident, diagnosis: Diagnosis, handling: Handling) -> bool:
    """Return whether a cure has to wait for an operator; a new one is recorded and announced."""
    if not turn.policy.is_rehearsal:
        return False
    reason = "; ".join(filter(None, (diagnosis.reason, handling.why)))
    action = str(handling.action)
    if incident.rehearse(turn.at, action, f"{diagnosis.status}: {reason}"):
        turn.announce(
            "error", "rehearsed", incident.name,
            f"{diagnosis.status}: {reason}; auto-heal would {action} now:"
            f" `unicron approve {incident.name}` does",
            action=action, task=incident.task,
        )  # fmt: skip
    return incident.awaits_consent


def rehearse_plan(turn: Turn, plan: Plan) -> None:
    """Record for the incidents of a plan that auto-heal would have applied it."""
    for name in plan.incidents:
        incident = turn.state.incidents.find(name)
        if incident is not None:
            incident.rehearse(turn.at, "reconfigure", f"{plan.name}: {plan.why}")
