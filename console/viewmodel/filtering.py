"""The filter of a list: words that a row must hold, and words that it must not hold."""

from dataclasses import replace

from console.viewmodel.console_state import EventWindow
from console.viewmodel.drawing.table_layout import TableRow, TextTable
from console.viewmodel.words import LEVEL_WORDS


def matches(pattern: str, text: str) -> bool:
    """Whether a text holds every word of ``pattern``, and none that has a ``!`` in front.

    Upper and lower case are the same. A ``!`` alone is no word yet.
    """
    folded = text.casefold()
    for word in pattern.casefold().split():
        wanted = word.removeprefix("!")
        if wanted and (wanted in folded) is word.startswith("!"):
            return False
    return True


def filtered_table(table: TextTable, pattern: str) -> TextTable:
    """Return a table with the rows that match, by the text of all their cells."""
    if not pattern.strip():
        return table
    return table.only(lambda row: matches(pattern, _text_of(row)))


def _text_of(row: TableRow) -> str:
    return " ".join(part.text for cell in row.cells.values() for part in cell)


def filtered_log(log: EventWindow, pattern: str) -> EventWindow:
    """Return the events that match, by level, source and text."""
    if not pattern.strip():
        return log
    lines = tuple(
        line
        for line in log.lines
        if matches(pattern, f"{LEVEL_WORDS[line.level][1]} {line.source} {line.text}")
    )
    return replace(log, lines=lines)
