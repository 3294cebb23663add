"""``unicron record``: write what a controller shows into a file that can be played back."""

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from controller.api.client import NoControllerError, connect
from controller.api.views import ClusterView, LogLine
from controller.arguments import duration_s, file_path, positive_int
from controller.operate.asking import RefusedError, add_common, guarded
from controller.playback.recording import RecordingFile

_PAUSE_S: Final = 1.0
_EXAMPLES: Final = (
    "unicron record night.unicron",
    "unicron record night.unicron --for 8h --interval 10s",
    "unicron-console --playback night.unicron",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron record``."""
    add_common(
        parser,
        "The recording is one file, of mode 0600, with what a console would show: it can be played back on any\n"
        "machine, also without the controller's journal. It continues after the restart of a controller, and ends\n"
        "with Ctrl-C. A recording that was cut off can be played back up to there.",
        _EXAMPLES,
    )
    parser.add_argument("file", metavar="FILE", type=file_path, help="a new file")
    parser.add_argument(
        "--interval", type=duration_s, default=1.0, metavar="TIME",
        help="time between two recorded moments (default 1s)",
    )  # fmt: skip
    parser.add_argument(
        "--for", dest="length_s", type=duration_s, metavar="TIME", help="end after that time"
    )
    parser.add_argument(
        "--most-mb", type=positive_int, default=1000, metavar="N",
        help="end when the file has N megabytes (default 1000)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Record; return the exit code."""

    def work() -> int:
        with _until_signal():
            _Recorder(arguments).record()
        return 0

    return guarded(arguments, work)


@contextmanager
def _until_signal() -> Iterator[None]:
    """Have SIGTERM end a recording as Ctrl-C does."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Recorder:
    """One recording."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._socket: Path = arguments.connect
        self._path: Path = arguments.file
        self._interval_s: float = arguments.interval
        self._most_bytes = arguments.most_mb * 1_000_000
        self._length_s: float | None = arguments.length_s
        self._is_json: bool = arguments.json
        self._file: RecordingFile | None = None
        self._first: ClusterView | None = None
        self._last: ClusterView | None = None

    def record(self) -> None:
        """Record until the end.

        Raises:
            NoControllerError: At the beginning no controller answers.
            RefusedError: The file can't be written.
        """
        why = "interrupted"
        try:
            why = self._record_all()
        except KeyboardInterrupt:
            pass
        except FileExistsError as error:
            raise RefusedError(
                f"{self._path}: the file is there already: name a new one"
            ) from error
        except OSError as error:
            raise RefusedError(f"{self._path}: {(error.strerror or str(error)).lower()}") from error
        finally:
            if self._file is not None:
                self._file.close()
        self._report(why)

    def _record_all(self) -> str:
        """Record over all controllers; return why it ends."""
        while True:
            try:
                with connect(self._socket) as connection:
                    for news in connection.news():
                        if why := self._take(news):
                            return why
            except NoControllerError:
                if self._first is None:
                    raise
            self._show("the controller has ended; waiting for the next one")
            time.sleep(_PAUSE_S)

    def _take(self, news: ClusterView | list[LogLine]) -> str:
        """Write what has come; return why the recording ends, empty if it continues."""
        if isinstance(news, list):
            if self._file is not None:
                self._file.add_lines(news)
            return ""
        if self._file is None:
            self._file = RecordingFile(self._path, news.cluster)
        first, last = self._first or news, self._last
        if news.started_wall_s != first.started_wall_s:
            return "another run has begun"
        if last is not None and news.now - last.now < self._interval_s:
            return ""
        self._file.add_view(news)
        self._first, self._last = first, news
        self._show(f"{news.now - first.now:.0f} s, {self._file.num_bytes / 1e6:.1f} MB")
        if self._length_s is not None and news.now - first.now >= self._length_s:
            return "the time is over"
        if self._file.num_bytes >= self._most_bytes:
            return "the file is full: --most-mb"
        return ""

    def _show(self, text: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\rrecording into {self._path}: {text}  \x1b[K")
            sys.stderr.flush()

    def _report(self, why: str) -> None:
        if self._file is None or self._first is None or self._last is None:
            return
        seconds = self._last.now - self._first.now
        if sys.stderr.isatty():
            sys.stderr.write("\n")
        if self._is_json:
            told = {
                "file": str(self._path), "seconds": seconds, "bytes": self._file.num_bytes, "why": why,
            }  # fmt: skip
            sys.stdout.write(json.dumps(told) + "\n")
            return
        sys.stdout.write(
            f"{self._path}: {seconds:.0f} s, {self._file.num_bytes / 1e6:.1f} MB; {why}\n"
            f"play it back with: unicron-console --playback {self._path}\n"
        )
