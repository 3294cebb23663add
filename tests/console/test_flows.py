"""An operator works key by key: decide, drill, arm, read, leave; refused keys change nothing."""

import pytest
from textual.command import CommandList, CommandPalette
from textual.events import Paste

from console.app import ConsoleApp
from console.client.source import Inbox
from console.dialogs.decide import ApproveDialog, RejectDialog
from console.dialogs.drill_menu import DrillDialog
from console.dialogs.information import HelpDialog, QuitDialog
from console.dialogs.what_if import WhatIfDialog
from console.screens.overview import Overview
from console.screens.waiting import TooSmall
from console.viewmodel.console_state import LinkPhase
from console.viewmodel.drawing.glyphs import ASCII, UNICODE, Glyphs
from console.viewmodel.reducer import Received
from console.widgets.bars import KeyBar
from console.widgets.table_panels import TablePanel
from console.widgets.text_panels import EventPanel
from controller.api.views import PlanState
from controller.api.wire import (
    ApprovePlan,
    DecideLoss,
    RejectPlan,
    Reply,
    RequestPlan,
    RunDrill,
    Snapshot,
)
from tests.console.bench import console
from tests.fakes import cluster_views

SIZES = pytest.mark.parametrize("size", [(80, 24), (160, 48)], ids=lambda size: f"{size[0]}")


@SIZES
async def test_approve_is_sent_with_the_revision_and_followed_until_applied(
    size: tuple[int, int],
) -> None:
    async with console(cluster_views.waiting(), size=size, is_armed=True) as bench:
        await bench.press("A", opens_dialog=True)
        assert "Approve plan P-2 r1 on demo?" in bench.screen
        await bench.press("y", "enter")
        await bench.settle()
        assert bench.source.sent == [
            ApprovePlan(request_id="r1", actor="alex", plan="P-2", revision=1)
        ]
        assert "accepted  approve P-2 r1" in bench.last_line
        await bench.show(cluster_views.healed())
        assert "done  approve P-2 r1: P-2 is applied" in bench.last_line


async def test_enter_alone_cancels_an_approval() -> None:
    async with console(cluster_views.waiting(), is_armed=True) as bench:
        await bench.press("A", opens_dialog=True)
        await bench.press("enter")
        assert isinstance(bench.app.screen, Overview)
        assert bench.source.sent == []


async def test_node_that_is_asked_about_is_given_up_after_a_question() -> None:
    async with console(cluster_views.asking(), is_armed=True) as bench:
        await bench.press("L", opens_dialog=True)
        assert "Declare n4 lost?" in bench.screen
        assert "nobody has seen gpt-b for 320 s" in bench.screen
        await bench.press("y", "enter")
        await bench.settle()
        assert bench.source.sent == [
            DecideLoss(request_id="r1", actor="alex", node="n4", is_lost=True)
        ]
        await bench.show(cluster_views.waiting(520.0))
        assert "done  declare n4 lost: n4 is lost" in bench.last_line


async def test_node_that_comes_back_freezes_the_question_about_it() -> None:
    async with console(cluster_views.asking(), is_armed=True) as bench:
        await bench.press("L", opens_dialog=True)
        await bench.press("y")
        await bench.show(cluster_views.calm(501.0))
        assert "n4 is no longer unreachable: close and review" in bench.screen
        await bench.press("enter")
        assert bench.source.sent == []


async def test_operator_waits_for_the_node_that_is_asked_about_and_then_for_the_selected_one() -> (
    None
):
    async with console(cluster_views.asking(), is_armed=True) as bench:
        await bench.press("down", "down", "down", "W")
        await bench.settle()
        await bench.show(cluster_views.asking(500.5, asked_at=None))
        await bench.press("W")
        await bench.settle()
        assert bench.source.sent == [
            DecideLoss(request_id="r1", actor="alex", node="n4", is_lost=False),
            DecideLoss(request_id="r2", actor="alex", node="n3", is_lost=False),
        ]
        await bench.show(cluster_views.asking(501.0, asked_at=None))
        assert "done  wait for n3: n3 is unreachable" in bench.last_line


