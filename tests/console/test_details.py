"""Enter opens a screen about a node, task, incident or plan, and Escape goes back."""

import pytest

from console.screens.detail_screen import DetailScreen
from console.screens.overview import Overview
from console.viewmodel.console_state import State
from console.viewmodel.details.detail import DetailSubject, detail_lines, subject_of_alert
from console.viewmodel.drawing.glyphs import UNICODE
from controller.api.views import (
    ClusterView,
    IncidentState,
    PlanState,
    RehearsedCureView,
    UpkeepView,
)
from tests.console.bench import Bench, console
from tests.console.test_overview import assert_fits, check
from tests.fakes import cluster_views

SIZES = [(80, 24), (120, 40), (200, 60)]
TABS = {"node": 0, "task": 1, "incident": 2, "plan": 2}
"""How often tab is pressed until the panel has the focus."""


async def open_first(bench: Bench, kind: str) -> None:
    for _ in range(TABS[kind]):
        await bench.press("tab")
    if kind != "plan":
        await bench.press("down")
    await bench.press("enter")
    await bench.settle()
    assert isinstance(bench.app.screen, DetailScreen), bench.screen


def scene(kind: str) -> ClusterView:
    return cluster_views.waiting() if kind == "plan" else cluster_views.healed()


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("kind", TABS)
async def test_details_look_as_agreed(kind: str, size: tuple[int, int]) -> None:
    async with console(scene(kind), *cluster_views.log(40), size=size) as bench:
        await open_first(bench, kind)
        assert_fits(bench.screen, size)
        check(f"detail-{kind}-{size[0]}x{size[1]}", bench.screen)


async def test_escape_goes_back_and_the_row_is_still_chosen() -> None:
    async with console(cluster_views.calm()) as bench:
        await bench.press("down", "down", "enter")
        assert "node n2" in bench.screen.splitlines()[1]
        await bench.press("escape")
        await bench.settle()
        assert isinstance(bench.app.screen, Overview)
        assert bench.app.subject == DetailSubject("node", "n2")


async def test_enter_without_a_row_opens_nothing() -> None:
    async with console(cluster_views.calm()) as bench:
        await bench.press("enter")
        assert isinstance(bench.app.screen, Overview)


async def test_a_screen_is_scrolled_and_says_where_it_is() -> None:
    async with console(cluster_views.waiting(), *cluster_views.log(40)) as bench:
        await open_first(bench, "node")
        first = bench.screen
        await bench.press("down")
        assert "2-" in bench.screen.splitlines()[1]
        await bench.press("home")
        assert bench.screen == first
        await bench.press("end")
        assert "following" not in bench.screen
        last = bench.screen
        await bench.press("down", "pagedown")
        assert bench.screen == last, "there is nothing below the end"


async def test_a_screen_follows_the_state_and_survives_what_it_is_about() -> None:
    view = cluster_views.calm()
    async with console(view) as bench:
        await open_first(bench, "task")
        assert "iteration  118" in bench.screen
        task = cluster_views.task("gpt-a", 121)
        await bench.show(view.model_copy(update={"tasks": [task, view.tasks[1]]}))
        assert "iteration  121" in bench.screen
        await bench.show(view.model_copy(update={"tasks": view.tasks[1:]}))
        assert "there is no task gpt-a any more" in bench.screen


async def test_no_key_of_the_overview_acts_behind_a_screen() -> None:
    async with console(cluster_views.waiting(), is_armed=True) as bench:
        await open_first(bench, "node")
        await bench.press("A", "X", "I", "P", "t")
        assert isinstance(bench.app.screen, DetailScreen)
        assert bench.source.sent == []


async def test_a_node_shows_who_ordered_what_and_the_commands_that_help() -> None:
    calm = cluster_views.calm()
    upkeep = UpkeepView(state="repair", by="eve", since=10.0, reason="new fan")
    node = calm.nodes[0].model_copy(update={"upkeep": upkeep, "findings": ["disk: 2 % free"]})
    view = calm.model_copy(update={"nodes": [node, *calm.nodes[1:]]})
    async with console(view, size=(120, 40)) as bench:
        assert "repair" in bench.screen.splitlines()[2]
        assert "by eve: new fan" in bench.screen.splitlines()[2]
        await open_first(bench, "node")
        assert "ordered by eve: new fan" in bench.screen
        assert "disk: 2 % free" in bench.screen
        assert "unicron repair n1 --done" in bench.screen


async def test_a_task_shows_each_rank_in_its_replica_and_the_one_that_is_gone() -> None:
    async with console(cluster_views.waiting(), size=(120, 40)) as bench:
        await bench.press("tab", "down", "down", "enter")
        assert "replica 0   stage 0" in bench.screen
        assert "gone" in bench.screen


