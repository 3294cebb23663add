"""The console's application: a source sends events, screens show the state, commands act on it.

Events wait in an inbox until the next tick. The tick folds them into the state and paints the rows
that changed. The connection runs as a worker of the app, so no screen owns it. ``OperatorActions``
carries out the commands; the view model decides on every text.
"""

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Final

from textual import events
from textual.app import App
from textual.binding import Binding, BindingType
from textual.command import Provider
from textual.geometry import Size
from textual.screen import Screen
from textual.timer import Timer
from typing_extensions import override

from console.client.incident_export import write_post_mortem
from console.client.source import ControllerSource, Inbox, NoReplyError
from console.command_registry import (
    COMMAND_BY_ID,
    COMMANDS as REGISTRY,
    bar_hints,
)
from console.operator_actions import OperatorActions, OperatorSession, ResultT
from console.screens.command_search import CommandSearch, SearchScreen
from console.screens.console_screen import ConsoleScreen
from console.screens.detail_screen import DetailScreen
from console.screens.overview import Overview
from console.screens.waiting import TooSmall, WaitingScreen
from console.viewmodel.activity import Effect
from console.viewmodel.console_state import Link, LinkPhase, State, is_recovering
from console.viewmodel.details.detail import DetailSubject
from console.viewmodel.news import attention_sequence, new_alerts
from console.viewmodel.panel_places import is_too_small
from console.viewmodel.reducer import (
    ActionAnswered,
    ActionBlocked,
    ActionSent,
    ActionUnanswered,
    ConsoleEvent,
    LinkChanged,
    ModeSwitched,
    Ticked,
    reduce,
)
from console.widgets.appearance import Appearance
from console.widgets.bars import KeyBar
from console.widgets.shows_state import ShowsState
from controller.api.wire import Command, Reply

FIRST_S: Final = 0.01
"""How often the console looks whether its first view has come."""
TICK_S: Final = 0.1
CALM_S: Final = 0.25
UNFOCUSED_S: Final = 1.0
LIVELY_S: Final = 2.0
"""How long ticks stay fast after a key."""


def _bindings() -> list[BindingType]:
    return [
        Binding(command.key, f"command('{command.id}')", command.title, show=False, id=command.id)
        for command in REGISTRY
    ]


