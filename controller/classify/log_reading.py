"""Classifies the files of a command line one after another, and prints what was found.

A file that can't be read is an error of its own: the others are still classified.

Ctrl-C ends the reading: at once while bytes are awaited, else after the current chunk. So what has
been read can be printed, and no line is left half read.
"""

import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, TracebackType
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

from controller.classify.findings_text import (
    FileSummary,
    FindingsReport,
    HeadedReport,
    JsonReport,
    TextReport,
    Write,
    counted,
    write_summaries,
)
from controller.classify.log_inputs import LogPath, logs_in, name_of, opened
from controller.classify.unpacking import InputError
from controller.clock import Clock
from profiles.faults.stream import Finding, FindingStream
from profiles.records import on_one_line

_SHOWN_AFTER_S: Final = 2.0
_REFRESH_S: Final = 0.1
_ERASE_LINE: Final = "\r\x1b[2K"
_MAX_NAME: Final = 40


class _CtrlC:
    """Remembers Ctrl-C. A second one ends the command wherever it is."""

    def __init__(self) -> None:
        self.is_wanted = False
        self._is_waiting = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Handle SIGINT inside of the block. Only the main thread can do that."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self._on_signal)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let Ctrl-C end the block at once, by a ``KeyboardInterrupt``."""
        self._is_waiting = True
        try:
            self.check()
            yield
        finally:
            self._is_waiting = False

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` if Ctrl-C came."""
        if self.is_wanted:
            raise KeyboardInterrupt

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_wanted or self._is_waiting:
            self.is_wanted = True
            raise KeyboardInterrupt
        self.is_wanted = True


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


_NOT_READ: Final = 2
_INTERRUPTED: Final = 130


def classify_logs(paths: Sequence[str], *, is_json: bool, clock: Clock, console: Console) -> int:
    """Classify the files that ``paths`` name and return the exit code.

    Args:
        paths: Files, directories, or ``-``.
        is_json: Whether to print JSON objects instead of text.
        clock: The time, for the progress bar.
        console: Where the progress bar is drawn.
    """
    logs = logs_in(paths)
    is_summed_up = not is_json and (len(logs) > 1 or [log.path for log in logs] != list(paths))
    summaries: list[FileSummary] = []
    ctrl_c = _CtrlC()
    size = sum(log.size for log in logs)
    with ctrl_c.watched():
        with ReadingProgress(size, clock, console) as progress:
            write = progress.above(sys.stdout.write)
            for log in logs:
                report = _report(write, log.path, is_json=is_json, is_summed_up=is_summed_up)
                summaries.append(_LogReader(log, report, progress, ctrl_c).summary())
                if ctrl_c.is_wanted:
                    break
        if is_summed_up:
            write_summaries(summaries, len(logs), sys.stdout.write)
        sys.stdout.flush()
    if ctrl_c.is_wanted:
        num_read = sum(not each.is_ended for each in summaries)
        _say(f"interrupted: {num_read:,} of {counted(len(logs), 'file')} read to the end")
        return _INTERRUPTED
    return _NOT_READ if any(each.mistake for each in summaries) else 0


def _report(write: Write, path: str, *, is_json: bool, is_summed_up: bool) -> FindingsReport:
    if is_json:
        return JsonReport(write, path)
    return HeadedReport(write, name_of(path)) if is_summed_up else TextReport(write, name_of(path))


def _say(message: str) -> None:
    sys.stdout.flush()
    sys.stderr.write(f"unicron classify: {on_one_line(message)}\n")


class _LogReader:
    """Reads one file."""

    def __init__(
        self,
        log: LogPath,
        report: FindingsReport,
        progress: ReadingProgress,
        ctrl_c: _CtrlC,
    ) -> None:
        self._log = log
        self._report = report
        self._progress = progress
        self._ctrl_c = ctrl_c
        self._stream = FindingStream()
        self._summary = FileSummary(name_of(log.path))

    def summary(self) -> FileSummary:
        """Read the file, print its findings, and return its summary."""
        summary = self._summary
        self._progress.begin_file(summary.name)
        self._report.begin()
        try:
            self._read()
        except InputError as error:
            summary.mistake = str(error)
        except KeyboardInterrupt:
            summary.is_ended = self._ctrl_c.is_wanted = True
        self._add(self._stream.close())
        summary.num_lines = self._stream.num_lines
        summary.abort_line = self._stream.abort_line
        mistake = "interrupted" if summary.is_ended else summary.mistake
        self._report.end(summary.num_lines, mistake, summary.abort_line)
        if summary.mistake:
            self._progress.erase()
            _say(summary.mistake)
        return summary

    def _read(self) -> None:
        if self._log.mistake:
            raise InputError(self._log.mistake)
        self._ctrl_c.check()
        with opened(
            self._log.path, wait=self._ctrl_c.waiting, on_read=self._progress.advance
        ) as text:
            for chunk in text:
                self._add(self._stream.feed(chunk))
                self._ctrl_c.check()

    def _add(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self._report.add(finding)
            self._summary.add(finding)