async def test_of_two_nodes_that_are_asked_about_the_one_in_the_line_is_decided_on() -> None:
    view = cluster_views.asking()
    asked = [
        node.model_copy(update={"asked_at": 490.0}) if node.node == "n3" else node
        for node in view.nodes
    ]
    async with console(view.model_copy(update={"nodes": asked}), is_armed=True) as bench:
        assert "is n4 lost?" in bench.screen  # asked about for longest
        await bench.press("down", "down", "down", "W")  # n3 is selected
        await bench.settle()
        assert bench.source.sent == [
            DecideLoss(request_id="r1", actor="alex", node="n4", is_lost=False)
        ]


async def test_keys_within_the_guard_time_do_nothing() -> None:
    async with console(cluster_views.waiting(), is_armed=True) as bench:
        await bench.press("A")
        await bench.press("y", "enter")
        assert isinstance(bench.app.screen, ApproveDialog)
        await bench.wait(0.5)
        await bench.press("enter")
        assert bench.source.sent == []


@SIZES
async def test_a_new_revision_freezes_the_open_dialog(size: tuple[int, int]) -> None:
    async with console(cluster_views.waiting(), size=size, is_armed=True) as bench:
        await bench.press("A", opens_dialog=True)
        await bench.press("y")
        newer = cluster_views.plan(revision=2)
        await bench.show(cluster_views.waiting().model_copy(update={"plans": [newer]}))
        assert "P-2 r2 has replaced r1: close and review" in bench.screen
        await bench.press("enter")
        assert bench.source.sent == []
        assert isinstance(bench.app.screen, Overview)


async def test_a_decision_of_somebody_else_freezes_the_open_dialog() -> None:
    async with console(cluster_views.waiting(), is_armed=True) as bench:
        await bench.press("A", opens_dialog=True)
        decided = cluster_views.plan(state=PlanState.APPROVED, approved_by="kim")
        await bench.show(cluster_views.waiting().model_copy(update={"plans": [decided]}))
        assert "P-2 was approved by kim" in bench.screen
        await bench.press("y", "enter")
        assert bench.source.sent == []


async def test_a_disconnect_freezes_the_open_dialog() -> None:
    async with console(cluster_views.waiting(), is_armed=True) as bench:
        await bench.press("A", opens_dialog=True)
        await bench.press("y")
        await bench.link(LinkPhase.LOST, "gone")
        assert "not connected to the controller" in bench.screen
        await bench.press("enter")
        assert bench.source.sent == []


@SIZES
async def test_reject_carries_the_reason_with_hostile_characters(size: tuple[int, int]) -> None:
    async with console(cluster_views.waiting(), size=size, is_armed=True) as bench:
        await bench.press("X", opens_dialog=True)
        await bench.press(*"no", "space", "[", "/", "]", "x", "backspace", "enter")
        await bench.settle()
        assert bench.source.sent == [
            RejectPlan(request_id="r1", actor="alex", plan="P-2", revision=1, reason="no [/]")
        ]


async def test_a_rejection_can_lead_to_what_else_could_be_done() -> None:
    async with console(cluster_views.waiting(), size=(120, 40), is_armed=True) as bench:
        await bench.press("X", opens_dialog=True)
        assert "next   nothing" in bench.screen
        await bench.press("n", "o", "tab")
        assert "next   ask the planner what if" in bench.screen
        await bench.press("enter")
        await bench.settle()
        assert bench.source.sent == [
            RejectPlan(request_id="r1", actor="alex", plan="P-2", revision=1, reason="no")
        ]
        assert isinstance(bench.app.screen, WhatIfDialog)


async def test_escape_keeps_the_plan_waiting() -> None:
    async with console(cluster_views.waiting(), is_armed=True) as bench:
        await bench.press("X", opens_dialog=True)
        assert isinstance(bench.app.screen, RejectDialog)
        await bench.press("escape")
        assert bench.source.sent == []


