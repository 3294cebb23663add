"""An operator orders: each verb asks, names what it hits, is sent once, and followed to its end."""

from pathlib import Path
from typing import Any

import pytest
from textual.events import Paste

from console.dialogs.decide import ApproveDialog
from console.screens.detail_screen import DetailScreen
from console.screens.overview import Overview
from console.viewmodel.verbs import VERBS, Verb
from controller.api.views import (
    ClusterView,
    NodeCondition,
    NodeView,
    TaskPhase,
    TaskView,
    UpkeepView,
)
from controller.api.wire import (
    Command,
    DecideLoss,
    DeferPlan,
    LimitTask,
    OrderNode,
    OrderTask,
    Reply,
    ResumeAutomation,
    SubmitTasks,
    UncordonNode,
)
from tests.console.bench import Bench, console
from tests.fakes import cluster_views

WHO: dict[str, Any] = {"request_id": "r1", "actor": "alex"}


def with_node(view: ClusterView, name: str, **changes: object) -> ClusterView:
    """Return the view with one node changed."""
    nodes = [node.model_copy(update=changes) if node.node == name else node for node in view.nodes]
    return view.model_copy(update={"nodes": nodes})


def with_task(view: ClusterView, name: str, **changes: object) -> ClusterView:
    """Return the view with one task changed."""
    tasks = [task.model_copy(update=changes) if task.name == name else task for task in view.tasks]
    return view.model_copy(update={"tasks": tasks})


def under(state: str) -> UpkeepView:
    return UpkeepView(state=state, by="alex", since=1.0)


def first_node(view: ClusterView) -> NodeView:
    return view.nodes[0]


def first_task(view: ClusterView) -> TaskView:
    return view.tasks[0]


async def select(bench: Bench, panel: str) -> None:
    """Put the cursor on the first row of a panel."""
    bench.app.overview.query_one(f"#{panel}").focus()
    await bench.press("down")
    await bench.settle()


async def sent(bench: Bench) -> Command:
    """Return what was sent, once, under the first id: questions before it have ids, too."""
    await bench.settle()
    [command] = bench.source.sent
    return command.model_copy(update={"request_id": "r1"})


@pytest.mark.parametrize(
    ("key", "order", "state"),
    [("C", "cordon", "cordoned"), ("R", "repair", "repair")],
)
async def test_an_order_of_low_danger_takes_a_reason_and_a_yes(
    key: str, order: str, state: str
) -> None:
    view = cluster_views.calm()
    name = first_node(view).node
    async with console(view, size=(120, 40), is_armed=True) as bench:
        await select(bench, "nodes")
        await bench.press(key, opens_dialog=True)
        assert "This hits" in bench.screen
        await bench.press(*"loud", "enter", "y", "enter")
        expected = OrderNode(**WHO, order=order, node=name, reason="loud")  # type: ignore[arg-type]
        assert await sent(bench) == expected
        assert f"accepted  {order} {name}" in bench.last_line
        await bench.show(with_node(view, name, upkeep=under(state)))
        assert f"done  {order} {name}: {name} is {state}" in bench.last_line


@pytest.mark.parametrize(("key", "order"), [("D", "drain"), ("Z", "isolate")])
async def test_an_order_of_high_danger_wants_the_typed_name(key: str, order: str) -> None:
    view = cluster_views.calm()
    name = first_node(view).node
    async with console(view, size=(120, 40), is_armed=True) as bench:
        await select(bench, "nodes")
        await bench.press(key, opens_dialog=True)
        await bench.press("enter", "y", "enter")
        assert f"the name is {name}" in bench.screen
        assert bench.source.sent == []
        await bench.press("backspace", *name)
        assert f"Enter: {order} {name}" in bench.screen
        await bench.press("enter")
        assert await sent(bench) == OrderNode(**WHO, order=order, node=name)  # type: ignore[arg-type]
        after = {"upkeep": under("draining")} if order == "drain" else {"isolated": "by alex"}
        await bench.show(with_node(view, name, **after))
        assert f"done  {order} {name}" in bench.last_line


