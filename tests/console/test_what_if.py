"""Questions to the planner: typed on their own, or asked before an order is confirmed."""

from typing import Any

import pytest
from textual.events import Paste

from console.dialogs.frame import Dialog
from console.dialogs.order import OrderDialog
from console.dialogs.what_if import WhatIfDialog
from console.viewmodel.supposed_changes import SuppositionError, not_ordered, orders_of, supposition
from console.viewmodel.verbs import VERB_BY_ID
from controller.api.wire import AskWhatIf, Command, LimitTask, OrderNode, Reply
from tests.console.bench import Bench, console
from tests.console.test_playback import past
from tests.fakes import cluster_views

ANSWER: dict[str, Any] = {
    "supposed": "n3 lost", "waf_before": 2e9, "waf_after": 2.5e9, "why": "6 workers are left",
    "tasks": [
        {"name": "gpt-a", "workers_before": 4, "workers": 4, "moves": False, "transition_s": 0.0,
         "layout_before": "tp1 pp1 dp4", "layout": "tp1 pp1 dp4"},
        {"name": "gpt-b", "workers_before": 4, "workers": 2, "moves": True, "transition_s": 4.2,
         "layout_before": "tp2 pp1 dp2", "layout": "tp2 pp1 dp1"},
    ],
    "left_alone": {"gpt-c": "stopped"}, "steps": ["park gpt-b", "continue gpt-b on n4"],
}  # fmt: skip


def answer(command: Command) -> Reply:
    data = ANSWER if isinstance(command, AskWhatIf) else None
    return Reply(request_id=command.request_id, is_ok=True, data=data)


async def select(bench: Bench, panel: str) -> None:
    bench.source.answer = answer
    bench.app.overview.query_one(f"#{panel}").focus()
    await bench.press("down")
    await bench.settle()


def asked(bench: Bench) -> list[AskWhatIf]:
    return [each for each in bench.source.asked if isinstance(each, AskWhatIf)]


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ("lose n2,n3 lose n4", {"lost": ("n2", "n3", "n4")}),
        ("add 8 add 2", {"num_added": 10}),
        ("finish a weight b=2.5 fault c", {"finished": ("a",), "weights": {"b": 2.5}, "faulted": ("c",)}),
        ("LOSE n2", {"lost": ("n2",)}),
        ("weight x=y=0", {"weights": {"x=y": 0.0}}),
    ],
)  # fmt: skip
def test_words_become_what_is_supposed(words: str, fields: dict[str, Any]) -> None:
    assert supposition(words) == fields
    AskWhatIf.model_validate({"request_id": "r", "actor": "a", **fields})


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("", "write what is different"),
        ("lose", "lose lacks its value"),
        ("drop n2", "drop is no verb"),
        ("add many", "add many: write a number of workers"),
        ("add 99999999", "write a number of workers"),
        ("weight gpt-a", "write TASK=NUMBER"),
        ("weight gpt-a=nan", "write TASK=NUMBER"),
        ("weight =2", "write TASK=NUMBER"),
    ],
)
def test_what_is_not_understood_is_named(words: str, error: str) -> None:
    with pytest.raises(SuppositionError, match=error):
        supposition(words)


def test_the_orders_are_those_of_an_operator_and_the_rest_is_named() -> None:
    fields = supposition("lose n2 weight gpt-a=2 finish gpt-b add 8 fault gpt-c")
    assert [each.shell for each in orders_of(fields)] == [
        "unicron drain n2", "unicron weight gpt-a 2", "unicron stop gpt-b",
    ]  # fmt: skip
    assert {each.verb_id for each in orders_of(fields)} <= set(VERB_BY_ID)
    assert not_ordered(fields) == "add 8  fault gpt-c"
    assert not_ordered(supposition("lose n2")) == ""


async def scenario(bench: Bench, words: str) -> None:
    """Ask the planner about these words."""
    bench.source.answer = answer
    await bench.press("w", opens_dialog=True)
    await bench.press("ctrl+u")
    bench.app.screen.post_message(Paste(words))
    await bench.settle()
    await bench.press("enter")
    await bench.settle()


