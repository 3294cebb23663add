"""Numbers that the processes of a node report, and that others count with.

What can't be such a number is read as 0, and the message counts all the same: refused, it would
come again and again. Python's whole numbers have no largest one, and a program may print any. They
must not break what divides them, or the tables that they are kept in.
"""

from typing import Annotated, Final

from pydantic import AfterValidator

_MOST_S: Final = 1e9
"""30 years."""
_MOST: Final = 2**60
"""An exabyte; a table of SQLite holds eight times as much."""


def _duration_s(given: float) -> float:
    return given if 0.0 <= given < _MOST_S else 0.0


def _count(given: int) -> int:
    return given if 0 <= given <= _MOST else 0


Elapsed = Annotated[float, AfterValidator(_duration_s)]
"""Seconds. What is no number, negative or endless is read as 0."""

Count = Annotated[int, AfterValidator(_count)]
"""Iterations, tokens or bytes. What is negative or too large is read as 0."""
