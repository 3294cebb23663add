"""SIGTERM ends a benchmark as Ctrl-C does: what it has started is ended first."""

import signal
import sys


def end_on_sigterm() -> None:
    """Have SIGTERM raise SystemExit in the main thread, so that every ``finally`` is run."""
    signal.signal(signal.SIGTERM, _exit)


def _exit(number: int, _frame: object) -> None:
    sys.exit(128 + number)