async def test_a_scenario_is_ordered_each_part_after_its_own_question() -> None:
    async with console(cluster_views.calm(), size=(120, 60), is_armed=True) as bench:
        await scenario(bench, "lose n2 weight gpt-a=2 add 8")
        assert "no order brings about: add 8" in bench.screen
        assert "WAF +25% with these weights" in bench.screen
        assert "of full" not in bench.screen.split("WHAT-IF")[1]
        await bench.press("tab", opens_dialog=True)
        assert "Drain n2?" in bench.screen
        await bench.press("enter")
        await bench.press(*"n2")
        await bench.press("enter", opens_dialog=True)
        assert "Give gpt-a another weight?" in bench.screen
        assert "weight: 2" in bench.screen
        await bench.press("enter")
        await bench.settle()
        await bench.press("y", "enter")
        await bench.settle()
        drain, weight = bench.source.sent
        assert isinstance(drain, OrderNode)
        assert (drain.order, drain.node) == ("drain", "n2")
        assert isinstance(weight, LimitTask)
        assert (weight.task, weight.weight) == ("gpt-a", 2.0)
        assert not isinstance(bench.app.screen, Dialog)


async def test_what_follows_an_order_that_is_not_sent_is_dropped() -> None:
    async with console(cluster_views.calm(), size=(120, 60), is_armed=True) as bench:
        await scenario(bench, "lose n2 weight gpt-a=2")
        await bench.press("tab", opens_dialog=True)
        await bench.press("escape")
        await bench.settle()
        assert not isinstance(bench.app.screen, Dialog)
        assert bench.source.sent == []


async def test_only_an_armed_console_orders_a_scenario() -> None:
    async with console(cluster_views.calm(), size=(120, 60)) as bench:
        await scenario(bench, "lose n2")
        await bench.press("tab")
        await bench.settle()
        assert not isinstance(bench.app.screen, Dialog)
        assert "view mode, ctrl+t allows actions" in bench.screen
        assert bench.source.sent == []


async def test_a_console_that_only_looks_names_the_commands() -> None:
    async with console(cluster_views.calm(), size=(120, 60), is_view_only=True) as bench:
        await scenario(bench, "lose n2")
        assert "unicron drain n2" in bench.screen
        assert "tab orders" not in bench.screen
        await bench.press("tab")
        assert "this console only looks" in bench.screen
        assert isinstance(bench.app.screen, WhatIfDialog)


async def test_nothing_is_ordered_before_the_planner_has_answered() -> None:
    async with console(cluster_views.calm(), size=(120, 60), is_armed=True) as bench:
        await scenario(bench, "add 8")
        await bench.press("tab")
        assert "ask first" in bench.screen
        assert isinstance(bench.app.screen, WhatIfDialog)


async def test_the_planner_is_asked_about_the_selected_node_and_nothing_changes() -> None:
    async with console(cluster_views.calm(), size=(120, 48)) as bench:
        await select(bench, "nodes")
        await bench.press("w", opens_dialog=True)
        assert isinstance(bench.app.screen, WhatIfDialog)
        assert "lose n1" in bench.screen
        await bench.press("enter")
        await bench.settle()
        assert [each.lost for each in asked(bench)] == [("n1",)]
        assert bench.source.sent == []
        for text in (
            "WAF 100% now → 83% of full", "gpt-b  4 → 2 workers  tp2 pp1 dp2 → tp2 pp1 dp1  pauses 4.2 s",
            "gpt-a  4 → 4 workers  untouched", "gpt-c is stopped: no plan changes it now",
            "2 continue gpt-b on n4", "unicron drain n1",
        ):  # fmt: skip
            assert text in bench.screen, text


