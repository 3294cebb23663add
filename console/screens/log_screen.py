"""The screen of logs: what the ranks of a task write, merged by time with the event stream."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, Final

from textual import events
from textual.binding import Binding, BindingType
from typing_extensions import override

from console.screens.console_screen import SCROLL_KEYS, LineScreen
from console.viewmodel.console_state import State
from console.viewmodel.dialog_frame import TextField
from console.viewmodel.drawing.text import Line
from console.viewmodel.log_book import LogBook, LogEntry, by_source
from console.viewmodel.log_picture import FirstFault, LogWindow, line_near, log_rows, moved, wanted
from console.viewmodel.panels.key_bar import KeyHint, draw_key_bar
from console.viewmodel.panels.playback_strip import foot_line
from console.viewmodel.panels.status_bar import status_line
from console.widgets.appearance import Appearance
from controller.api.wire import Reply

ReadRanks = Callable[[tuple[int, ...], LogBook, bool], Awaitable[Reply]]
"""Asks for the output of some ranks, as far as the book has not read it.

The last argument is whether that of their former processes is wanted.
"""
ASK_EVERY_S: Final = 1.0
MOST_RANKS: Final = 64
"""How many ranks are asked at once."""
_KEYS: Final = (
    KeyHint("", "escape", "back", "", ""), KeyHint("", "slash", "filter", "", ""),
    KeyHint("", "F", "first faults", "", ""), KeyHint("", "p", "process before", "", ""),
    KeyHint("", "up", "", "", ""),
    KeyHint("", "end", "follow", "", ""), KeyHint("", "q", "quit", "", ""),
)  # fmt: skip


class LogScreen(LineScreen):
    """Lines of some ranks of a task, and of the event stream.

    Args:
        appearance: How it looks.
        state: The state.
        title: What the logs are about.
        ranks_of: Returns the ranks whose output is wanted.
        read: Asks for it.
        at: Instant to begin at, seconds since the epoch; None for the newest lines.
    """

    allowed_commands: ClassVar[frozenset[str]] = frozenset({"app.quit", "app.help", "app.suspend"})
    BINDINGS: ClassVar[list[BindingType]] = [
        *SCROLL_KEYS,
        Binding("slash", "filter", show=False),
        Binding("F", "faults", show=False),
        Binding("p", "previous", show=False),
    ]

    def __init__(
        self,
        appearance: Appearance,
        state: State,
        title: str,
        ranks_of: Callable[[State], Sequence[int]],
        read: ReadRanks,
        at: float | None = None,
    ) -> None:
        super().__init__(appearance, state)
        self._title, self._ranks_of, self._read = title, ranks_of, read
        self._book = LogBook()
        self._filter = TextField()
        self._window = LogWindow()
        self._refused = ""
        self._is_previous = False
        self._at = at
        self._take_events(state)

    @override
    def picture(self, width: int, height: int) -> list[Line]:
        glyphs, rows = self.appearance.glyphs, max(2, height - 3)
        title = f"{self._title}, the process before" if self._is_previous else self._title
        title = f"{title}  {self._refused}" if self._refused else title
        lines = log_rows(self._book, self._window, title, (width, rows), glyphs)
        return [
            status_line(self.state, width, glyphs),
            *lines,
            *[Line()] * (rows - len(lines)),
            foot_line(self.state, width, glyphs),
            draw_key_bar(_KEYS, width, glyphs).line,
        ]

    @override
    def show(self, state: State) -> None:
        self._take_events(state)
        super().show(state)

    def _take_events(self, state: State) -> None:
        if state.view is not None:
            self._book.add_events(state.log.lines, state.view.started_wall_s)

    @override
    def on_mount(self) -> None:
        super().on_mount()
        self.run_worker(self._follow(), name="logs", exclusive=True)

    async def _follow(self) -> None:
        """Read what is new each second, until the screen is left."""
        while True:
            ranks = self._ranks_of(self.state)
            for first in range(0, len(ranks), MOST_RANKS):
                await self._ask(tuple(ranks[first : first + MOST_RANKS]))
            self._begin_at()
            self.redraw()
            await asyncio.sleep(ASK_EVERY_S)

    def _begin_at(self) -> None:
        """Go to the instant that was asked for, once the lines have come."""
        at, self._at = self._at, None
        if at is not None and self._window.anchor is None:
            anchor = line_near(self._book.entries, at, max(1, self.app.size.height - 4))
            self._window = LogWindow(self._filter.text, self._window.is_typing, anchor)

    async def _ask(self, ranks: tuple[int, ...]) -> None:
        book = self._book
        reply = await self._read(ranks, book, self._is_previous)
        if book is not self._book:
            return  # meanwhile other processes are wanted
        self._refused = "" if reply.is_ok else reply.message
        data: dict[str, Any] = reply.data or {}
        if reply.is_ok and self._is_previous and not data.get("is_previous"):
            self._refused = "this controller is too old to read what former processes wrote"
            return
        parts = data.get("logs", [])
        view = self.state.view
        now = view.started_wall_s + self.state.cluster_now if view else 0.0
        for part in parts:
            self._book.add_part(part, now)

    def on_key(self, event: events.Key) -> None:
        """Edit the filter while it is typed. Escape clears one that stands."""
        is_cleared = event.key == "escape"
        if not (self._window.is_typing or (is_cleared and self._filter.text)):
            return
        if event.key in {"up", "down", "pageup", "pagedown"}:
            return
        event.stop()
        event.prevent_default()
        is_typing = not (is_cleared or event.key == "enter")
        if is_cleared:
            self._filter = self._filter.cleared()
        elif is_typing:
            character = event.character if event.is_printable else None
            self._filter = self._filter.pressed(event.key, character)
        self._window = LogWindow(self._filter.text, is_typing, self._window.anchor)
        self.redraw()

    def action_back(self) -> None:
        """Return to the lines, or to the screen below."""
        if self._window.faults is not None:
            self._window = LogWindow(self._filter.text)
            self.redraw()
        else:
            _ = self.dismiss()

    def action_filter(self) -> None:
        """Take the next keys for the filter."""
        self._window = LogWindow(self._filter.text, is_typing=True, anchor=self._window.anchor)
        self.redraw()

    def action_scroll(self, delta: int) -> None:
        """Move by lines."""
        entries, page = wanted(self._book, self._filter.text), max(1, self.app.size.height - 4)
        anchor = moved(entries, self._window.anchor, delta, page)
        self._window = LogWindow(self._filter.text, self._window.is_typing, anchor)
        self.redraw()

    def action_page(self, delta: int) -> None:
        """Move by pages."""
        self.action_scroll(delta * max(1, self.app.size.height - 5))

    def action_jump(self, to_end: int) -> None:
        """Go to the oldest line, or follow the newest."""
        self.action_scroll(10**9 if to_end else -(10**9))

    def action_previous(self) -> None:
        """Show what the ranks' former processes wrote; again: what the present ones write."""
        self._is_previous = not self._is_previous
        self._book = LogBook()
        self._window = LogWindow(self._filter.text)
        self._take_events(self.state)
        self.run_worker(self._follow(), name="logs", exclusive=True)
        self.redraw()

    def action_faults(self) -> None:
        """Show the first fault of each rank, the earliest first."""
        found = [
            fault
            for entries in by_source(self._book.entries).values()
            if (fault := first_fault(entries)) is not None
        ]
        faults = tuple(sorted(found, key=lambda fault: fault.entry))
        self._window = LogWindow(self._filter.text, faults=faults)
        self.redraw()


def first_fault(entries: Sequence[LogEntry]) -> FirstFault | None:
    """Return the first fault in the lines of one rank, as the classifier sees it."""
    from profiles.faults.stream import FindingStream  # noqa: PLC0415 (it takes a moment to import)

    stream = FindingStream()
    text = "".join(f"{entry.text}\n" for entry in entries)
    found = [*stream.feed(text.encode(errors="replace")), *stream.close()]
    if not found:
        return None
    verdict = found[0].verdict
    return FirstFault(entries[verdict.line - 1], str(verdict.status), str(verdict.severity))
