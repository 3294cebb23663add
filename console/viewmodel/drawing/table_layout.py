"""Rows and columns into lines: which columns fit, how wide they are, what is left out.

Columns are kept by priority, shown in their given order. A column is as wide as its widest cell
but never narrower than ``least``: a number that gains a digit does not move the other columns. The
flexible column, if any, takes the remaining width.

A table of thousands of rows shows forty. ``RowsOnDemand`` makes the cells of those alone; the
widths of its columns are then given.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.text import Cell, Ground, Line, Span, Tone, cells_wide, fit, span

GAP = 2
MARGIN = 2
"""Cells at the left, where the cursor stands."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. A lower ``priority`` is dropped later; 0 is never dropped."""

    id: str
    title: str
    priority: int
    least: int = 0
    most: int = 60
    align_right: bool = False
    is_flexible: bool = False
    widest: int | None = None
    """Width of the widest cell where that is known, 0 if none has text; None to measure them."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row. ``key`` identifies its node, task or incident, independent of the position."""

    key: str
    cells: Mapping[str, Cell]


class RowsOnDemand:
    """Rows that are made when they are looked at; their keys are known before."""

    def __init__(self, keys: Sequence[str], make: Callable[[int], TableRow]) -> None:
        self.keys = tuple(keys)
        self._make = make

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> TableRow:
        return self._make(index)

    def __iter__(self) -> Iterator[TableRow]:
        return map(self._make, range(len(self.keys)))


Rows = Sequence[TableRow] | RowsOnDemand


@dataclass(frozen=True, slots=True)
class TextTable:
    """A heading and rows of which only those that are looked at are drawn."""

    heading: Line
    rows: Rows
    columns: Sequence[Column]
    widths: Mapping[str, int]
    glyphs: Glyphs

    @property
    def keys(self) -> tuple[str, ...]:
        """Key of each row."""
        return _keys(self.rows)

    def with_rows(self, rows: Sequence[TableRow]) -> "TextTable":
        """Return the table with other rows in the same columns."""
        return replace(self, rows=rows)

    def only(self, is_wanted: Callable[[TableRow], bool]) -> "TextTable":
        """Return the table with some of its rows. All of them are made for that."""
        return self.with_rows([row for row in self.rows if is_wanted(row)])

    @property
    def lines(self) -> tuple[Line, ...]:
        """All rows, drawn."""
        return tuple(self.line(index) for index in range(len(self.rows)))

    def line(self, index: int) -> Line:
        """Return one row, drawn."""
        return _line(self.rows[index].cells, self.columns, self.widths, self.glyphs)


def draw(columns: Sequence[Column], rows: Rows, width: int, glyphs: Glyphs) -> TextTable:
    """Return the table in ``width`` cells. The first column's title is the panel's name."""
    widths = _fit(columns, rows, width)
    shown = [column for column in columns if column.id in widths]
    heading = _line(
        {column.id: (span(column.title, _title_tone(column, columns)),) for column in shown},
        shown,
        widths,
        glyphs,
    )
    return TextTable(heading.on(Ground.HEADING), rows, shown, widths, glyphs)


def _keys(rows: Rows) -> tuple[str, ...]:
    return rows.keys if isinstance(rows, RowsOnDemand) else tuple(row.key for row in rows)


def _title_tone(column: Column, columns: Sequence[Column]) -> Tone:
    return Tone.TITLE if column is columns[0] else Tone.DIM


def _fit(columns: Sequence[Column], rows: Rows, width: int) -> dict[str, int]:
    natural = {column.id: _natural(column, rows) for column in columns}
    left = width - MARGIN
    widths: dict[str, int] = {}
    for column in sorted(columns, key=lambda column: column.priority):
        need = natural[column.id] + GAP
        if column.is_flexible:
            need = max(column.least + GAP, min(need, left))
        if column.priority > 0 and (need > left or _is_empty(column, rows)):
            continue
        widths[column.id] = need - GAP
        left -= need
    flexible = next((column for column in columns if column.is_flexible), None)
    if flexible and flexible.id in widths:
        widths[flexible.id] += max(0, left)
    return widths


def _is_empty(column: Column, rows: Rows) -> bool:
    """Whether no row has a cell in a column: it is not worth its title."""
    if column.widest is not None:
        return column.widest == 0
    return bool(rows) and not any(column.id in row.cells for row in rows)


def _natural(column: Column, rows: Rows) -> int:
    widest = column.widest
    if widest is None:
        widest = max((cells_wide(row.cells.get(column.id, ())) for row in rows), default=0)
    return min(column.most, max(column.least, len(column.title), widest))


def _line(
    cells: Mapping[str, Cell], shown: Sequence[Column], widths: Mapping[str, int], glyphs: Glyphs
) -> Line:
    spans: list[Span] = [Span(" " * MARGIN)]
    for column in shown:
        cell = cells.get(column.id, ())
        spans += fit(cell, widths[column.id], glyphs.ellipsis, align_right=column.align_right)
        spans.append(Span(" " * GAP))
    return Line(tuple(spans))