@pytest.mark.parametrize("size", [(60, 20), (80, 24)])
async def test_a_name_longer_than_the_dialog_can_be_typed(size: tuple[int, int]) -> None:
    view, name = cluster_views.calm(), "ip-10-0-0-1-" + "x" * 41 + ".internal"
    nodes = [node.model_copy(update={"node": name}) for node in view.nodes[:1]]
    async with console(view.model_copy(update={"nodes": nodes}), size=size, is_armed=True) as bench:
        await select(bench, "nodes")
        await bench.press("D", opens_dialog=True)
        await bench.press("enter", *name[:-2])
        assert "to confirm: " in bench.screen
        assert "tern_" in bench.screen
        await bench.press(*name[-2:], "enter")
        assert await sent(bench) == OrderNode(**WHO, order="drain", node=name)


async def test_a_name_is_neither_pasted_nor_left_empty() -> None:
    async with console(cluster_views.calm(), size=(120, 40), is_armed=True) as bench:
        await select(bench, "nodes")
        await bench.press("D", opens_dialog=True)
        await bench.press("enter")
        bench.app.screen.post_message(Paste(first_node(cluster_views.calm()).node))
        await bench.settle()
        await bench.press("enter")
        assert isinstance(bench.app.screen, Overview)
        assert bench.source.sent == []


@pytest.mark.parametrize(
    ("upkeep", "command"),
    [
        (under("repair"), OrderNode(**WHO, order="return", node="n1")),
        (under("drained"), UncordonNode(**WHO, node="n1")),
    ],
)
async def test_a_node_returns_from_its_screen(upkeep: UpkeepView, command: Command) -> None:
    view = with_node(cluster_views.calm(), "n1", upkeep=upkeep)
    async with console(view, size=(120, 40), is_armed=True) as bench:
        await select(bench, "nodes")
        await bench.press("enter")
        assert isinstance(bench.app.screen, DetailScreen)
        assert "<U>return" in bench.screen
        await bench.press("U", opens_dialog=True)
        await bench.press("y", "enter")
        assert await sent(bench) == command
        await bench.show(cluster_views.calm())
        assert "return n1: n1 is in service" in bench.last_line


async def test_a_node_in_service_is_not_returned() -> None:
    async with console(cluster_views.calm(), size=(120, 40), is_armed=True) as bench:
        await select(bench, "nodes")
        await bench.press("U")
        assert "return: n1 is in service already" in bench.last_line


async def test_a_task_is_stopped_and_started() -> None:
    view = cluster_views.calm()
    name = first_task(view).name
    async with console(view, size=(120, 40), is_armed=True) as bench:
        await select(bench, "tasks")
        await bench.press("B")
        assert "only a stopped or held task is started" in bench.last_line
        await bench.press("S", opens_dialog=True)
        assert f"workers of {name} on n1" in bench.screen
        await bench.press(*name, "enter")
        assert await sent(bench) == OrderTask(**WHO, order="stop", task=name)
        await bench.show(with_task(view, name, phase=TaskPhase.STOPPED))
        assert f"done  stop {name}: {name} is stopped" in bench.last_line
        bench.source.sent.clear()
        await bench.press("B", opens_dialog=True)
        await bench.press("y", "enter")
        assert await sent(bench) == OrderTask(**WHO, order="start", task=name)
        await bench.show(with_task(view, name, phase=TaskPhase.STARTING))
        assert f"done  start {name}: {name} is starting" in bench.last_line


async def test_a_weight_is_a_number_above_zero() -> None:
    view = cluster_views.calm()
    name = first_task(view).name
    async with console(view, size=(120, 40), is_armed=True) as bench:
        await select(bench, "tasks")
        await bench.press("E", opens_dialog=True)
        for wrong in ("", "x", "-1", "nan"):
            await bench.press("ctrl+u", *wrong, "enter")
            assert "write a number above 0, for instance 2.5" in bench.screen
        await bench.press("ctrl+u", *"2.5", "enter", "y", "enter")
        assert await sent(bench) == LimitTask(**WHO, task=name, weight=2.5)
        await bench.show(with_task(view, name, weight=2.5))
        assert f"the weight of {name} is 2.5" in bench.last_line


