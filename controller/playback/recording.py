"""A recording: what a controller has shown, as a file that can be played back elsewhere.

Any client of the API can make one. A file is lines of JSON:

    {"format": "unicron-recording", "version": 1, "cluster": "demo"}
    {"at": 12.5, "view": {...}}                  the whole cluster; once a minute
    {"at": 13.5, "changes": {...}}               what differs from the view before
    {"at": 13.5, "lines": [{...}]}               new lines of the event stream

A file that was cut off, by a kill or a full disk, can be played back up to its last whole line.
"""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final, Literal

from controller.api.view_changes import difference
from controller.api.views import ClusterView, LogLine

FORMAT: Final = "unicron-recording"
VERSION: Final = 1
_WHOLE_EVERY_S: Final = 60.0

EntryKind = Literal["view", "changes", "lines"]


class RecordingError(ValueError):
    """The file is no recording, or a line of it is damaged. The text says where, and why."""


class RecordingFile:
    """Writes a recording, of mode 0600.

    Args:
        path: The file, which must not be there.
        cluster: Name of the cluster.

    Raises:
        OSError: The file is there, or can't be written.
    """

    def __init__(self, path: Path, cluster: str) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file: IO[bytes] = os.fdopen(descriptor, "wb")
        self._before: ClusterView | None = None
        self._whole_at = 0.0
        self._newest = (float("-inf"), 0)
        self.num_bytes = 0
        """What was written so far."""
        self._write({"format": FORMAT, "version": VERSION, "cluster": cluster})

    def add_view(self, view: ClusterView) -> None:
        """Write a view, as changes of the one before where that is possible.

        Raises:
            OSError: The disk is full, or broken.
        """
        before = self._before
        is_same_run = before is not None and before.started_wall_s == view.started_wall_s
        if before is None or not is_same_run or view.now - self._whole_at >= _WHOLE_EVERY_S:
            self._write({"at": view.now, "view": view.model_dump(mode="json")})
            self._whole_at = view.now
        else:
            self._write({"at": view.now, "changes": difference(before, view)})
        self._before = view

    def add_lines(self, lines: list[LogLine]) -> None:
        """Write those lines that are new. A controller repeats its newest ones to each client.

        Raises:
            OSError: The disk is full, or broken.
        """
        # The next controller of a run counts from 1 again.
        fresh = [line for line in lines if (line.at, line.seq) > self._newest]
        if fresh:
            self._newest = (fresh[-1].at, fresh[-1].seq)
            self._write({"at": fresh[-1].at, "lines": [asdict(line) for line in fresh]})

    def close(self) -> None:
        """Close the file.

        Raises:
            OSError: The disk is full, or broken.
        """
        self._file.close()

    def _write(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        self._file.write(line)
        self._file.flush()
        self.num_bytes += len(line)


@dataclass(frozen=True, slots=True)
class RecordedEntry:
    """One line of a recording.

    Attributes:
        at: Its time, seconds since the start of the run.
        kind: What it holds.
        value: That, as JSON.
        begin: Where the line begins, bytes from the file's begin.
    """

    at: float
    kind: EntryKind
    value: Any
    begin: int


def read_cluster_name(path: Path) -> str:
    """Return the name of the cluster in a recording's first line.

    Raises:
        RecordingError: The file is no recording of this version.
        OSError: It can't be read.
    """
    with path.open("rb") as file:
        text = file.readline(65_536)
    try:
        head = json.loads(text)
        found = head["format"], head["version"], head["cluster"]
    except (ValueError, KeyError, TypeError):
        found = None
    match found:
        case (str(name), int(version), str(cluster)) if name == FORMAT:
            if version == VERSION:
                return cluster
            raise RecordingError(
                f"{path}: the recording has format version {version}, and this program reads"
                f" version {VERSION}: use the version of Unicron that wrote it"
            )
        case _:
            raise RecordingError(f"{path}: it is no recording of `unicron record`")


def read_entries(
    path: Path, begin: int = 0, progress: Callable[[int], None] = lambda _: None
) -> Iterator[RecordedEntry]:
    """Yield the lines of a recording after its first; one that was cut off at the end is left out.

    Args:
        path: The file.
        begin: Where the first wanted line begins; 0 for all.
        progress: Called with the number of bytes that were read.

    Raises:
        RecordingError: A complete line is damaged.
        OSError: The file can't be read.
    """
    with path.open("rb") as file:
        file.seek(begin)
        if begin == 0:
            begin = len(file.readline())
        while (line := file.readline()).endswith(b"\n"):
            yield _entry(path, line, begin)
            begin += len(line)
            progress(begin)


def _entry(path: Path, line: bytes, begin: int) -> RecordedEntry:
    place = f"{path}, {begin} bytes from its begin"
    try:
        entry = json.loads(line)
        at = float(entry["at"])
        for kind in ("view", "changes", "lines"):
            if kind in entry:
                return RecordedEntry(at, kind, entry[kind], begin)
    except (ValueError, KeyError, TypeError) as error:
        raise RecordingError(f"{place}: the line is damaged: {error}") from error
    raise RecordingError(f"{place}: the line has neither a view nor changes nor lines")