async def test_a_refusal_of_the_controller_is_shown_with_code_and_message() -> None:
    async with console(cluster_views.calm(), size=(120, 40), is_armed=True) as bench:
        bench.source.answer = lambda command: Reply(
            request_id=command.request_id,
            is_ok=False,
            code="nothing",
            message="no plan would change anything",
        )
        await bench.press("P")
        await bench.settle()
        assert [type(command) for command in bench.source.sent] == [RequestPlan]
        expected = "refused  request a plan: no plan would change anything (nothing)"
        assert expected in bench.last_line


async def test_a_missing_reply_is_an_unknown_outcome() -> None:
    async with console(cluster_views.calm(), is_armed=True) as bench:
        bench.source.answer = lambda _: None
        await bench.press("P")
        await bench.settle()
        assert "outcome unknown  request a plan: no reply within 10 s" in bench.last_line


@SIZES
async def test_drill_goes_through_kind_target_and_confirmation(size: tuple[int, int]) -> None:
    async with console(cluster_views.calm(), size=size, is_armed=True) as bench:
        await bench.press("I", opens_dialog=True)
        assert "Run a drill: choose a fault" in bench.screen
        await bench.press("down", "down", "enter")
        assert "Drill lose-node: which node?" in bench.screen
        await bench.press("enter")
        assert "Inject lose-node into node n4 on demo?" in bench.screen
        assert "gpt-b: ranks 2, 3 on n4" in bench.screen
        await bench.press("y", "enter")
        await bench.settle()
        assert bench.source.sent == [
            RunDrill(request_id="r1", actor="alex", drill="lose-node", node="n4")
        ]


async def test_drill_proposes_what_is_selected_on_the_overview() -> None:
    async with console(cluster_views.calm(), is_armed=True) as bench:
        await bench.press("tab", "down", "down")
        await bench.press("I", opens_dialog=True)
        await bench.press("enter", "enter")
        assert "rank 3 of gpt-b on n4" in bench.screen
        await bench.press("y", "enter")
        await bench.settle()
        assert bench.source.sent == [
            RunDrill(request_id="r1", actor="alex", drill="kill-rank", task="gpt-b", rank=3)
        ]


async def test_a_target_that_vanishes_freezes_the_confirmation() -> None:
    async with console(cluster_views.calm(), is_armed=True) as bench:
        await bench.press("I", opens_dialog=True)
        await bench.press("down", "down", "enter", "enter")
        await bench.show(cluster_views.waiting())
        assert "node n4 changed or no longer exists" in bench.screen
        await bench.press("y", "enter")
        assert bench.source.sent == []


async def test_left_goes_back_in_the_drill_menu() -> None:
    async with console(cluster_views.calm(), is_armed=True) as bench:
        await bench.press("I", opens_dialog=True)
        await bench.press("enter", "enter", "left", "left")
        assert "Run a drill: choose a fault" in bench.screen
        await bench.press("ctrl+c")
        assert isinstance(bench.app.screen, Overview)


@pytest.mark.parametrize("key", ["A", "X", "P", "I"])
async def test_view_mode_refuses_every_verb_with_the_reason(key: str) -> None:
    async with console(cluster_views.waiting()) as bench:
        await bench.press(key)
        await bench.settle()
        reason = (
            "P-2 already waits for a decision" if key == "P" else "view mode, ctrl+t allows actions"
        )
        assert reason in bench.last_line
        assert isinstance(bench.app.screen, Overview)
        assert bench.source.sent == []


async def test_ctrl_t_arms_and_ten_minutes_without_a_verb_disarm() -> None:
    async with console(cluster_views.calm()) as bench:
        assert "VIEW" in bench.screen.splitlines()[0]
        await bench.press("ctrl+t")
        assert "ARMED" in bench.screen.splitlines()[0]
        await bench.wait(595)
        await bench.show(cluster_views.calm())
        assert "ARMED 5.0 s" in bench.screen.splitlines()[0]
        await bench.wait(6)
        assert "VIEW" in bench.screen.splitlines()[0]


