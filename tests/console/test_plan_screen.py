"""The screen of a plan: placement, pauses as predicted and as they were, cost terms."""

import pytest

from console.viewmodel.console_state import Link, LinkPhase, State
from console.viewmodel.details.plan_detail import plan_detail_lines
from console.viewmodel.drawing.glyphs import ASCII, UNICODE, Glyphs
from controller.api.views import (
    ClusterView,
    ExplanationView,
    PlanState,
    PlanView,
    StepView,
    TermsView,
    TransitionView,
    WaitingView,
)
from tests.fakes import cluster_views

DECIDED_AT = 138.0


def state(plan: PlanView, transition: TransitionView | None = None) -> State:
    view = cluster_views.healed()
    tasks = [
        each.model_copy(update={"transition": transition if each.name == "gpt-b" else None})
        for each in view.tasks
    ]
    shown = view.model_copy(update={"plans": [plan], "tasks": tasks})
    return State(now=50.0, link=Link(LinkPhase.LIVE), view=shown, view_at=50.0)


def applied(**changes: object) -> PlanView:
    plan = cluster_views.plan(state=PlanState.APPLIED, approved_by="ann", decided_at=DECIDED_AT)
    moved = [each.model_copy(update={"transition_s": 4.2}) for each in plan.changes]
    return plan.model_copy(update={"changes": moved, **changes})


def restart(decided_at: float, *, is_done: bool = True) -> TransitionView:
    steps = [StepView(name="form", predicted_s=1.0, actual_s=1.5)]
    return TransitionView(
        decided_at=decided_at, kind="restart", steps=steps, predicted_s=4.2, actual_s=5.0,
        is_done=is_done,
    )  # fmt: skip


def text_of(state: State, width: int = 120, glyphs: Glyphs = UNICODE) -> str:
    return "\n".join(line.text for line in plan_detail_lines(state, "P-2", width, glyphs))


def test_only_nodes_that_change_are_on_the_map_and_are_counted() -> None:
    text = text_of(state(cluster_views.plan()))
    assert "n4            BB  →  ··  2 workers change  out" in text
    assert "3 other nodes without a change" in text
    assert "n1  " not in text.split("PLACEMENT")[1].split("PAUSES")[0]
    assert "n4            BB  ->  --  2 workers change  out" in text_of(
        state(cluster_views.plan()), glyphs=ASCII
    )


@pytest.mark.parametrize(
    ("plan", "transition", "words"),
    [
        (cluster_views.plan(), None, "not measured  not yet"),
        (applied(), restart(DECIDED_AT + 1), "4.2 s  5.0 s"),
        (applied(), restart(DECIDED_AT + 1, is_done=False), "4.2 s  5.0 s so far"),
        (applied(), restart(DECIDED_AT - 1), "no longer known"),
        (applied(), None, "no longer known"),
        (applied(state=PlanState.REJECTED), restart(DECIDED_AT + 1), "was rejected"),
    ],
)
def test_a_pause_is_compared_with_the_transition_of_its_plan(
    plan: PlanView, transition: TransitionView | None, words: str
) -> None:
    [line] = [
        line for line in text_of(state(plan, transition)).splitlines() if line.startswith("gpt-b  ")
    ]
    assert words in line


def test_a_transition_after_a_later_fault_or_plan_is_not_taken_for_that_of_the_plan() -> None:
    found = state(applied(), restart(DECIDED_AT + 5))
    assert found.view is not None
    later = cluster_views.killed_rank().model_copy(
        update={"task": "gpt-b", "detected_at": DECIDED_AT + 3}
    )
    other = applied(id="P-3", decided_at=DECIDED_AT + 3)
    for changes in ({"incidents": [later]}, {"plans": [*found.view.plans, other]}):
        view = found.view.model_copy(update=changes)
        shown = State(now=50.0, link=found.link, view=view, view_at=50.0)
        assert "no longer known" in text_of(shown)
    assert "no longer known" not in text_of(found)


def test_transitions_of_the_run_stand_beside_the_predictions() -> None:
    text = text_of(state(applied(), restart(DECIDED_AT + 1)))
    assert "newest transitions of this run: gpt-b restart 4.2 s predicted, 5.0 s taken" in text
    assert "newest transitions of this run: not measured" in text_of(state(applied()))


def test_terms_are_shown_when_they_are_computed() -> None:
    assert "not computed yet" in text_of(state(applied()))
    explanation = ExplanationView(
        terms=[TermsView(name="gpt-b", earned=4.0e18, forgone=2.0e16)], alternatives=[],
        sensitivity=[], waiting=WaitingView(weighted_flop_per_min=1.0, gpu_hours_per_min=0.1),
    )  # fmt: skip
    text = text_of(state(applied(explanation=explanation)))
    assert "earns  4.00E  its pause costs  20.0P, 0.5%" in text


def test_a_large_plan_shows_some_nodes_and_counts_the_others() -> None:
    plan = cluster_views.plan()
    change = plan.changes[1].model_copy(
        update={
            "placement_before": [f"m{number}:0-7" for number in range(300)],
            "placement_after": [],
        }
    )
    text = text_of(state(plan.model_copy(update={"changes": [change]})))
    assert "and 236 nodes more" in text
    assert text.count("8 workers change") == 64


@pytest.mark.parametrize("width", [40, 80, 200])
def test_any_text_stays_in_its_row(width: int) -> None:
    plan = cluster_views.plan()
    hostile = "\x1b[31m[b]x\n" + "y" * 300
    change = plan.changes[1].model_copy(
        update={"task": hostile, "placement_before": [f"{hostile}:0", "n3", "n3:x", "n3:1-y"]}
    )
    view = state(plan.model_copy(update={"changes": [change], "isolated_nodes": [hostile]}))
    for line in plan_detail_lines(view, "P-2", width, UNICODE):
        assert "\x1b" not in line.text
        assert "\n" not in line.text


def test_a_plan_that_is_forgotten_says_so() -> None:
    view: ClusterView = cluster_views.calm()
    [line] = plan_detail_lines(State(view=view), "P-9", 80, UNICODE)
    assert "P-9 is no longer among the newest plans" in line.text