async def test_in_a_playback_the_planner_is_asked_and_nobody_can_have_its_plan() -> None:
    async with console(past(cluster_views.calm()), size=(120, 48)) as bench:
        await select(bench, "nodes")
        await bench.press("w", opens_dialog=True)
        await bench.press("enter")
        await bench.settle()
        assert [each.lost for each in asked(bench)] == [("n1",)]
        assert "WAF 100% now → 83% of full" in bench.screen
        assert "unicron drain" not in bench.screen
        await bench.press("tab")
        assert "in the past nothing can be ordered" in bench.screen


async def test_three_scenarios_stand_below_each_other_the_newest_first() -> None:
    async with console(cluster_views.calm(), size=(120, 60)) as bench:
        await select(bench, "tasks")
        await bench.press("w", opens_dialog=True)
        for words in ("add 1", "add 2", "add 3", "add 4", "add 3"):
            await bench.press("ctrl+u")
            bench.app.screen.post_message(Paste(words))
            await bench.settle()
            await bench.press("enter")
            await bench.settle()
        text = bench.screen
        assert "add 1" not in text
        places = [
            text.index(f"{words} ", text.index("weight TASK"))
            for words in ("add 3", "add 4", "add 2")
        ]
        assert places == sorted(places)


async def test_a_refusal_and_an_answer_of_another_version_are_said() -> None:
    async with console(cluster_views.calm(), size=(120, 48)) as bench:
        await select(bench, "nodes")
        await bench.press("w", opens_dialog=True)
        bench.source.answer = lambda command: Reply(
            request_id=command.request_id, is_ok=False, code="impossible",
            message="there is no node \x1b[31mn1",
        )  # fmt: skip
        await bench.press("enter")
        await bench.settle()
        assert "there is no node n1" in bench.screen
        assert "\x1b" not in bench.screen
        bench.source.answer = lambda command: Reply(
            request_id=command.request_id, is_ok=True, data={"tasks": 3}
        )
        await bench.press("enter")
        await bench.settle()
        assert "it has another version" in bench.screen
        await bench.press("ctrl+u", "x", "enter")
        assert "x lacks its value" in bench.screen


async def test_a_drain_shows_the_division_before_it_is_confirmed() -> None:
    async with console(cluster_views.calm(), size=(120, 48), is_armed=True) as bench:
        await select(bench, "nodes")
        await bench.press("D", opens_dialog=True)
        assert asked(bench) == []
        await bench.press(*"fan", "enter")
        await bench.settle()
        assert [each.lost for each in asked(bench)] == [("n1",)]
        assert "The planner divides the workers then" in bench.screen
        assert "gpt-b  4 → 2 workers" in bench.screen
        assert isinstance(bench.app.screen, OrderDialog)
        await bench.press(*"n1", "enter")
        await bench.settle()
        [command] = bench.source.sent
        assert isinstance(command, OrderNode)
        assert (command.order, command.node, command.reason) == ("drain", "n1", "fan")


async def test_a_stop_asks_at_once_and_a_weight_with_its_number() -> None:
    async with console(cluster_views.calm(), size=(120, 48), is_armed=True) as bench:
        await select(bench, "tasks")
        await bench.press("S", opens_dialog=True)
        await bench.settle()
        assert [each.finished for each in asked(bench)] == [("gpt-a",)]
        await bench.press("escape")
        await bench.press("E", opens_dialog=True)
        await bench.press(*"3", "enter")
        await bench.settle()
        assert asked(bench)[-1].weights == {"gpt-a": 3.0}
        assert "WAF +25% with these weights" in bench.screen


async def test_an_order_is_possible_without_an_answer() -> None:
    async with console(cluster_views.calm(), size=(120, 48), is_armed=True) as bench:
        await select(bench, "nodes")
        bench.source.answer = lambda command: (
            Reply(request_id=command.request_id, is_ok=False, message="no planner")
            if isinstance(command, AskWhatIf)
            else answer(command)
        )
        await bench.press("Z", opens_dialog=True)
        await bench.press("enter")
        await bench.settle()
        assert "no planner" in bench.screen
        await bench.press(*"n1", "enter")
        await bench.settle()
        assert len(bench.source.sent) == 1
