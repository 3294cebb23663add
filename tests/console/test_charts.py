"""Charts: iteration times with their limits, predicted above actual, the WAF, and the fleet."""

from dataclasses import replace

import pytest

from console.viewmodel.console_state import State
from console.viewmodel.details.detail import DetailSubject, detail_lines
from console.viewmodel.drawing.charts import column_chart
from console.viewmodel.drawing.glyphs import ASCII, UNICODE
from console.viewmodel.drawing.text import Line, Tone
from console.viewmodel.panels.fleet_panel import fleet_lines
from console.viewmodel.panels.trend_panel import trend_lines
from console.viewmodel.trend import Trend, followed_trend
from controller.api.views import ClusterView, NodeCondition, PaceView, UpkeepView
from tests.console.bench import console
from tests.fakes import cluster_views


def text_of(lines: list[Line]) -> list[str]:
    return ["".join(part.text for part in line.spans).rstrip() for line in lines]


def test_a_column_reaches_as_high_as_its_share_and_the_mark_stands_beside_it() -> None:
    columns = [(1.0, Tone.GOOD), (0.5, Tone.GOOD), (0.0, Tone.GOOD), None]
    assert text_of(column_chart(columns, 2, UNICODE.spark, (0.9, "─"))) == ["█───", "██▁"]


def test_iteration_times_show_the_late_ones_and_both_limits() -> None:
    pace = PaceView(durations_s=[0.3, 0.3, 0.6, 0.3], average_s=0.4, late_s=0.44, hang_s=1.4)
    task = cluster_views.calm().tasks[0].model_copy(update={"pace": pace})
    view = cluster_views.calm().model_copy(update={"tasks": [task]})
    lines = detail_lines(State(view=view), DetailSubject("task", task.name), 80, UNICODE)
    texts = text_of(lines)
    [first] = [number for number, text in enumerate(texts) if text.startswith("ITERATION TIMES")]
    assert "average 400 ms, late above 440 ms, looked at as a hang after 1.4 s" in texts[first]
    chart = texts[first + 1 : first + 6]
    assert "─" in chart[2], "the limit stands where no iteration covers it"
    late = [part.text for line in lines[first + 1 : first + 6] for part in line.spans
            if part.tone is Tone.WARN and "█" in part.text]  # fmt: skip
    assert late, "the late iteration has another colour"


def test_times_that_nothing_measures_yet_are_said_to_be_so() -> None:
    view = cluster_views.calm()
    task = view.tasks[0].model_copy(update={"pace": None})
    lines = detail_lines(
        State(view=view.model_copy(update={"tasks": [task]})), DetailSubject("task", task.name), 80,
        UNICODE,
    )  # fmt: skip
    assert "not measured yet: no average of this layout is known" in text_of(lines)


def cured(decided_at: float) -> list[str]:
    """Return the screen of an incident whose task has a transition of that time."""
    view = cluster_views.parking_task()
    [incident] = view.incidents
    tasks = [
        task.model_copy(
            update={"transition": task.transition.model_copy(update={"decided_at": decided_at})}
        )
        if task.transition
        else task
        for task in view.tasks
    ]
    view = view.model_copy(update={"tasks": tasks, "now": incident.fault_at + 2.0})
    lines = detail_lines(State(view=view), DetailSubject("incident", incident.id), 100, UNICODE)
    return text_of(lines)


def test_the_steps_of_a_cure_stand_predicted_above_actual() -> None:
    fault_at = cluster_views.parking_task().incidents[0].fault_at
    texts = cured(fault_at + 0.5)
    [first] = [number for number, text in enumerate(texts) if text.startswith("STEPS OF THE CURE")]
    assert texts[first] == "STEPS OF THE CURE  restart, predicted above actual"
    assert texts[first + 3].startswith("start")
    assert "200 ms" in texts[first + 3]
    assert "310 ms" in texts[first + 4]
    assert "▲ +110 ms" in texts[first + 4]
    assert "not yet" in texts[first + 6]


