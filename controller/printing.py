"""What commands print for people: text as it is, and tables whose cells stay whole.

A name from a file may hold brackets, which rich takes for markup: no console of ours does. A table that a
terminal has no room for is not cut: its heads are broken into words, and if that is not enough, every
row becomes lines of its own. In a pipe lines are as long as they want to be.
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
    """Prints texts as they are, each on one line: what steers terminals is printed as escapes."""

    def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401 - rich's own
        """Return the text with such characters escaped."""
        return super().render_str(on_one_line(text), **options)


def refuse(program: str, mistake: str) -> int:
    """Tell a mistake of the user in one line on standard error; return the exit code for it."""
    sys.stderr.write(f"{program}: {on_one_line(mistake)}\n")
    return 2


def is_of_output(error: OSError) -> bool:
    """Whether what is printed could not be written, as to a full disk or to a pipe that is closed."""
    return error.filename is None and error.errno in _OUTPUT_ERRORS


def drop_output() -> None:
    """Forget what standard output still holds, so that the end of the process does not try to write it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def plain_console() -> Console:
    """Return a console for standard output; ``COLUMNS`` sets its width in a pipe, too."""
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
        console: Where to.
        heads: Of the columns; the first one names the rows.
        rows: As many cells each.
        numbers: The columns, from 0, that are flush right.
        title: Above the table.
        box: Its lines.
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
    """Return a line per cell that is not empty."""
    grid = Table.grid(padding=(0, 0, 0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for head, cell in zip(heads, cells, strict=True):
        if cell != "":
            grid.add_row(head, cell)
    return grid