class ConsoleApp(App[int], inherit_bindings=False):
    """The console. ``return_code`` is 0 after a normal end, 1 if the demo did not start."""

    CSS = "Screen { background: $ground; } Dialog { background: black 35%; }"
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {CommandSearch}
    BINDINGS: ClassVar[list[BindingType]] = _bindings()

    def __init__(
        self,
        source: ControllerSource,
        session: OperatorSession,
        clock: Callable[[], float],
        new_request_id: Callable[[], str],
        *,
        appearance: Appearance | None = None,
    ) -> None:
        self.appearance = appearance or Appearance()  # the style sheet asks for its colours
        super().__init__()
        self.animation_level = "none"
        self.inbox = Inbox()
        self.overview = Overview(self.appearance, bar_hints)
        self._source = source
        self._session = session
        self._clock = clock
        self._operator_actions = OperatorActions(self, session, clock, new_request_id)
        now = clock()
        self.state = State(
            now=now,
            owns_demo=session.owns_demo,
            owns_playback=session.owns_playback,
            is_view_only=session.is_view_only,
            is_in_browser=session.is_in_browser,
            link=Link(since=now),
        )
        if session.starts_armed:
            self.state = reduce(self.state, ModeSwitched(now, is_armed=True))
        self._waiting: WaitingScreen | None = None
        self._look_often: Timer | None = None
        self._too_small: TooSmall | None = None
        self._due = now
        self._lively_until = now

    @property
    def subject(self) -> DetailSubject | None:
        """The subject of the top screen, or the selection on the overview."""
        screens = [each for each in self.screen_stack if isinstance(each, DetailScreen)]
        return screens[-1].subject if screens else self.overview.subject

    @property
    def is_on_overview(self) -> bool:
        """Whether no screen about one thing lies on the overview."""
        return not any(isinstance(each, DetailScreen) for each in self.screen_stack)

    @override
    def get_css_variables(self) -> dict[str, str]:
        return {**super().get_css_variables(), "ground": self.appearance.palette.background}

    def get_default_screen(self) -> Screen[None]:
        """Return the overview; all other screens lie on top of it."""
        return self.overview

    def on_mount(self) -> None:
        """Start the connection and the tick."""
        self.set_keymap(self.appearance.keys)
        self._waiting = WaitingScreen(self.appearance, self.state)
        _ = self.push_screen(self._waiting)
        self._check_size(self.size)
        self.run_worker(self._connected(), name="source")
        self.set_interval(TICK_S, self.tick)
        self._look_often = self.set_interval(FIRST_S, self._look_for_first_view)

    def _look_for_first_view(self) -> None:
        if not self.inbox.is_empty:
            self.tick(is_forced=True)

    def tick(self, *, is_forced: bool = False) -> None:
        """Fold what arrived since the last tick and paint; cheap when it is not due yet."""
        now = self._clock()
        if now < self._due and not is_forced:
            return
        before = self.state
        for event in self.inbox.drain():
            self.state = reduce(self.state, event)
        self._call_for_attention(before)
        self.state = reduce(self.state, Ticked(now))
        self._due = now + self._period_s(now)
        self._end_waiting()
        for screen in self.screen_stack:
            if isinstance(screen, ShowsState) and screen.is_mounted:
                screen.show(self.state)

    def _call_for_attention(self, before: State) -> None:
        """Ring, or have the terminal show a message, if something has come that needs a person."""
        how = self.appearance.attention
        if how == "none" or before.view is self.state.view:
            return
        for alert in new_alerts(before, self.state):
            if alert.severity != "info":
                self._write_to_terminal(attention_sequence(how, alert.title))

    def _write_to_terminal(self, text: str) -> None:
        if self._driver is not None:
            self._driver.write(text)

    def apply(self, event: ConsoleEvent) -> None:
        """Fold an event of our own and paint at once."""
        self.inbox.put(event)
        self.tick(is_forced=True)

    def action_command(self, command_id: str) -> None:
        """Run a command on the newest state, or say why it can't be run now.

        What has arrived is shown first. Where nothing has, only time has passed.
        """
        if self.inbox.is_empty:
            self.state = reduce(self.state, Ticked(self._clock()))
        else:
            self.tick(is_forced=True)
        command = COMMAND_BY_ID[command_id]
        if isinstance(self.screen, ConsoleScreen) and not self.screen.allows(command_id):
            return
        enabled = command.enabled(self.state)
        if enabled is True:
            command.run(self._operator_actions)
        else:
            self.apply(ActionBlocked(self._clock(), command.label or command.title, enabled))

    def ask(self, dialog: Screen[ResultT], answered: Callable[[ResultT | None], None]) -> None:
        """Open a dialog and hand over its result."""
        _ = self.push_screen(dialog, answered)

    def open(self, screen: Screen[None]) -> None:
        """Put a screen on top of the present one until it is dismissed."""
        _ = self.push_screen(screen)

    def transmit(self, command: Command, title: str, effect: Effect) -> None:
        """Send a command to the controller and follow its life."""
        self.apply(ActionSent(self._clock(), command.request_id, title, effect))
        self.run_worker(self._delivered(command), name=command.request_id, group="commands")

    def export(self, incident: str, request_id: str) -> None:
        """Write the post-mortem of an incident and follow that like an order."""
        self.apply(ActionSent(self._clock(), request_id, f"post-mortem of {incident}", None))
        self.run_worker(self._exported(incident, request_id), name=request_id, group="commands")

    def transmit_quietly(self, command: Command) -> None:
        """Send a command whose outcome shows in the next view."""
        self.run_worker(self._delivered(command), name=command.request_id, group="commands")

    async def answer_to(self, command: Command) -> Reply:
        """Return the reply to a question. Without a connection it is refused."""
        try:
            return await self._source.send(command)
        except NoReplyError as error:
            return Reply(request_id=command.request_id, is_ok=False, message=str(error))

    def show_palette(self) -> None:
        """Open the command palette over a whole screen that has room for it."""
        if isinstance(self.screen, ConsoleScreen):
            self.open(SearchScreen())

    @override
    def action_command_palette(self) -> None:
        """Run our command, which some screens refuse: Textual binds the key on every screen."""
        self.action_command("app.palette")

    def suspend_console(self) -> None:
        """Give the terminal back to the shell until it is continued."""
        self.action_suspend_process()

    def end(self) -> None:
        """End the app."""
        self.exit(0)

    async def on_event(self, event: events.Event) -> None:
        """Tick faster for a while after a key."""
        if isinstance(event, events.Key):
            self._lively_until = self._clock() + LIVELY_S
        await super().on_event(event)

    def on_key_bar_clicked(self, message: KeyBar.Clicked) -> None:
        """Run what was clicked."""
        self.action_command(message.command_id)

    def on_resize(self, event: events.Resize) -> None:
        """Show or hide the "too small" screen."""
        self._check_size(event.size)

    def _period_s(self, now: float) -> float:
        if not self.app_focus:
            return UNFOCUSED_S
        view = self.state.view
        is_lively = now < self._lively_until or (
            view is not None and any(is_recovering(self.state, task) for task in view.tasks)
        )
        return TICK_S if is_lively else CALM_S

    def _end_waiting(self) -> None:
        if self.state.view is not None and self._waiting is not None:
            if self._too_small is not None:  # ``dismiss`` ends whatever is on top
                _ = self._too_small.dismiss()
            _ = self._waiting.dismiss()
            self._waiting = self._too_small = None
            self._check_size(self.size)
            if self._look_often is not None:
                self._look_often.stop()
        elif self.state.view is None and self.state.link.phase is LinkPhase.ENDED:
            self.exit(1, return_code=1)

    def _check_size(self, size: Size) -> None:
        if self._waiting is None and self.state.view is None:
            return  # a first resize comes before the screens are there; on_mount asks again
        is_needed = is_too_small(size.width, size.height)
        if is_needed and self._too_small is None:
            self._too_small = TooSmall(self.appearance, self.state)
            _ = self.push_screen(self._too_small)
        elif self._too_small is not None and not is_needed:
            _ = self._too_small.dismiss()
            self._too_small = None

    async def _connected(self) -> None:
        """Run the source; a bug in it is shown like a lost connection, and the console lives on."""
        try:
            await self._source.run(self.inbox)
        except Exception as error:  # noqa: BLE001 (the console's one worker wrapper)
            reason = f"internal error in the console's connection: {error!r}"
            self.inbox.put(LinkChanged(Link(LinkPhase.LOST, self._clock(), reason)))

    async def _exported(self, incident: str, request_id: str) -> None:
        is_ok, message = await write_post_mortem(self._source.socket_path, incident, Path.cwd())
        reply = Reply(request_id=request_id, is_ok=is_ok, message=message)
        self.inbox.put(ActionAnswered(self._clock(), reply))
        self.tick(is_forced=True)

    async def _delivered(self, command: Command) -> None:
        try:
            reply = await self._source.send(command)
        except NoReplyError as error:
            self.inbox.put(ActionUnanswered(self._clock(), command.request_id, str(error)))
        else:
            self.inbox.put(ActionAnswered(self._clock(), reply))
        self.tick(is_forced=True)