async def test_a_verb_prolongs_the_armed_time() -> None:
    async with console(cluster_views.calm(), is_armed=True) as bench:
        await bench.wait(500)
        await bench.show(cluster_views.calm())
        await bench.press("P")
        await bench.wait(500)
        assert "ARMED" in bench.screen.splitlines()[0]


async def test_a_disconnect_disarms_and_refuses_verbs() -> None:
    async with console(cluster_views.waiting(), is_armed=True) as bench:
        await bench.link(LinkPhase.LOST, "the controller closed the connection")
        assert "DISCONNECTED" in bench.screen.splitlines()[0]
        await bench.press("A")
        await bench.settle()
        assert "not connected" in bench.last_line
        await bench.press("ctrl+t")
        assert not bench.app.state.is_armed


async def test_after_a_reconnection_it_says_what_was_missed() -> None:
    async with console(cluster_views.waiting(), size=(120, 40)) as bench:
        await bench.link(LinkPhase.LOST, "refused")
        await bench.wait(42.0)
        await bench.link(LinkPhase.LOST, "refused again")
        await bench.link(LinkPhase.LIVE)
        assert "connected again" not in bench.screen, "the last view is still the old one"
        await bench.show(cluster_views.healed())
        assert "connected again: after 42 s: plan decided P-2 applied by alex" in bench.last_line
        await bench.wait(10.0)
        await bench.show(cluster_views.healed(160.0))
        assert "connected again: after 42 s" in bench.last_line, "it is said once, and stays"


async def test_an_action_under_way_is_not_covered_by_what_was_missed() -> None:
    async with console(cluster_views.waiting(), size=(120, 40), is_armed=True) as bench:
        await bench.press("A", opens_dialog=True)
        await bench.press("y", "enter")
        await bench.settle()
        await bench.link(LinkPhase.LOST, "refused")
        await bench.link(LinkPhase.LIVE)
        await bench.show(cluster_views.healed())
        assert "done  approve P-2 r1: P-2 is applied" in bench.last_line


async def test_old_data_refuses_verbs() -> None:
    async with console(cluster_views.waiting(), is_armed=True) as bench:
        await bench.wait(7)
        await bench.press("A")
        await bench.settle()
        assert "data is 7 s old" in bench.last_line


async def test_too_small_a_terminal_says_so_and_recovers() -> None:
    async with console(cluster_views.calm(), size=(80, 24), is_armed=True) as bench:
        await bench.pilot.resize_terminal(50, 10)
        await bench.pilot.pause()
        assert isinstance(bench.app.screen, TooSmall)
        assert "terminal 50x10 is too small: 60x16 is needed" in bench.screen
        await bench.press("I", "A")
        assert isinstance(bench.app.screen, TooSmall)
        await bench.pilot.resize_terminal(60, 16)
        await bench.settle()
        assert "NODES 4" in bench.screen


async def test_starting_too_small_recovers_too() -> None:
    async with console(None, size=(50, 10)) as bench:
        assert isinstance(bench.app.screen, TooSmall)
        await bench.link(LinkPhase.LIVE)
        bench.app.inbox.put(_snapshot(bench.now))
        bench.app.tick(is_forced=True)
        await bench.settle()
        assert isinstance(bench.app.screen, TooSmall)
        await bench.pilot.resize_terminal(80, 24)
        await bench.settle()
        assert "NODES 4" in bench.screen


def _snapshot(at: float) -> Received:

    return Received(at, Snapshot(view=cluster_views.calm()))


async def test_quit_of_an_owned_demo_asks() -> None:
    async with console(cluster_views.calm(), owns_demo=True, is_armed=True) as bench:
        await bench.press("q", opens_dialog=True)
        assert isinstance(bench.app.screen, QuitDialog)
        assert "Quit ends the demo" in bench.screen
        await bench.press("escape")
        assert _is_running(bench.app)
        await bench.press("q", opens_dialog=True)
        await bench.press("y", "enter")
        assert not _is_running(bench.app)


async def test_quit_of_an_attached_console_does_not_ask() -> None:
    async with console(cluster_views.calm()) as bench:
        await bench.press("ctrl+c")
        assert not _is_running(bench.app)


