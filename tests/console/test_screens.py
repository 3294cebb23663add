"""Every screen and dialog shows the state, and a new one needs no registration."""

import importlib
import pkgutil
from collections.abc import Iterable
from typing import ClassVar

from textual import events
from textual.screen import ModalScreen, Screen
from typing_extensions import override

import console as console_package
from console.dialogs.information import QuitDialog
from console.screens.command_search import SearchScreen
from console.screens.console_screen import LineScreen
from console.screens.detail_screen import DetailScreen
from console.viewmodel.activity import ActionPhase
from console.viewmodel.console_state import LinkPhase, State
from console.viewmodel.drawing.text import Line, span
from console.viewmodel.reducer import ActionBlocked
from console.widgets.appearance import Appearance
from console.widgets.shows_state import ShowsState
from controller.api.views import ClusterView
from tests.console.bench import console
from tests.fakes import cluster_views


class OneNodeScreen(LineScreen):
    """One node: what a contributor would add first."""

    allowed_commands: ClassVar[frozenset[str]] = frozenset({"app.help"})

    def __init__(self, appearance: Appearance, state: State, node: str) -> None:
        super().__init__(appearance, state)
        self._node = node

    @override
    def picture(self, width: int, height: int) -> list[Line]:
        nodes = self.state.view.nodes if self.state.view else []
        activity = self.state.activity
        return [
            *(
                Line((span(f"{node.node} is {node.condition}, heartbeat {node.heartbeat_at}"),))
                for node in nodes
                if node.node == self._node
            ),
            Line((span(activity.phase if activity else "no action yet"),)),
        ]


class ForgetfulScreen(Screen[None]):
    """Has a ``show`` that nobody calls."""

    def show(self, state: State) -> None:
        """Never runs."""


class UnfinishedScreen(ModalScreen[None], ShowsState):
    """Inherits ``show`` and does not write it."""


def screens_without_state(classes: Iterable[type]) -> list[str]:
    """Return the screens that no tick would paint."""
    return [
        each.__name__
        for each in classes
        if not (issubclass(each, ShowsState) and each.show is not ShowsState.show)
    ]


def screens_of_the_console() -> set[type]:
    """Return each class of a screen or dialog in the console's packages, but for their bases."""
    for module in pkgutil.walk_packages(console_package.__path__, "console."):
        importlib.import_module(module.name)
    found: set[type] = set()
    unseen: list[type] = [Screen]
    while unseen:
        derived: list[type] = unseen.pop().__subclasses__()
        unseen += derived
        found |= {each for each in derived if each.__module__.startswith("console.")}
    bases = {base for each in found for base in each.__mro__[1:]}
    return found - bases


def test_every_screen_and_dialog_of_the_console_shows_the_state() -> None:
    screens = screens_of_the_console()
    names = {each.__name__ for each in screens}
    assert {"Overview", "WaitingScreen", "TooSmall", "ApproveDialog", "HelpDialog"} <= names
    # Textual's own list of commands is made when it is opened.
    assert screens_without_state(screens - {SearchScreen}) == []


def test_a_screen_that_forgets_to_show_the_state_is_found() -> None:
    classes = (OneNodeScreen, ForgetfulScreen, UnfinishedScreen)
    assert screens_without_state(classes) == ["ForgetfulScreen", "UnfinishedScreen"]


def condition_of_n4(view: ClusterView) -> str:
    return next(node.condition.value for node in view.nodes if node.node == "n4")


async def test_a_new_screen_is_painted_at_once_and_on_each_tick_and_state_change() -> None:
    calm, waiting = cluster_views.calm(), cluster_views.waiting()
    assert condition_of_n4(calm) != condition_of_n4(waiting)
    async with console(calm) as bench:
        bench.app.open(OneNodeScreen(bench.app.appearance, bench.app.state, "n4"))
        await bench.pilot.pause()
        assert f"n4 is {condition_of_n4(calm)}" in bench.screen

        await bench.show(waiting)
        assert f"n4 is {condition_of_n4(waiting)}" in bench.screen
        assert "n4 is lost" in bench.screen

        assert "no action yet" in bench.screen
        bench.app.apply(ActionBlocked(bench.now, "approve", "no plan is pending"))
        await bench.pilot.pause()
        assert ActionPhase.REFUSED in bench.screen


async def test_a_screen_fades_while_disconnected() -> None:
    async with console(cluster_views.calm()) as bench:
        screen = OneNodeScreen(bench.app.appearance, bench.app.state, "n4")
        bench.app.open(screen)
        await bench.link(LinkPhase.LOST)
        (widget,) = screen.children
        assert all(part.style is not None and part.style.dim for part in widget.render_line(0))


async def test_keys_run_only_the_commands_that_a_screen_allows() -> None:
    async with console(cluster_views.waiting(), is_armed=True, owns_demo=True) as bench:
        screen = OneNodeScreen(bench.app.appearance, bench.app.state, "n4")
        bench.app.open(screen)
        await bench.settle()
        await bench.press("A", "X", "I", "P")
        assert bench.app.screen is screen
        assert bench.source.sent == []
        await bench.press("question_mark", opens_dialog=True)
        assert "Help" in bench.screen
        await bench.press("escape")
        assert bench.app.screen is screen
        await bench.press("q", opens_dialog=True)
        assert isinstance(bench.app.screen, QuitDialog)


async def test_keys_that_come_before_a_dialog_has_closed_close_nothing_else() -> None:
    """Keys that are read at once go to the dialog all together."""
    async with console(cluster_views.waiting()) as bench:
        overview = bench.app.screen
        await bench.press("tab", "down", "enter")
        detail = bench.app.screen
        assert isinstance(detail, DetailScreen)
        for below in (detail, overview):
            await bench.press("question_mark", opens_dialog=True)
            for _ in range(3):
                bench.app.screen.post_message(events.Key("x", "x"))
            await bench.settle()
            assert bench.app.screen is below
            await bench.press("escape")
