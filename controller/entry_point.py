"""Where the commands ``unicron`` and ``unicron-console`` begin, and what Ctrl-C does until then.

The imports of a command take up to half a second. Ctrl-C during that time, or before the command
has its own handling, ends the process without a traceback.
"""
# ruff: noqa: PLC0415

import signal
from collections.abc import Callable
from typing import Final

from controller.python_settings import collect_seldom, quick_imports

EXIT_INTERRUPTED: Final = 128 + signal.SIGINT
"""Exit code after Ctrl-C. A shell reports the same for a process that the signal ends."""


def main() -> int:
    """Run ``unicron``; return its exit code."""
    return run_quietly(_unicron)


def run_quietly(load: Callable[[], Callable[[], int]]) -> int:
    """Load a command and run it; return its exit code.

    Args:
        load: Imports the command, and returns what runs it.
    """
    python_handler = signal.getsignal(signal.SIGINT)
    if python_handler is not signal.default_int_handler:
        return _loaded(load)()  # started by nohup or in the background: it is not to be interrupted
    # Without Python's handler an import can't be left half way, with a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    run = _loaded(load)
    signal.signal(signal.SIGINT, python_handler)
    try:
        return run()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:
        # pydantic builds validators while modules are imported, and wraps an interrupt in an error.
        if KeyboardInterrupt.__name__ not in str(error):
            raise
        return EXIT_INTERRUPTED


def _loaded(load: Callable[[], Callable[[], int]]) -> Callable[[], int]:
    with quick_imports():
        return load()


def _unicron() -> Callable[[], int]:
    from controller.cli import main as run

    collect_seldom()
    return run