def counting_down(view: ClusterView, left_s: float) -> ClusterView:
    """Return the view with its waiting plan to be applied in so long."""
    plans = [plan.model_copy(update={"apply_at": view.now + left_s}) for plan in view.plans]
    return view.model_copy(update={"plans": plans})


async def test_a_countdown_is_held() -> None:
    view = cluster_views.waiting()
    async with console(view, size=(120, 40), is_armed=True) as bench:
        await bench.press("H")
        assert "no plan counts down" in bench.last_line
        await bench.show(counting_down(view, 30.0))
        assert "<H>hold" in bench.screen
        await bench.press("H", opens_dialog=True)
        await bench.press("ctrl+u", *"20", "enter", "y", "enter")
        assert await sent(bench) == DeferPlan(**WHO, plan="P-2", revision=1, for_s=1200.0)
        assert "accepted" in bench.last_line
        await bench.show(counting_down(view, 1200.0))
        assert "P-2 is applied in 20m00s at the earliest" in bench.last_line


async def test_a_storm_is_ended() -> None:
    calm = cluster_views.calm()
    async with console(calm, size=(120, 40), is_armed=True) as bench:
        await bench.press("O")
        assert "policy applies plans already" in bench.last_line
        await bench.show(calm.model_copy(update={"automation_stopped": "two of four nodes"}))
        await bench.press("O", opens_dialog=True)
        await bench.press("y", "enter")
        assert await sent(bench) == ResumeAutomation(**WHO)
        await bench.show(calm)
        assert "policy applies plans again" in bench.last_line


async def test_a_file_of_tasks_is_submitted(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    async with console(cluster_views.calm(), size=(240, 40), is_armed=True) as bench:
        bench.source.answer = lambda command: Reply(
            request_id=command.request_id, is_ok=True, message="queued gpt-c"
        )
        await bench.press("N", opens_dialog=True)
        bench.app.screen.post_message(Paste(str(path)))
        await bench.settle()
        await bench.press("enter")
        assert "it can't be read: no such file or directory" in bench.screen
        path.write_text("#" * 1_000_001)
        await bench.press("enter")
        assert "it has more than 1,000,000 characters" in bench.screen
        path.write_text("[[task]]\n")
        await bench.press("enter", "y", "enter")
        assert await sent(bench) == SubmitTasks(
            **WHO, name="c.toml", text="[[task]]\n", folder=str(tmp_path)
        )
        assert "queued gpt-c" in bench.last_line
        assert "done" in bench.last_line


async def test_a_verb_without_a_selection_says_what_to_select() -> None:
    async with console(cluster_views.calm(), size=(120, 40), is_armed=True) as bench:
        await bench.press("C")
        assert "cordon: select a node first" in bench.last_line
        await select(bench, "nodes")
        await bench.press("S")
        assert "stop: select a task first" in bench.last_line


async def test_a_change_of_the_node_freezes_the_question() -> None:
    view = cluster_views.calm()
    async with console(view, size=(120, 40), is_armed=True) as bench:
        await select(bench, "nodes")
        await bench.press("D", opens_dialog=True)
        await bench.press("enter", *"n1")
        await bench.show(with_node(view, "n1", upkeep=under("cordoned")))
        assert "n1 has changed: healthy, cordoned: close and review" in bench.screen
        await bench.press("enter")
        assert bench.source.sent == []
        assert isinstance(bench.app.screen, Overview)


async def test_a_screen_about_another_plan_or_incident_decides_on_nothing() -> None:
    """P-2 waits because of INC-2; the screen is about INC-1."""
    async with console(cluster_views.waiting(), size=(120, 40), is_armed=True) as bench:
        bench.app.overview.query_one("#incidents").focus()
        await bench.press("down", "down", "enter")
        assert "incident INC-1" in bench.screen
        assert "approve" not in bench.screen
        await bench.press("A")
        assert not isinstance(bench.app.screen, ApproveDialog)
        await bench.press("escape", "up", "enter")
        assert "incident INC-2" in bench.screen
        await bench.press("A", opens_dialog=True)
        assert isinstance(bench.app.screen, ApproveDialog)


async def test_a_node_on_its_screen_is_the_one_declared_lost() -> None:
    """n4 is asked about; on the screen of n1, which is away too, the key is about n1."""
    view = with_node(cluster_views.asking(), "n1", condition=NodeCondition.UNREACHABLE)
    async with console(view, size=(120, 40), is_armed=True) as bench:
        await select(bench, "nodes")
        await bench.press("enter", "L", opens_dialog=True)
        assert "Declare n1 lost?" in bench.screen
        await bench.press("y", "enter")
        assert await sent(bench) == DecideLoss(**WHO, node="n1", is_lost=True)
    async with console(cluster_views.asking(), size=(120, 40), is_armed=True) as bench:
        await select(bench, "nodes")
        await bench.press("enter", "L")
        assert isinstance(bench.app.screen, DetailScreen), "n1 is in contact"


async def test_the_verbs_of_what_is_selected_are_on_the_bar() -> None:
    async with console(cluster_views.calm(), size=(200, 60), is_armed=True) as bench:
        assert "<D>drain" not in bench.screen
        await select(bench, "nodes")
        assert "<D>drain" in bench.screen
        assert "<U>return" not in bench.screen, "it is in service"
        assert "<S>stop" not in bench.screen
        await select(bench, "tasks")
        assert "<S>stop" in bench.screen
        assert "<D>drain" not in bench.screen


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.id)
async def test_every_verb_is_refused_in_view_mode(verb: Verb) -> None:
    view = counting_down(cluster_views.waiting(), 30.0)
    view = view.model_copy(update={"automation_stopped": "a storm"})
    async with console(view, size=(120, 40)) as bench:
        await select(bench, "nodes" if verb.subject == "node" else "tasks")
        bench.app.action_command(verb.id)
        await bench.settle()
        assert "view mode, ctrl+t allows actions" in bench.last_line
        assert isinstance(bench.app.screen, Overview)


