"""Tables, plan, events, bars and dialogs as lines: right width, right words, any text."""

import pytest
from hypothesis import given, settings, strategies as st

from console.command_registry import bar_hints, help_hints
from console.viewmodel.activity import ActionPhase, Activity
from console.viewmodel.console_state import EventWindow, Link, LinkPhase, State
from console.viewmodel.dialog_frame import DialogContent, TextField, draw_dialog, inner_width
from console.viewmodel.drawing.glyphs import ASCII, UNICODE, Glyphs
from console.viewmodel.drawing.table_layout import TextTable
from console.viewmodel.drawing.text import Ground, Line, Tone, cells_wide, span
from console.viewmodel.panels.event_stream import event_lines, moved_anchor, num_newer
from console.viewmodel.panels.incidents_panel import incident_table, where
from console.viewmodel.panels.key_bar import draw_key_bar, help_lines
from console.viewmodel.panels.nodes_panel import node_table
from console.viewmodel.panels.plan_panel import decision_line, plan_lines, waiting_words
from console.viewmodel.panels.status_bar import activity_line, status_line
from console.viewmodel.panels.tasks_panel import task_table
from console.viewmodel.panels.transition_steps import transition_lines
from console.viewmodel.words import (
    ACTION_WORDS,
    INCIDENT_WORDS,
    LEVEL_WORDS,
    NODE_WORDS,
    PLAN_WORDS,
    TASK_WORDS,
    task_letter,
)
from controller.api.views import (
    AlternativeView,
    ClusterView,
    ExplanationView,
    IncidentState,
    LogLevel,
    NodeCondition,
    NodeView,
    PlanState,
    PreparedView,
    SensitivityView,
    TaskPhase,
    WaitingView,
    WorkerView,
)
from tests.fakes import cluster_views

TABLES = [node_table, task_table, incident_table]


def state(view: ClusterView, **changes: object) -> State:
    made = State(now=50.0, link=Link(LinkPhase.LIVE), view=view, view_at=50.0)
    return State(**{**{name: getattr(made, name) for name in made.__slots__}, **changes})


WAITING = state(cluster_views.waiting(), log=EventWindow(tuple(cluster_views.log(40))))


