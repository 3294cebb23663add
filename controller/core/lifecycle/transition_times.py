"""How long a task's steps from one generation to the next take, and what is learned from that.

The one writer of ``Transitions`` and of the transition in it.
"""

from collections.abc import Mapping

from controller.core.rules.transitions import kind_of
from controller.core.state.rank import RankState
from controller.core.state.task import TaskState
from controller.core.state.task_records import Target
from controller.core.state.turn import Turn


def begin_transition(
    turn: Turn, task: TaskState, target: Target, ranks: Mapping[int, RankState]
) -> None:
    """A generation begins at ``target``; the first one of a task is no transition."""
    place, parking, transitions = task.place, task.lifecycle.parking, task.transitions
    if place is None:
        transitions.current = None
        return
    kind = kind_of(
        place.layout,
        target.layout,
        is_same_place=place.placement == target.placement,
        has_new_process=any(rank.continues is None for rank in ranks.values()),
    )
    begin, step_s = transitions.experience.begin, turn.policy.step_s
    if parking is None:
        transitions.current = begin(kind, ("stop", task.stopping.took_s), turn.at, step_s)
        return
    park_s = (turn.at if parking.parked_at is None else parking.parked_at) - parking.since
    transitions.current = begin(kind, ("park", park_s), turn.at, step_s)


def note_states(turn: Turn, task: TaskState, *, form_s: float, state_s: float) -> None:
    """All ranks have their state."""
    if task.transitions.current:
        task.transitions.current.join(turn.at, form_s=form_s, state_s=state_s)


def finish_transition(turn: Turn, task: TaskState) -> None:
    """The task trains again: learn what the transition took."""
    transition = task.transitions.current
    if transition is None:
        return
    if task.spec.is_command:
        # A command reports neither when its ranks met nor when they had loaded: the first
        # iteration holds both.
        transition.join(transition.decided_at, form_s=0.0, state_s=0.0)
    transition.finish(turn.at)
    task.transitions.experience.learn(transition)
    took_s, predicted_s = transition.total_actual_s, transition.total_predicted_s
    steps = ", ".join(f"{step} {seconds:.2f}" for step, seconds in transition.actual_s.items())
    turn.announce(
        "info", "transition", task.spec.task,
        f"{transition.kind} in {took_s:.2f} s (predicted {predicted_s:.2f} s): {steps}",
        transition=transition.kind, generation=task.generation, took_s=took_s,
        predicted_s=predicted_s,
        **{f"{step.replace(' ', '_')}_s": seconds for step, seconds in transition.actual_s.items()},
    )  # fmt: skip


def drop_transition(task: TaskState) -> None:
    """The task runs again, and nobody saw when it began to train: there is nothing to learn."""
    task.transitions.current = None


def learn_nothing(task: TaskState) -> None:
    """The transition under way takes longer for a reason that no other one will have."""
    if task.transitions.current is not None:
        task.transitions.current.teaches = False


def learn_nothing_unless_done(task: TaskState) -> None:
    """A controller was away: only a transition that was done before has a known duration."""
    transition = task.transitions.current
    if transition:
        transition.teaches = transition.is_done
