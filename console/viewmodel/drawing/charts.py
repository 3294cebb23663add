"""Charts of columns, from the blocks that the console's signs have."""

from collections.abc import Sequence

from console.viewmodel.drawing.text import Line, Span, Tone

ChartColumn = tuple[float, Tone] | None
"""Height of a column as a share of the chart, 0 to 1, and its tone; None for no value."""


def column_chart(
    columns: Sequence[ChartColumn], height: int, levels: str, mark: tuple[float, str] | None = None
) -> list[Line]:
    """Return a chart of ``height`` rows, the highest first.

    Args:
        columns: One per cell, from left to right.
        height: Rows, at least 1.
        levels: Blocks of an eighth to a whole cell, the lowest first.
        mark: A height that is drawn as a line where no column covers it, and its sign.
    """
    marked_row = None if mark is None else min(height - 1, int(mark[0] * height))
    lines = []
    for row in reversed(range(height)):
        spans: list[Span] = []
        for column in columns:
            text, tone = _block(column, row, height, levels)
            if text == " " and mark is not None and row == marked_row:
                text, tone = mark[1], Tone.WARN
            if spans and spans[-1].tone is tone:
                spans[-1] = Span(spans[-1].text + text, tone)
            else:
                spans.append(Span(text, tone))
        lines.append(Line(tuple(spans)))
    return lines


def _block(column: ChartColumn, row: int, height: int, levels: str) -> tuple[str, Tone]:
    """Return the part of a column in a row; row 0 is the lowest, and is never empty there."""
    if column is None:
        return " ", Tone.PLAIN
    share, tone = column
    eighths = round(min(1.0, max(0.0, share)) * height * len(levels)) - row * len(levels)
    if eighths <= 0:
        return (levels[0], tone) if row == 0 else (" ", Tone.PLAIN)
    return levels[min(len(levels), eighths) - 1], tone
