"""The order of a table's rows, by what is written in one column."""

import re
from dataclasses import dataclass
from typing import Final

from console.viewmodel.drawing.table_layout import TableRow, TextTable

SortKey = tuple[int, float, tuple[tuple[int, int, str], ...]]

_DURATION: Final = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:([\d.]+) ?s)?(?:([\d.]+) ms)?")
_NUMBER: Final = re.compile(r"([+-]?\d[\d.]*) ?([kMGTPE]?)(?:iB|%|[^\w].*)?")
_DIGITS: Final = re.compile(r"(\d+)")
_SCALE: Final = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_NOTHING: Final = frozenset({"", "-", "–"})  # noqa: RUF001 (the sign of no value)


@dataclass(frozen=True, slots=True)
class Order:
    """By which column a table is sorted, and from which end."""

    column: str
    is_descending: bool = False


def sort_key(text: str) -> SortKey:
    """Return what a cell is sorted by.

    Durations and numbers come in the order of their values, whatever their units; then other texts,
    in which numbers count as numbers (``n2`` before ``n10``); then cells without a value.
    """
    text = text.strip()
    if text in _NOTHING:
        return 2, 0.0, ()
    if (found := _DURATION.fullmatch(text)) and any(found.groups()):
        hours, minutes, seconds, milliseconds = (_float(part) for part in found.groups())
        return 0, 3600 * hours + 60 * minutes + seconds + milliseconds / 1000, ()
    if found := _NUMBER.fullmatch(text):
        return 0, _float(found[1]) * _SCALE[found[2]], ()
    parts = _DIGITS.split(text.casefold())
    return 1, 0.0, tuple((0, int(p), "") if p.isdecimal() else (1, 0, p) for p in parts if p)


def _float(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:  # two points, as in an address
        return 0.0


def sorted_table(table: TextTable, order: Order | None) -> TextTable:
    """Return a table in an order. Equal rows keep theirs; rows without a value are the last."""
    if order is None or order.column not in table.widths:
        return table

    def key(row: TableRow) -> SortKey:
        kind, number, text = sort_key(
            " ".join(part.text for part in row.cells.get(order.column, ()))
        )
        return kind, number, text

    rows = sorted(table.rows, key=key, reverse=order.is_descending)
    if order.is_descending:  # equal ones and empty ones as in the other direction
        filled = [row for row in rows if key(row)[0] < 2]
        empty = [row for row in table.rows if key(row)[0] == 2]
        rows = [*filled, *empty]
    return table.with_rows(rows)


def next_order(table: TextTable, order: Order | None, delta: int) -> Order | None:
    """Return the order by the column after the present one, or before; None is the table's own."""
    columns = [None, *(column.id for column in table.columns)]
    present = order.column if order is not None and order.column in columns else None
    column = columns[(columns.index(present) + delta) % len(columns)]
    return None if column is None else Order(column, order.is_descending if order else False)


def order_words(table: TextTable, order: Order | None) -> str:
    """Return the order in words for the heading; nothing for the table's own."""
    if order is None or order.column not in table.widths:
        return ""
    direction = ", down" if order.is_descending else ""
    return f"by {order.column}{direction}"