async def test_a_demo_that_ends_before_its_first_view_ends_the_console() -> None:
    async with console(None, owns_demo=True) as bench:
        await bench.link(LinkPhase.ENDED, "the demo ended (exit 2)")
        assert bench.app.return_code == 1


async def test_a_demo_that_ends_later_leaves_its_last_state_on_screen() -> None:
    async with console(cluster_views.calm(), owns_demo=True) as bench:
        await bench.link(LinkPhase.ENDED, "the demo ended (exit 0)")
        assert "ENDED" in bench.screen.splitlines()[0]
        assert "gpt-a" in bench.screen
        await bench.press("q")
        assert not _is_running(bench.app)


def _is_running(app: ConsoleApp) -> bool:
    return app._exit is False


async def test_help_lists_every_command() -> None:
    async with console(cluster_views.calm(), size=(120, 60)) as bench:
        await bench.press("question_mark", opens_dialog=True)
        assert isinstance(bench.app.screen, HelpDialog)
        for words in (
            "Approve the waiting plan",
            "Run a drill",
            "Worker cells",
            "not now: no plan waits",
        ):
            assert words in bench.screen
        await bench.press("x")
        assert isinstance(bench.app.screen, Overview)


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=["unicode", "ascii"])
async def test_a_transition_is_shown_step_by_step_and_moves_on(glyphs: Glyphs) -> None:
    view = cluster_views.parking_task()
    async with console(view, size=(60, 24), glyphs=glyphs) as bench:
        await bench.press("tab", "down", "t", opens_dialog=True)
        assert "Transition of gpt-a" in bench.screen
        inside = [line.split(glyphs.side) for line in bench.screen.splitlines()]
        shown = " ".join(" ".join(parts[1:-1]) for parts in inside if len(parts) > 2)
        shown = " ".join(shown.split())
        for row in (
            f"{glyphs.done} done park 22 ms predicted 100 ms",
            f"{glyphs.done} done start 310 ms {glyphs.warn} predicted 200 ms",
            f"{glyphs.busy} running form predicted 50 ms",
            f"{glyphs.idle} to come state predicted 20 ms",
            "total 332 ms predicted 1.6 s",
        ):
            assert row in shown
        assert "state from peer, micro-batches 8 kept, 4 computed again" in shown
        assert "no transition yet" not in shown  # that is the other task

        newer = view.tasks[0].transition
        assert newer is not None
        ended = [step.model_copy(update={"actual_s": 0.04}) for step in newer.steps]
        done_one = newer.model_copy(update={"steps": ended, "actual_s": 0.2, "is_done": True})
        tasks = [view.tasks[0].model_copy(update={"transition": done_one}), view.tasks[1]]
        await bench.show(view.model_copy(update={"tasks": tasks}))
        assert "total" in bench.screen
        assert "to come" not in bench.screen
        await bench.press("x")
        assert isinstance(bench.app.screen, Overview)


async def test_the_palette_offers_the_registry_and_runs_it() -> None:
    async with console(cluster_views.calm()) as bench:
        await bench.press("ctrl+p")
        await bench.pilot.press(*"allow")
        found = bench.app.screen.query_one(CommandList)

        def is_found() -> bool:
            return found.option_count > 0 and "Allow actions" in str(
                found.get_option_at_index(0).prompt
            )

        await bench.until(is_found)
        await bench.pilot.press("enter")
        await bench.until(lambda: bench.app.state.is_armed)


@pytest.mark.parametrize("key", ["pagedown", "pageup"])
async def test_the_palette_may_be_asked_for_a_page_before_it_has_a_list(key: str) -> None:
    async with console(cluster_views.calm()) as bench:
        await bench.pilot.press("ctrl+p", key)
        screen = bench.app.screen
        assert isinstance(screen, CommandPalette)
        await bench.until(lambda: screen.query_one(CommandList).option_count > 0)
        await bench.press("escape")
        assert bench.app.screen is bench.app.overview