async def test_orders_and_what_became_of_them_are_listed() -> None:
    view = cluster_views.calm()
    name = first_node(view).node
    async with console(view, size=(120, 40), is_armed=True) as bench:
        await bench.press("a", opens_dialog=True)
        assert "nothing yet" in bench.screen
        await bench.press("escape")
        await select(bench, "nodes")
        await bench.press("C", opens_dialog=True)
        await bench.press("enter", "y", "enter")
        await bench.settle()
        bench.source.answer = lambda command: Reply(
            request_id=command.request_id, is_ok=False, code="in_use", message="drain it"
        )
        await bench.press("R", opens_dialog=True)
        await bench.press("enter", "y", "enter")
        await bench.settle()
        await bench.press("a", opens_dialog=True)
        text = bench.screen
        assert f"repair {name}" in text
        assert "drain it (in_use)" in text
        assert text.index(f"repair {name}") < text.index(f"cordon {name}")


async def test_a_list_is_sorted_by_the_chosen_column_and_says_so() -> None:
    view = cluster_views.calm()
    nodes = [
        node.model_copy(update={"agent_pid": pid})
        for node, pid in zip(view.nodes, (30, 4, 200, 1), strict=True)
    ]
    async with console(view.model_copy(update={"nodes": nodes}), size=(160, 48)) as bench:
        await select(bench, "nodes")
        while "by agent" not in bench.screen:
            await bench.press("greater_than_sign")
        assert places(bench) == ["n4", "n2", "n1", "n3"]
        await bench.press("r")
        assert "by agent, down" in bench.screen
        assert places(bench) == ["n3", "n1", "n2", "n4"]
        bench.app.overview.query_one("#events").focus()
        await bench.press("r")
        assert "this panel has no columns" in bench.last_line


def places(bench: Bench) -> list[str]:
    """Return the nodes in the order of their rows."""
    rows = [line.split() for line in bench.screen.splitlines()]
    names = {node.node for node in cluster_views.calm().nodes}
    return [word for row in rows for word in row[:2] if word in names and "healthy" in row]