def test_a_transition_of_another_fault_is_no_cure_of_this_one() -> None:
    fault_at = cluster_views.parking_task().incidents[0].fault_at
    assert not [text for text in cured(fault_at - 5.0) if text.startswith("STEPS OF THE CURE")]


def looked(*shares: float, every_s: float = 2.0) -> State:
    """Return the state after views with these WAFs."""
    seen = cluster_views.calm()
    trend: Trend = ()
    for number, share in enumerate(shares):
        seen = seen.model_copy(update={"now": every_s * number, "waf": share * seen.waf_full})
        trend = followed_trend(trend, seen)
    return State(view=seen, trend=trend)


def test_a_short_outage_is_not_averaged_away() -> None:
    state = looked(*[1.0] * 30, 0.2, *[1.0] * 30)
    assert min(step.low for step in state.trend) == pytest.approx(0.2)
    lines = trend_lines(state, 60, 8, UNICODE)
    assert "now 100%, lowest 20%" in text_of(lines)[0]
    tones = {part.tone for line in lines[1:-1] for part in line.spans if "█" in part.text}
    assert Tone.BAD in tones


def test_a_quarter_of_an_hour_is_kept_and_another_run_begins_anew() -> None:
    state = looked(*[1.0] * 1000)
    assert 175 <= len(state.trend) <= 181
    past = cluster_views.calm().model_copy(update={"now": 1.0})
    assert followed_trend(state.trend, past) == state.trend


def test_faults_are_marked_below_the_chart() -> None:
    state = looked(*[1.0] * 100)
    assert state.view is not None
    incident = cluster_views.killed_rank().model_copy(update={"fault_at": 100.0})
    view = state.view.model_copy(update={"incidents": [incident]})
    marks = text_of(trend_lines(State(view=view, trend=state.trend), 60, 8, ASCII))[-1]
    assert marks.startswith("faults ")
    assert ASCII.warn in marks


def fleet(num_nodes: int, num_workers: int = 8) -> ClusterView:
    """Return a view of a large fleet; the second node is lost, the third cordoned."""
    view = cluster_views.calm()
    node = view.nodes[0]
    workers = [replace(node.workers[0], worker=slot) for slot in range(num_workers)]
    changes: dict[int, dict[str, object]] = {
        1: {"condition": NodeCondition.LOST},
        2: {"upkeep": UpkeepView(state="cordoned", by="op", since=0.0)},
    }
    nodes = [
        node.model_copy(
            update={"node": f"n{number}", "workers": workers, **changes.get(number, {})}
        )
        for number in range(num_nodes)
    ]
    return view.model_copy(update={"nodes": nodes})


@pytest.mark.parametrize("num_nodes", [1, 4, 40, 300, 2048])
def test_the_map_fits_and_shows_the_worst_of_each_cell(num_nodes: int) -> None:
    lines = fleet_lines(State(view=fleet(num_nodes)), 64, 10, UNICODE)
    assert len(lines) <= 10
    assert all(len(text) <= 64 for text in text_of(lines))
    assert f"WORKERS {8 * num_nodes}" in text_of(lines)[0]
    signs = "".join(part.text for line in lines[1:] for part in line.spans[2:])
    if num_nodes > 2:
        assert "✕ 8 out" in text_of(lines)[0]
        assert UNICODE.bad in signs
    if num_nodes <= 300:
        assert (UNICODE.held in signs) is (num_nodes > 2)


async def test_charts_stand_beside_nodes_and_tasks_where_there_is_room() -> None:
    async with console(cluster_views.calm(), size=(160, 48)) as bench:
        assert "WAF  now" in bench.screen
        assert "WORKERS 8" in bench.screen
    async with console(cluster_views.calm(), size=(120, 40)) as bench:
        assert "WORKERS 8" not in bench.screen
