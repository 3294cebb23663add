"""Prints text and tables for people.

Names from files may hold brackets, so rich's markup is off. A table that is too wide for the
terminal is not truncated. First its headings are broken into words; if that is not enough, each row
becomes several lines. In a pipe, lines have any length.
"""

import errno
import os
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from rich.box import HEAVY_HEAD, Box
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from profiles.records import on_one_line

_ENDLESS: Final = 10_000
_OUTPUT_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE})


class _Console(Console):
    """Prints each text on one line, with control characters as escapes."""

    def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401 - rich's own
        """Return the text with control characters escaped."""
        return super().render_str(on_one_line(text), **options)


def refuse(program: str, mistake: str) -> int:
    """Print a user's mistake in one line on standard error; return exit code 2."""
    sys.stderr.write(f"{program}: {on_one_line(mistake)}\n")
    return 2


def is_of_output(error: OSError) -> bool:
    """Return whether standard output could not be written: a full disk, or a closed pipe."""
    return error.filename is None and error.errno in _OUTPUT_ERRORS


def drop_output() -> None:
    """Drop what standard output still buffers, so that Python does not try to write it at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def plain_console() -> Console:
    """Return a console for standard output. ``COLUMNS`` sets its width, also in a pipe."""
    console = _Console(markup=False, emoji=False, highlight=False)
    if not (console.is_terminal or "COLUMNS" in os.environ):
        console.width = _ENDLESS
    return console


def print_table(
    console: Console,
    heads: Sequence[str],
    rows: Iterable[Sequence[RenderableType]],
    *,
    numbers: Collection[int] = (),
    title: str = "",
    box: Box = HEAVY_HEAD,
) -> None:
    """Print a table in the widest form that fits.

    Args:
        console: The console to print on.
        heads: The headings of the columns. The first column names the rows.
        rows: The cells of each row, one per heading.
        numbers: The columns, from 0, to align on the right.
        title: The line above the table; empty for none.
        box: The table's lines.
    """
    lines = list(rows)
    for shown in (heads, [head.replace(" ", "\n") for head in heads]):
        table = _table(shown, lines, numbers, title, box)
        if _width(console, table) <= console.width:
            console.print(table)
            return
    if title:
        console.print(title)
    for first, *cells in lines:
        console.print(Text.assemble(f"{heads[0]} ", (on_one_line(str(first)), "bold")))
        console.print(_record(heads[1:], cells))


def _table(
    heads: Sequence[str],
    rows: Iterable[Sequence[RenderableType]],
    numbers: Collection[int],
    title: str,
    box: Box,
) -> Table:
    table = Table(title=title or None, box=box)
    for index, head in enumerate(heads):
        table.add_column(Text(head), justify="right" if index in numbers else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _width(console: Console, table: Table) -> int:
    return Measurement.get(console, console.options.update(max_width=_ENDLESS), table).maximum


def _record(heads: Iterable[str], cells: Iterable[RenderableType]) -> Table:
    """Return a grid with one line for each cell that is not empty."""
    grid = Table.grid(padding=(0, 0, 0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for head, cell in zip(heads, cells, strict=True):
        if cell != "":
            grid.add_row(head, cell)
    return grid
