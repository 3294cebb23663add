"""The ``:`` bar: names of what is there, verbs on it, and nothing else."""

import pytest
from textual.events import Paste

from console.dialogs.order import OrderDialog
from console.screens.detail_screen import DetailScreen
from console.viewmodel.console_state import State
from console.viewmodel.destinations import MOST_FOUND, found
from console.viewmodel.details.detail import DetailSubject
from controller.api.views import ClusterView
from tests.console.bench import console
from tests.fakes import cluster_views


def state(view: ClusterView | None = None) -> State:
    return State(view=view or cluster_views.waiting())


def words(text: str) -> list[str]:
    return [each.words for each in found(state(), text)]


def test_without_a_text_all_that_has_a_screen_is_listed_and_no_verb() -> None:
    assert words("")[:2] == ["incident INC-2", "incident INC-1"]
    assert set(words("")) >= {"plan P-2", "task gpt-a", "node n4"}
    assert not any(each.verb_id for each in found(state(), ""))


def test_a_name_is_closer_than_a_part_of_a_name() -> None:
    view = cluster_views.calm()
    names = ["n12", "n11", "n1"]
    nodes = [view.nodes[0].model_copy(update={"node": name}) for name in names]
    listed = found(state(view.model_copy(update={"nodes": nodes})), "n1")
    assert listed[0].words == "node n1"
    assert {each.words for each in listed} >= {"node n11", "drain n1", "cordon n12"}


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("drain n3", "drain n3"), ("DRAIN  N3", "drain n3"), ("stop gpt-b", "stop gpt-b"),
        ("p-2", "plan P-2"), ("inc-1", "incident INC-1"), ("incident", "incident INC-2"),
    ],
)  # fmt: skip
def test_words_find_screens_and_verbs(text: str, first: str) -> None:
    assert words(text)[0] == first


def test_what_nothing_has_is_not_found_and_a_large_cluster_is_cut() -> None:
    assert words("no such thing") == []
    assert found(State(), "n1") == []
    view = cluster_views.calm()
    nodes = [view.nodes[0].model_copy(update={"node": f"m{each}"}) for each in range(2048)]
    assert len(found(state(view.model_copy(update={"nodes": nodes})), "m")) == MOST_FOUND


async def test_a_typed_name_opens_its_screen() -> None:
    async with console(cluster_views.calm(), size=(120, 40)) as bench:
        await bench.press("colon", opens_dialog=True)
        await bench.press(*"n3", "enter")
        await bench.settle()
        assert isinstance(bench.app.screen, DetailScreen)
        assert bench.app.subject == DetailSubject("node", "n3")


async def test_a_verb_asks_first_and_only_in_an_armed_console() -> None:
    async with console(cluster_views.calm(), size=(120, 40)) as bench:
        await bench.press("colon", opens_dialog=True)
        await bench.press(*"drain", "space", *"n3", "enter")
        await bench.settle()
        assert "view mode, ctrl+t allows actions" in bench.last_line
        await bench.press("ctrl+t", "colon", opens_dialog=True)
        await bench.press(*"drain", "space", *"n3", "tab", "enter")
        await bench.settle()
        assert isinstance(bench.app.screen, OrderDialog)
        assert "Drain n3?" in bench.screen
        assert bench.source.sent == []


async def test_the_choice_stays_while_the_list_changes() -> None:
    view = cluster_views.calm()
    async with console(view, size=(120, 40)) as bench:
        await bench.press("colon", opens_dialog=True)
        await bench.press(*"node", "down", "down")
        await bench.show(view.model_copy(update={"nodes": view.nodes[1:]}))
        await bench.press("enter")
        await bench.settle()
        assert bench.app.subject == DetailSubject("node", "n3")


async def test_what_comes_while_one_types_is_not_chosen() -> None:
    view = cluster_views.calm()
    first = cluster_views.killed_rank()
    async with console(view.model_copy(update={"incidents": [first]}), size=(120, 40)) as bench:
        await bench.press("colon", opens_dialog=True)
        await bench.press(*"inc")
        newer = first.model_copy(update={"id": "INC-9"})
        await bench.show(view.model_copy(update={"incidents": [first, newer]}))
        assert "INC-9" in bench.screen
        await bench.press("enter")
        await bench.settle()
        assert bench.app.subject == DetailSubject("incident", "INC-1")


async def test_nothing_is_chosen_where_nothing_is_found() -> None:
    async with console(cluster_views.calm(), size=(60, 20)) as bench:
        await bench.press("colon", opens_dialog=True)
        bench.app.screen.post_message(Paste("\x1b[31mno\nsuch"))
        await bench.settle()
        assert "nothing has that name" in bench.screen
        assert "\x1b" not in bench.screen
        await bench.press("enter")
        assert "nothing has that name" in bench.screen
        await bench.press("escape")
        assert bench.app.is_on_overview