@pytest.mark.parametrize(
    ("words", "members"),
    [
        (NODE_WORDS, NodeCondition),
        (TASK_WORDS, TaskPhase),
        (INCIDENT_WORDS, IncidentState),
        (PLAN_WORDS, PlanState),
        (LEVEL_WORDS, LogLevel),
        (ACTION_WORDS, ActionPhase),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=["unicode", "ascii"])
def test_every_state_has_a_sign_and_a_word(
    words: dict[object, tuple[str, str, Tone]], members: type, glyphs: Glyphs
) -> None:
    assert set(words) == set(members)  # type: ignore[call-overload]
    assert all(getattr(glyphs, sign) and word for sign, word, _ in words.values())


@given(st.sampled_from(TABLES), st.integers(60, 220), st.sampled_from([UNICODE, ASCII]))
def test_table_lines_fit_their_width(make: object, width: int, glyphs: Glyphs) -> None:
    table: TextTable = make(WAITING, width, glyphs)  # type: ignore[operator]
    for line in (table.heading, *table.lines):
        assert cells_wide(line.spans) <= width
    assert len(table.keys) == len(table.lines)


@given(st.integers(30, 200), st.text(max_size=30))
def test_names_of_any_kind_keep_columns_aligned(width: int, name: str) -> None:
    view = cluster_views.calm()
    nodes = [view.nodes[0].model_copy(update={"node": name, "note": name}), *view.nodes[1:]]
    table = node_table(state(view.model_copy(update={"nodes": nodes})), width, UNICODE)
    assert len({cells_wide(line.spans) for line in (table.heading, *table.lines)}) == 1


def test_worker_cells_name_task_and_rank_and_what_is_wrong() -> None:
    view = cluster_views.calm()
    odd = [
        NodeView(
            node="n1",
            address="",
            condition=condition,
            workers=[
                WorkerView(worker=0, task="gpt-b", global_rank=3, pid=pid),
                WorkerView(worker=1),
                WorkerView(worker=2, waits_for="gpt-b"),
            ],
        )
        for condition, pid in [
            (NodeCondition.HEALTHY, 1),
            (NodeCondition.HEALTHY, None),
            (NodeCondition.UNREACHABLE, 1),
            (NodeCondition.LOST, 1),
        ]
    ]
    table = node_table(state(view.model_copy(update={"nodes": odd})), 80, UNICODE)
    cells = [line.text[25:40].strip() for line in table.lines]
    assert [cell.split()[0] for cell in cells] == ["B3", "◐B3", "?B3", "✕–"]  # noqa: RUF001
    assert cells[0].split()[1:3] == ["–", "B–"]  # noqa: RUF001


def test_a_gpu_that_is_out_of_service_alone_is_marked_and_its_reason_noted() -> None:
    view = cluster_views.calm()
    workers = [
        WorkerView(worker=0, task="gpt-b", global_rank=3, pid=1),
        WorkerView(worker=1, isolated="isolated by I-4: 2 faults"),
    ]
    node = NodeView(node="n1", address="", condition=NodeCondition.HEALTHY, workers=workers)
    only = state(view.model_copy(update={"nodes": [node]}))
    [line] = node_table(only, 120, UNICODE).lines
    assert "B3 ✕–" in line.text  # noqa: RUF001
    assert "GPU 1 isolated by I-4: 2 faults" in line.text
    many = node.model_copy(update={"workers": [*workers * 20]})
    crowded = state(view.model_copy(update={"nodes": [many]}))
    assert "✕–:20" in node_table(crowded, 80, UNICODE).lines[0].text  # noqa: RUF001


def test_many_workers_are_counted_per_task() -> None:
    workers = [
        WorkerView(worker=number, task="gpt-a" if number < 12 else None, global_rank=number, pid=1)
        for number in range(16)
    ]
    node = NodeView(node="n1", address="", condition=NodeCondition.HEALTHY, workers=workers)
    view = cluster_views.calm().model_copy(update={"nodes": [node]})
    assert "A:12" in node_table(state(view), 80, UNICODE).lines[0].text


def test_a_late_heartbeat_and_a_missing_one() -> None:
    view = cluster_views.calm()
    nodes = [
        view.nodes[0].model_copy(update={"heartbeat_at": 90.0}),
        view.nodes[1].model_copy(update={"heartbeat_at": None}),
    ]
    table = node_table(state(view.model_copy(update={"nodes": nodes})), 80, UNICODE)
    late = next(part for part in table.lines[0].spans if "10 s" in part.text)
    assert late.tone is Tone.WARN
    assert "–" in table.lines[1].text  # noqa: RUF001


def test_an_incident_is_placed_as_far_as_it_is_known() -> None:
    incident = cluster_views.killed_rank()
    assert where(incident, UNICODE) == "gpt-a rank 1 on n1"
    assert where(incident.model_copy(update={"task": None, "rank": None}), UNICODE) == "n1"
    nowhere = {"task": None, "rank": None, "node": None}
    assert where(incident.model_copy(update=nowhere), ASCII) == "-"
    for nodes, words in (
        (["n1", "n3"], "gpt-a rank 1 on n1, n3"),
        (["n1", "n3", "n4"], "gpt-a rank 1 on n1 and 2 more"),
    ):
        assert where(incident.model_copy(update={"nodes": nodes}), UNICODE) == words


def test_task_letters_go_on_after_z() -> None:
    assert [task_letter(at) for at in (0, 25, 26, 51, 52)] == ["A", "Z", "a", "z", "*"]


@given(st.integers(40, 200))
def test_plan_lines_fit_and_say_what_changes(width: int) -> None:
    plan = cluster_views.plan()
    lines = plan_lines(WAITING, plan, width, UNICODE)
    assert all(cells_wide(line.spans) <= max(width, 58) for line in lines)
    text = "\n".join(line.text for line in lines)
    assert "4 → 2 workers" in text
    assert lines[-1].text.strip() == "ranks gpt-b  n3:0-1 n4:0-1 → n3:0-1"
    assert "n1:0" not in text, "a task that stays where it is needs no line"
    assert "100% before  → 67% now  → 83% after" in text


def test_a_task_that_stops_or_starts_has_no_workers_on_one_side() -> None:
    plan = cluster_views.plan()
    stops = plan.changes[1].model_copy(update={"placement_after": []})
    lines = plan_lines(WAITING, plan.model_copy(update={"changes": [stops]}), 80, ASCII)
    assert lines[-1].text.strip() == "ranks gpt-b  n3:0-1 n4:0-1 -> -"


@given(st.integers(60, 200), st.booleans())
def test_bars_have_exactly_the_width(width: int, is_armed: bool) -> None:
    now = state(cluster_views.waiting(), armed_until=100.0 if is_armed else None)
    for draw in (status_line, decision_line, activity_line):
        assert cells_wide(draw(now, width, UNICODE).spans) == width
    bar = draw_key_bar(bar_hints(now), width, UNICODE)
    assert cells_wide(bar.line.spans) == width
    assert [name for _, _, name in bar.places][-2:] == ["app.help", "app.quit"]


def test_the_bar_keeps_mode_and_connection_at_any_width() -> None:
    text = status_line(state(cluster_views.waiting(), armed_until=999.0), 60, UNICODE).text
    assert "ARMED" in text
    assert "live" in text


def test_the_bars_ground_tells_the_mode() -> None:
    view = cluster_views.calm()
    assert status_line(state(view), 80, UNICODE).ground is Ground.BAR_VIEW
    assert status_line(state(view, armed_until=99.0), 80, UNICODE).ground is Ground.BAR_ARMED
    lost = state(view, link=Link(LinkPhase.LOST, 0.0, "gone", 55.0))
    line = status_line(lost, 160, UNICODE)
    assert line.ground is Ground.BAR_LOST
    assert "DISCONNECTED, data 0.0 s old: gone, next try in 5.0 s" in line.text


def test_a_stopped_automation_stands_beside_the_throughput_and_longer() -> None:
    view = cluster_views.waiting().model_copy(update={"automation_stopped": "9 nodes lost"})
    lines = [status_line(state(view, owns_demo=True), width, UNICODE) for width in range(4, 161)]
    for width, line in enumerate(lines, 4):
        assert cells_wide(line.spans) == width
        assert line.text.count("stopped") <= 1
        assert "stopped" in line.text or "WAF" not in line.text
    assert "automation stopped" in lines[-1].text
    assert "of full" in lines[-1].text


def test_disabled_keys_are_told_apart_without_colour() -> None:
    text = draw_key_bar(bar_hints(state(cluster_views.calm())), 120, UNICODE).line.text
    assert " A approve" in text
    assert "<?>help" in text


def test_the_explanation_of_a_plan_is_shown_once_it_is_there() -> None:
    view = cluster_views.waiting()
    plan = view.plans[-1].model_copy(
        update={
            "explanation": ExplanationView(
                terms=[],
                alternatives=[
                    AlternativeView(
                        differs={"gpt-a": 3},
                        objective=1.0,
                        waf=2.4e9,
                        verdict="gives 2.4 of 2.5 GFLOP/s",
                    ),
                    AlternativeView(
                        differs={"gpt-b": 0},
                        objective=0.9,
                        waf=2e9,
                        verdict="gives 2.0 of 2.5 GFLOP/s",
                    ),
                ],
                sensitivity=[SensitivityView(estimate="MTBF", factor=0.01, differs={"gpt-b": 0})],
                waiting=WaitingView(weighted_flop_per_min=3e10, gpu_hours_per_min=0.033),
            )
        }
    )
    before = [line.text for line in plan_lines(WAITING, view.plans[-1], 100, UNICODE)]
    after = [line.text.rstrip() for line in plan_lines(WAITING, plan, 100, UNICODE)]
    assert [line for line in after if line not in [text.rstrip() for text in before]] == [
        "  or    gpt-a on 3 workers gives 2.4 of 2.5 GFLOP/s",
        "        gpt-b on 0 workers gives 2.0 of 2.5 GFLOP/s",
        "  if    the MTBF were 0.01 times as long: gpt-b on 0 workers",
    ]


def test_waf_now_and_the_cost_of_waiting_are_those_of_the_present_view() -> None:
    # The demo after the loss of a node: 8 GPUs, of which a healthy cluster makes 34.25 GFLOP/s.
    plan = cluster_views.plan(waf_before=34.25e9, waf_now=5.9e9, waf_after=31.95e9)
    stopped = cluster_views.waiting().model_copy(
        update={"waf": 5.9e9, "waf_full": 34.25e9, "plans": [plan]}
    )
    survivors_train = stopped.model_copy(update={"waf": 21.65e9})

    text = "\n".join(line.text for line in plan_lines(state(stopped), plan, 100, UNICODE))
    assert "100% before  → 17% now  → 93% after" in text  # 5.9 / 34.25
    # (31.95 - 5.9) / 34.25 = 0.761 of the cluster, times 8
    assert "waiting costs 6.1 GPU-minutes a minute (76% of the cluster)" in text

    text = "\n".join(line.text for line in plan_lines(state(survivors_train), plan, 100, UNICODE))
    assert "100% before  → 63% now  → 93% after" in text  # 21.65 / 34.25
    # (31.95 - 21.65) / 34.25 = 0.301 of the cluster, times 8
    assert "waiting costs 2.4 GPU-minutes a minute (30% of the cluster)" in text
    assert "WAF 63% → 93%" in decision_line(state(survivors_train), 160, UNICODE).text


def test_a_fifth_of_sixteen_gpus_is_3_2_gpu_minutes_a_minute() -> None:
    nodes = [
        NodeView(
            node=f"n{number}",
            address="",
            condition=NodeCondition.HEALTHY,
            workers=[WorkerView(worker=slot) for slot in range(8)],
        )
        for number in (1, 2)
    ]
    view = cluster_views.waiting().model_copy(
        update={"nodes": nodes, "waf": 75.0, "waf_full": 100.0}
    )
    plan = cluster_views.plan(waf_after=95.0)
    words = "waiting costs 3.2 GPU-minutes a minute (20% of the cluster)"
    assert waiting_words(view, plan) == words
    assert waiting_words(view, cluster_views.plan(waf_after=75.0)) == "waiting costs no throughput"
    barely = waiting_words(view, cluster_views.plan(waf_after=75.1))
    assert barely == "waiting costs under 0.1 GPU-minutes a minute (0% of the cluster)"


def test_plans_for_what_comes_next_are_counted_while_they_hold() -> None:
    prepared = PreparedView(num_events=12, took_s=0.1, is_current=True, num_found=0, num_missed=0)
    view = cluster_views.calm().model_copy(update={"prepared": prepared})
    assert "plans for 12 next events are ready" in decision_line(state(view), 120, UNICODE).text
    old = prepared.model_copy(update={"is_current": False})
    view = view.model_copy(update={"prepared": old})
    assert "next events" not in decision_line(state(view), 120, UNICODE).text


@pytest.mark.parametrize("width", [60, 80, 160])
@pytest.mark.parametrize(
    ("armed", "keys"), [(None, "ctrl+t, then L or W"), (99.0, "<L>lost <W>wait")]
)
def test_question_about_a_node_stands_where_decisions_do(
    width: int, armed: float | None, keys: str
) -> None:
    asked = state(cluster_views.asking(), armed_until=armed)
    line = decision_line(asked, width, UNICODE)
    assert line.ground is Ground.DECISION
    assert "is n4 lost? waits 20 s" in line.text
    assert keys in line.text
    assert cells_wide(line.spans) == width
    assert "1 question waits" in status_line(asked, 160, UNICODE).text


def test_keys_for_nodes_out_of_contact_are_on_the_bar_only_while_there_are_some() -> None:
    calm = draw_key_bar(bar_hints(state(cluster_views.calm())), 160, UNICODE).line.text
    asked = draw_key_bar(bar_hints(state(cluster_views.asking())), 160, UNICODE).line.text
    assert " lost " not in calm
    assert " L lost " in asked
    assert " W wait " in asked


def test_help_explains_what_is_not_to_be_had() -> None:
    lines = help_lines(help_hints(state(cluster_views.calm())), 100, UNICODE)
    text = "\n".join(line.text for line in lines)
    assert "Approve the waiting plan  (not now: no plan waits)" in text
    assert all(cells_wide(line.spans) <= 100 for line in lines)


@given(st.integers(30, 150), st.integers(2, 30), st.none() | st.integers(0, 60))
def test_the_event_window_has_its_size(width: int, height: int, anchor: int | None) -> None:
    lines = event_lines(WAITING, anchor, width, height, UNICODE)
    assert 1 <= len(lines) <= height
    assert all(cells_wide(line.spans) <= max(width, 30) for line in lines)


def test_the_anchor_moves_by_lines_and_follows_at_the_end() -> None:
    log = WAITING.log
    anchor = moved_anchor(log, None, -3, 10)
    assert anchor == 37
    assert num_newer(log, anchor) == 3
    assert moved_anchor(log, anchor, 1, 10) == 38
    assert moved_anchor(log, anchor, 3, 10) is None
    assert moved_anchor(log, anchor, -1_000, 10) == 10
    assert moved_anchor(EventWindow(), None, -1, 10) is None


@given(st.lists(st.integers(-5, 5), max_size=20), st.integers(1, 50))
def test_the_anchor_is_always_a_line_or_the_end(moves: list[int], page: int) -> None:
    anchor = None
    for move in moves:
        anchor = moved_anchor(WAITING.log, anchor, move, page)
        assert anchor is None or anchor in [line.seq for line in WAITING.log.lines]


def test_lines_that_were_missed_are_counted_in_the_heading() -> None:
    log = EventWindow(tuple(cluster_views.log(3)), num_missed=7)
    (heading, *_) = event_lines(state(cluster_views.calm(), log=log), None, 80, 10, UNICODE)
    assert "7 missed" in heading.text


@settings(deadline=None)
@given(st.text(max_size=20), st.integers(20, 120), st.integers(6, 40), st.integers(0, 50))
def test_dialogs_fit_and_keep_their_foot(text: str, width: int, height: int, scroll: int) -> None:
    content = DialogContent(
        title=text,
        body=[Line((span(f"{number} {text}"),)) for number in range(30)],
        foot=[Line((span("the foot"),))],
        banner=text,
    )
    lines = draw_dialog(content, width, height, scroll, UNICODE)
    assert len(lines) <= max(height, 7)
    assert {cells_wide(line.spans) for line in lines} == {inner_width(width) + 4}
    assert "the foot" in lines[-2].text or inner_width(width) < 10


def test_a_text_field_keeps_its_end_in_sight() -> None:
    field = TextField().typed("a" * 100).typed("\x1b[31mz")
    assert field.text.endswith("az")
    assert cells_wide(field.line("reason", 40).spans) <= 41
    assert field.erased().text.endswith("a")
    assert field.cleared().text == ""
    assert len(TextField().typed("x" * 500).text) == 200


@pytest.mark.parametrize("end", ["end", "節節"])
@pytest.mark.timeout(5)
def test_a_text_field_with_an_endless_text_is_drawn_at_once(end: str) -> None:
    field = TextField(end * 90_000)
    for width in (0, 6, 8, 12, 40):
        assert cells_wide(field.line("name", width).spans) <= max(width, len("name _"))
    assert field.line("name", 40).text.endswith(f"{end}_")


def test_an_action_without_reply_says_that_it_waits() -> None:
    sent = Activity("r1", "approve P-2", ActionPhase.SENT, 49.0, 49.0)
    line = activity_line(state(cluster_views.calm(), activities=(sent,)), 100, UNICODE)
    assert "approve P-2: waiting for the controller" in line.text
    assert line.text.rstrip().endswith("1.0 s ago")


@pytest.mark.parametrize("width", [30, 60, 120])
def test_a_task_that_does_not_recover_in_process_says_why(width: int) -> None:
    view = cluster_views.waiting()
    reasons = ["virtual pipeline stages: not rebuilt in process", "fp16"]
    limited = view.tasks[0].model_copy(update={"unsupported": reasons})
    shown = state(view.model_copy(update={"tasks": [limited, *view.tasks[1:]]}))
    lines = transition_lines(shown, None, width, UNICODE)
    text = " ".join("".join(part.text for part in line.spans).strip() for line in lines)
    assert text.count("from disk: virtual") == 1
    assert all(cells_wide(line.spans) <= max(width, 60) for line in lines)


def test_a_task_that_prints_no_iteration_has_no_times() -> None:
    incident = cluster_views.killed_rank().model_copy(update={"is_recovery_unseen": True})
    view = cluster_views.calm().model_copy(update={"incidents": [incident]})
    table = incident_table(state(view), 200, UNICODE)
    shown = [str(row) for row in table.rows]
    assert not any("4.7 s" in text or "300 ms" in text for text in shown)
