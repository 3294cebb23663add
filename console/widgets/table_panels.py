"""Panels that show a table with a cursor: nodes, tasks, incidents.

The cursor stands on a key, not on a position: rows that come, go or move never put another one
under it. If its row vanishes, it goes to the row that took its place.
"""

from collections.abc import Callable
from dataclasses import replace

from textual import events
from typing_extensions import override

from console.viewmodel.console_state import State
from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.table_layout import TextTable
from console.viewmodel.drawing.text import Ground, Line, Span, Tone
from console.viewmodel.filtering import filtered_table
from console.viewmodel.sorting import Order, next_order, order_words, sorted_table
from console.widgets.appearance import Appearance
from console.widgets.painted import Panel

Draw = Callable[[State, int, Glyphs], TextTable]


class TablePanel(Panel):
    """A table drawn by the view model, with a cursor and a window on its rows."""

    def __init__(self, draw: Draw, appearance: Appearance, *, id: str) -> None:  # noqa: A002 (Textual's name)
        super().__init__(appearance, id=id)
        self._draw_table = draw
        self._key: str | None = None
        self._position = 0
        self._top = 0
        self._order: Order | None = None
        self._made: tuple[State, tuple[object, ...], TextTable] | None = None
        """The newest table, and what it was made of."""

    @property
    def selected(self) -> str | None:
        """Key of the row under the cursor, None before the operator has chosen one."""
        return self._key

    def draw(self) -> list[Line]:
        """Return the heading and the rows in the window."""
        table = self._table()
        rows = self.size.height - 1
        self._settle(table.keys, rows)
        shown = range(self._top, min(len(table.rows), self._top + rows))
        note = order_words(table, self._order)
        if len(table.rows) > rows > 0:
            note = f"{note}  {self._top + 1}-{shown.stop} of {len(table.rows)}".strip()
        lines = [self.headed(table.heading, note)]
        for index in shown:
            is_selected = self.has_focus and index == self._position and self._key is not None
            lines.append(self._row(table.line(index), is_selected=is_selected))
        return lines

    def _table(self) -> TextTable:
        """Return the rows that the filter lets through, in the chosen order.

        A key that moves the cursor or the focus asks again for what has not changed.
        """
        state, width = self.state, max(1, self.size.width)
        by = (width, self.appearance.glyphs, self.filter.text, self._order)
        if self._made is None or self._made[0] is not state or self._made[1] != by:
            table = self._draw_table(state, width, self.appearance.glyphs)
            self._made = (
                state,
                by,
                sorted_table(filtered_table(table, self.filter.text), self._order),
            )
        return self._made[2]

    @override
    def sort(self, delta: int) -> bool:
        self._order = next_order(self._table(), self._order, delta)
        self.repaint()
        return True

    @override
    def reverse_order(self) -> bool:
        if self._order is None:
            self._order = next_order(self._table(), None, 1)
        if self._order is not None:
            self._order = replace(self._order, is_descending=not self._order.is_descending)
        self.repaint()
        return True

    def move(self, delta: int) -> None:
        """Move the cursor; the first move puts it on the first row."""
        keys = self._table().keys
        if not keys:
            return
        target = 0 if self._key is None and abs(delta) == 1 else self._position + delta
        self._position = min(max(0, target), len(keys) - 1)
        self._key = keys[self._position]
        self.repaint()

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on the row under the mouse."""
        index = self._top + event.y - 1
        keys = self._table().keys
        if event.y > 0 and index < len(keys):
            self._position, self._key = index, keys[index]
            self.repaint()

    def _settle(self, keys: tuple[str, ...], rows: int) -> None:
        """Find the cursor's row again and keep it inside the window."""
        if self._key is not None and self._key in keys:
            self._position = keys.index(self._key)
        elif self._key is not None and keys:
            self._position = min(self._position, len(keys) - 1)
            self._key = keys[self._position]
        elif not keys:
            self._key = None
        last_top = max(0, len(keys) - rows)
        if self._key is not None:
            self._top = min(max(self._top, self._position - rows + 1), self._position)
        self._top = min(max(0, self._top), last_top)

    def _row(self, line: Line, *, is_selected: bool) -> Line:
        if not is_selected:
            return line
        margin, *rest = line.spans
        mark = Span(self.appearance.glyphs.cursor + margin.text[1:], Tone.FOCUS)
        return Line((mark, *rest), Ground.SELECTED)
