"""The progress bar of ``unicron classify``: on standard error, for work that takes a while."""

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from controller.clock import Clock

_SHOWN_AFTER_S: Final = 2.0
_REFRESH_S: Final = 0.1
_ERASE_LINE: Final = "\r\x1b[2K"
_MAX_NAME: Final = 40


class ReadingProgress:
    """Shows how much is read, from the third second on, if the console is a terminal.

    Only ``advance`` draws it. There is no thread that could draw into the findings.
    """

    def __init__(self, num_bytes: int, clock: Clock, console: Console) -> None:
        """Begin the work.

        Args:
            num_bytes: The size of all inputs; 0 if unknown.
            clock: The time, for the first two seconds.
            console: Where to draw.
        """
        self._clock = clock
        self._console = console
        self._begun_at = self._drawn_at = clock.now()
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=num_bytes or None)
        self._is_shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._is_shown:
            self._bar.stop()

    def begin_file(self, name: str) -> None:
        """Name the file that is read."""
        self._bar.update(self._task, description=name[-_MAX_NAME:])

    def advance(self, num_bytes: int) -> None:
        """Count ``num_bytes`` more."""
        self._bar.advance(self._task, num_bytes)
        now = self._clock.now()
        if not self._console.is_terminal or now - self._begun_at < _SHOWN_AFTER_S:
            return
        if not self._is_shown:
            self._is_shown = True
            self._bar.start()
        if now - self._drawn_at >= _REFRESH_S:
            self._drawn_at = now
            self._bar.refresh()

    def above(self, write: Callable[[str], object]) -> Callable[[str], object]:
        """Return ``write`` for texts that end lines, which erases the bar before it writes."""

        def erase_and_write(text: str) -> None:
            is_same_screen = self._is_shown and sys.stdout.isatty()
            if is_same_screen:
                self.erase()
            write(text)
            if is_same_screen:
                sys.stdout.flush()

        return erase_and_write

    def erase(self) -> None:
        """Erase the bar, until it is drawn again."""
        if self._is_shown:
            self._console.file.write(_ERASE_LINE)
            self._console.file.flush()
