"""The screen about one task, node, incident or plan. Escape goes back to where it was opened."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.binding import BindingType
from typing_extensions import override

from console.screens.console_screen import SCROLL_KEYS, LineScreen
from console.viewmodel.console_state import State
from console.viewmodel.details.detail import DetailSubject, detail_picture, most_top
from console.viewmodel.details.incident_detail import known_evidence
from console.viewmodel.drawing.text import Line
from console.viewmodel.panels.key_bar import KeyHint, with_keys
from console.widgets.appearance import Appearance


@dataclass(frozen=True, slots=True)
class DetailKeys:
    """The keys on a screen's bar, and whether a command may run there, by the subject."""

    hints: Callable[[State, DetailSubject], Sequence[KeyHint]]
    is_allowed: Callable[[State, DetailSubject, str], bool]


LookCloser = Callable[[DetailSubject], Awaitable[None]]
"""Asks the controller for what views leave out of a subject."""


class DetailScreen(LineScreen):
    """Lines about a subject, which can be scrolled, and follow the state."""

    BINDINGS: ClassVar[list[BindingType]] = SCROLL_KEYS

    def __init__(
        self,
        appearance: Appearance,
        state: State,
        subject: DetailSubject,
        keys: DetailKeys,
        look_closer: LookCloser,
    ) -> None:
        super().__init__(appearance, state)
        self.subject = subject
        self._keys = keys
        self._top = 0
        self._look_closer = look_closer
        self._looked_at: object = None

    @override
    def on_mount(self) -> None:
        super().on_mount()
        self._ask()

    @override
    def show(self, state: State) -> None:
        super().show(state)
        self._ask()

    def _ask(self) -> None:
        """Ask for what views leave out of an incident, once and when that has become more."""
        if self.subject.kind != "incident":
            return
        known = known_evidence(self.state, self.subject.name)
        seen = known, self.state.link.since  # an answer may have got lost with the connection
        if known is not None and seen != self._looked_at and self.state.is_live:
            self._looked_at = seen
            self.run_worker(self._look_closer(self.subject), exclusive=True)

    @override
    def picture(self, width: int, height: int) -> list[Line]:
        return detail_picture(
            self.state, self.subject, self._top, (width, height), self.appearance.glyphs,
            with_keys(self._keys.hints(self.state, self.subject), self.appearance.keys),
        )  # fmt: skip

    @override
    def allows(self, command_id: str) -> bool:
        return self._keys.is_allowed(self.state, self.subject, command_id)

    def action_back(self) -> None:
        """Return to the screen below."""
        _ = self.dismiss()

    def action_scroll(self, delta: int) -> None:
        """Scroll by lines."""
        self._show_from(self._top + delta)

    def action_page(self, delta: int) -> None:
        """Scroll by pages."""
        self._show_from(self._top + delta * max(1, self.app.size.height - 6))

    def action_jump(self, to_end: int) -> None:
        """Go to the first or the last line."""
        self._show_from(self._most_top() if to_end else 0)

    def _show_from(self, top: int) -> None:
        self._top = min(max(0, top), self._most_top())
        self.redraw()

    def _most_top(self) -> int:
        width, height = self.app.size
        return most_top(self.state, self.subject, (width, height), self.appearance.glyphs)
