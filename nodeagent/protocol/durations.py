"""Durations that the processes of a node report, and that others count with."""

from typing import Annotated, Final

from pydantic import AfterValidator

_MOST_S: Final = 1e9
"""30 years."""


def _duration_s(given: float) -> float:
    """Return 0 for what can be no duration: it must not spoil averages and forecasts."""
    return given if 0.0 <= given < _MOST_S else 0.0


Elapsed = Annotated[float, AfterValidator(_duration_s)]
"""Seconds. What is no number, negative or endless is read as 0; the message counts all the same."""