async def test_an_incident_shows_where_the_time_went() -> None:
    calm = cluster_views.calm()
    incident = cluster_views.lost_node(state=IncidentState.RESOLVED)
    incident = incident.model_copy(update={"decided_at": 128.6, "acting_at": 138.6})
    view = calm.model_copy(update={"now": 150.0, "incidents": [incident]})
    async with console(view, size=(120, 40)) as bench:
        await open_first(bench, "incident")
        for text in ("until it was found", "5.6 s", "until the cure began", "10 s", "1.4 s"):
            assert text in bench.screen, text


@pytest.mark.parametrize(("by", "is_told"), [("alex", True), ("policy auto-heal", False)])
async def test_an_incident_shows_that_training_went_on_while_a_person_decided(
    by: str, is_told: bool
) -> None:
    incident = cluster_views.lost_node(state=IncidentState.RESOLVED).model_copy(
        update={"acting_at": 136.0, "decided_at": 128.0, "resolved_at": 136.1, "recovery_s": 0.68}
    )
    waited = cluster_views.plan(trigger=incident.id, state=PlanState.APPLIED, approved_by=by)
    view = cluster_views.calm().model_copy(update={"incidents": [incident], "plans": [waited]})
    state = State(view=view, now=100.0)
    lines = detail_lines(state, DetailSubject("incident", incident.id), 110, UNICODE)
    text = "\n".join("".join(part.text for part in line.spans).rstrip() for line in lines)
    assert "fault to training       680 ms" in text
    assert (f"{waited.id} for approval" in text) is is_told


async def test_a_rehearsed_cure_shows_how_to_approve_it() -> None:
    asked = RehearsedCureView(at=38.0, action="restart", reason="exited")
    incident = cluster_views.killed_rank(resolved_at=None)
    incident = incident.model_copy(update={"state": IncidentState.DETECTED, "rehearsed": asked})
    view = cluster_views.calm().model_copy(update={"incidents": [incident]})
    async with console(view, size=(120, 40)) as bench:
        await open_first(bench, "incident")
        assert "waits for an approval" in bench.screen
        assert "unicron approve INC-1" in bench.screen


async def test_alerts_stand_above_the_events_and_open_what_they_are_about() -> None:
    async with console(cluster_views.waiting(), size=(160, 48)) as bench:
        assert "ALERTS 3" in bench.screen
        row = next(line for line in bench.screen.splitlines() if "critical" in line)
        assert "plan P-2:1 waits for an approval" in row
        assert "unicron explain P-2" in row
        await bench.press("tab", "tab", "tab", "tab", "down", "enter")
        await bench.settle()
        assert "plan P-2" in bench.screen.splitlines()[1]
        await bench.press("escape", "down", "enter")
        await bench.settle()
        assert "INC-2" in bench.screen.splitlines()[1] or "n4" in bench.screen.splitlines()[1]


@pytest.mark.parametrize(
    ("key", "subject"),
    [
        ("plan P-2:1", DetailSubject("plan", "P-2")),
        ("incident I-1", DetailSubject("incident", "I-1")),
        ("isolated n1:3", DetailSubject("node", "n1")),
        ("question n2", DetailSubject("node", "n2")),
        ("task gpt-a held", DetailSubject("task", "gpt-a")),
        ("automation", None),
    ],
)
def test_an_alert_is_about_something(key: str, subject: DetailSubject | None) -> None:
    assert subject_of_alert(key) == subject


async def test_a_storm_stands_in_the_status_bar() -> None:
    view = cluster_views.waiting().model_copy(update={"automation_stopped": "9 nodes lost"})
    async with console(view, size=(160, 48)) as bench:
        assert "automation stopped" in bench.screen.splitlines()[0]
        assert "automation is stopped: every plan waits for an approval" in bench.screen


async def test_a_plan_that_counts_down_says_when_it_is_applied() -> None:
    waiting = cluster_views.waiting(131.0)
    plan = cluster_views.plan(apply_at=172.0)
    async with console(waiting.model_copy(update={"plans": [plan]}), size=(160, 48)) as bench:
        assert "applied in 41 s unless rejected" in bench.screen
        assert "P-2 r1 applied in 41 s" in bench.screen.splitlines()[-3]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ("3 other replicas", "memory_interval is 0", "iteration 150, 2 iterations ago")),
        ({"layout": None}, ("none: there is one replica",)),
        ({"is_sharded": True, "makes_copies": True}, ("sharded over", "another rank's process")),
        ({"checkpoint_s": 0.3}, ("complete within 300 ms",)),
        ({"checkpoint_iteration": 0}, ("training would begin from the seed",)),
        ({"is_command": True}, ("the program's own checkpoints",)),
    ],
)
def test_a_task_shows_where_the_state_of_a_lost_rank_comes_from(
    changes: dict[str, object], words: tuple[str, ...]
) -> None:
    view = cluster_views.healed()
    first, *others = view.tasks
    shown = view.model_copy(update={"tasks": [first.model_copy(update=changes), *others]})
    text = "\n".join(
        line.text
        for line in detail_lines(State(view=shown), DetailSubject("task", "gpt-a"), 120, UNICODE)
    )
    for word in words:
        assert word in text, word
