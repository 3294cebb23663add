"""A task that diverges: its loss or gradient norm jumps, and stays high.

The jump is committed already and is the same on every rank. No process is at fault, and a new
process would train on with the same state. So nothing is restarted or halted. Operators get an
incident, which ends when the figures come down. Only an operator can decide to go back to an older
checkpoint.

A loss that is not finite is never committed by Unicron's own loops: their ranks raise an exception.
Other programs may print and commit any loss.

A loss that only follows the number of replicas is no divergence (``rules.loss_scale``).
"""

from controller.core.incidents.naming import hand_over
from controller.core.incidents.resolution import end_handed_over
from controller.core.rules.evidence import Evidence
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from nodeagent.protocol.observations import IterationCommitted


def note_loss_scale(turn: Turn, task: TaskState, commit: IterationCommitted) -> None:
    """Announce once that the loss follows the number of replicas, and how to mend that."""
    layout = task.layout
    if layout is None:
        return
    found = task.watch.loss_scale.take(
        commit.iteration, commit.loss, layout.dp, task.spec.num_micro_batches
    )
    if found is None:
        return
    turn.announce(
        "warning", "loss_scaled", task.spec.task,
        f"its loss went from {found.before:.4g} to {found.after:.4g} when its replicas went from"
        f" {found.replicas_before} to {found.replicas_after}: it seems to be divided by"
        f" {found.divisor}. Report the mean over the global batch, before that division; and if the"
        " gradients are divided alike, the learning rate follows the size of the task",
        iteration=commit.iteration, before=found.before, after=found.after,
        replicas_before=found.replicas_before, replicas_after=found.replicas_after,
    )  # fmt: skip


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
