"""Where the command ``unicron-console`` begins; see ``controller.entry_point``."""
# ruff: noqa: PLC0415

from collections.abc import Callable

from controller.entry_point import run_quietly


def main() -> int:
    """Run ``unicron-console``; return its exit code."""
    return run_quietly(_console)


def _console() -> Callable[[], int]:
    from console.cli import main as run

    return run