@pytest.mark.parametrize("keys", [[], ["ctrl+p"], ["question_mark"]])
async def test_no_palette_opens_over_another_a_dialog_or_a_window_too_small(
    keys: list[str],
) -> None:
    async with console(cluster_views.calm(), is_armed=True) as bench:
        await bench.press(*keys)
        before = list(bench.app.screen_stack)
        assert len(before) == 1 + len(keys)
        await bench.pilot.resize_terminal(10, 3)
        await bench.press("ctrl+p")
        await bench.pilot.resize_terminal(80, 24)
        await bench.press("ctrl+p") if keys else None
        await bench.settle()
        assert bench.app.screen_stack == before


async def test_a_click_on_the_key_bar_runs_the_command() -> None:
    async with console(cluster_views.calm()) as bench:
        bar = bench.app.overview.query_one(KeyBar)
        place = next(first for first, _, name in bar._places if name == "app.mode")
        await bench.pilot.click("#keys", offset=(place + 1, 0))
        await bench.settle()
        assert bench.app.state.is_armed


async def test_the_cursor_stays_on_its_node_when_rows_come_and_go() -> None:
    async with console(cluster_views.calm()) as bench:
        await bench.press("down", "down", "down")
        nodes = bench.app.overview.query_one("#nodes", TablePanel)
        assert nodes.selected == "n3"
        view = cluster_views.calm()
        await bench.show(view.model_copy(update={"nodes": view.nodes[2:]}))
        assert nodes.selected == "n3"
        await bench.show(view.model_copy(update={"nodes": [view.nodes[3], *view.nodes[:3]]}))
        assert nodes.selected == "n3"


async def test_the_event_stream_stays_put_while_it_is_read() -> None:
    async with console(cluster_views.calm(), *cluster_views.log(60)) as bench:
        events = bench.app.overview.query_one(EventPanel)
        events.focus()
        await bench.press("up", "up")
        await bench.settle()
        rows = [line.text for line in events.lines[1:]]
        assert "+2 new below" in events.lines[0].text
        more = cluster_views.log(70)[60:]
        await bench.show(cluster_views.calm(), *more)
        assert [line.text for line in events.lines[1:]] == rows
        assert "+12 new below" in events.lines[0].text
        await bench.press("G")
        assert events.is_following


async def test_v_swaps_plan_and_incidents_where_one_fits() -> None:
    async with console(cluster_views.waiting(), size=(80, 24)) as bench:
        assert "PLAN P-2" in bench.screen
        assert "INCIDENTS" not in bench.screen
        await bench.press("v")
        await bench.settle()
        assert "INCIDENTS 2" in bench.screen
        assert "PLAN P-2" not in bench.screen


async def test_paste_answers_no_question() -> None:

    async with console(cluster_views.waiting(), is_armed=True) as bench:
        await bench.press("A", opens_dialog=True)
        bench.app.post_message(Paste("y\n"))
        await bench.settle()
        assert isinstance(bench.app.screen, ApproveDialog)
        assert bench.source.sent == []
        await bench.press("escape")
        await bench.press("X", opens_dialog=True)
        bench.app.post_message(Paste("too\nrisky"))
        await bench.settle()
        await bench.press("enter")
        await bench.settle()
        assert [command.reason for command in bench.source.sent] == ["too risky"]  # type: ignore[union-attr]


async def test_a_bug_in_the_source_is_shown_and_the_console_lives_on() -> None:
    async with console(cluster_views.calm()) as bench:

        async def broken(inbox: Inbox) -> None:
            raise RuntimeError("a bug")

        bench.source.run = broken  # type: ignore[method-assign]
        bench.app.run_worker(bench.app._connected())
        await bench.settle()
        await bench.settle()
        assert "RuntimeError('a bug')" in bench.app.state.link.reason


async def test_no_drill_dialog_where_the_cluster_offers_none() -> None:
    view = cluster_views.calm().model_copy(update={"drills": []})
    async with console(view, is_armed=True) as bench:
        await bench.press("I")
        await bench.settle()
        assert not isinstance(bench.app.screen, DrillDialog)
        assert "this cluster offers no drills" in bench.last_line
