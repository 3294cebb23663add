"""A task that trains nonsense: its loss or gradient norm jumps, and stays.

The jump is committed already, and is the same on every rank: no process is at fault, and another one
would train on with it. So nothing is restarted and nobody is halted. Operators get an incident, which
ends when the figures come down; to go back to an older checkpoint is for them to decide.

A loss of Unicron's own loops that is not finite never comes here: it is not committed, its ranks raise
an exception. What other programs print is committed by them, whatever it is.
"""

from controller.core.incidents.naming import hand_over
from controller.core.incidents.resolution import end_handed_over
from controller.core.rules.evidence import Evidence
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from nodeagent.protocol.observations import IterationCommitted


def note_figures(
    turn: Turn, task: TaskState, commit: IterationCommitted, observed_at: float
) -> None:
    """Compare loss and gradient norm of a new iteration with their levels."""
    levels = task.watch.levels
    change = levels.take(commit.loss, commit.grad_norm, turn.policy)
    if change == "ends":
        end_handed_over(turn, task, "loss and gradient norm are back at their levels")
    elif change == "begins":
        figures = levels.describe(commit.loss, commit.grad_norm)
        num = turn.policy.spike_iterations
        evidence = Evidence(
            kind="numbers",
            at=turn.at,
            observed_at=observed_at,
            node=None,
            task=task.spec.task,
            global_rank=None,
            summary=f"{num} iterations in a row up to {commit.iteration} spike: {figures}",
        )
        hand_over(turn, task, evidence)
