"""The past in a recording: each instant is a whole view, and the changes after it."""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import TypeAdapter, ValidationError
from typing_extensions import override

from controller.api.view_changes import ChangesError, applied
from controller.api.views import ClusterView, LogLine, MarkView
from controller.api.wire import ReadEvidence, Reply
from controller.playback.past import Past, PastError, PastFacts, PastLine, mark_of
from controller.playback.recording import (
    RecordedEntry,
    RecordingError,
    read_cluster_name,
    read_entries,
)

_UNKNOWN: Final = "what happened before the recording, and faster than it was taken"
_LINES: Final = TypeAdapter(list[LogLine])


class _Whole(NamedTuple):
    """A whole view in the file: its time, and where its line begins."""

    at: float
    begin: int


@dataclass(slots=True)
class _Position:
    """An instant after a whole view.

    Attributes:
        place: Which whole view.
        at: The instant.
        view: What is shown then.
        changes: All changes until the next whole view.
        num_applied: How many of them are in the view.
    """

    place: int
    at: float
    view: ClusterView
    changes: list[RecordedEntry]
    num_applied: int = 0


class RecordedPast(Past):
    """The past in a recording.

    Args:
        path: The file.
        progress: Called with the number of bytes that were read, and how many there are.

    Raises:
        PastError: The file can't be read, is no recording, is damaged, or has no view.
    """

    def __init__(
        self, path: Path, progress: Callable[[int, int], None] = lambda _num, _of: None
    ) -> None:
        self._path = path
        self._wholes: list[_Whole] = []
        self._marks: dict[str, MarkView] = {}
        self._position: _Position
        try:
            self.facts = PastFacts(path, "recording", _UNKNOWN, read_cluster_name(path))
            self._read(progress)
        except RecordingError as error:
            raise PastError(str(error)) from error
        except OSError as error:
            raise PastError(f"{path}: {(error.strerror or 'unreadable').lower()}") from error

    @override
    def view_at(self, at: float) -> ClusterView:
        place = max(0, bisect_right(self._wholes, at, key=lambda each: each.at) - 1)
        try:
            if place != self._position.place or at < self._position.at:
                self._position = self._begin_of(place)
            position = self._position
            for entry in position.changes[position.num_applied :]:
                if entry.at > at:
                    break
                position.view = self._after(position.view, entry)
                position.num_applied += 1
        except (RecordingError, OSError) as error:
            raise PastError(str(error)) from error
        position.at = at
        # The recorded moments are a second apart; the time between them passes all the same.
        return position.view.model_copy(update={"now": max(at, self._wholes[0].at)})

    @override
    def evidence(self, question: ReadEvidence, at: float) -> Reply:
        text = "a recording has no tracebacks, stacks or logs: play the journal of the run back"
        return Reply(request_id=question.request_id, is_ok=False, code="unsupported", message=text)

    @override
    def core_at(self, at: float) -> None:
        return None

    def _begin_of(self, place: int) -> _Position:
        whole = self._wholes[place]
        entries = read_entries(self._path, whole.begin)
        view = self._view_in(next(entries))
        following = takewhile(lambda entry: entry.kind != "view", entries)
        changes = [entry for entry in following if entry.kind == "changes"]
        return _Position(place, whole.at, view, changes)

    def _after(self, view: ClusterView, entry: RecordedEntry) -> ClusterView:
        try:
            return applied(view, entry.value)
        except (ChangesError, AttributeError, TypeError) as error:
            raise self._damaged(entry, error) from error

    def _view_in(self, entry: RecordedEntry) -> ClusterView:
        try:
            return ClusterView.model_validate(entry.value)
        except ValidationError as error:
            raise self._damaged(entry, error) from error

    def _damaged(self, entry: RecordedEntry, error: Exception) -> RecordingError:
        reason = str(error).splitlines()[0]
        return RecordingError(f"{self._path}, {entry.begin} bytes from its begin: {reason}")

    def _read(self, progress: Callable[[int, int], None]) -> None:
        facts, num_bytes = self.facts, self._path.stat().st_size
        waf = full = 0.0
        for entry in read_entries(self._path, progress=lambda num: progress(num, num_bytes)):
            if entry.kind == "lines":
                facts.lines += self._lines_in(entry)
                continue
            facts.end = max(facts.end, entry.at)
            if entry.kind == "view":
                self._wholes.append(_Whole(entry.at, entry.begin))
                view = self._view_in(entry)
                self._note_marks(view)
                waf, full = view.waf, view.waf_full
            else:
                waf, full = entry.value.get("waf", waf), entry.value.get("waf_full", full)
            facts.note_waf(entry.at, waf, full)
        facts.lines.sort(key=lambda line: line.at)
        if not self._wholes:
            raise PastError(f"{self._path}: the recording has no view")
        facts.begin = self._wholes[0].at
        self._position = self._begin_of(len(self._wholes) - 1)
        newest = self.view_at(facts.end)
        facts.started_wall_s = newest.started_wall_s
        self._note_marks(newest)
        facts.marks = sorted(self._marks.values(), key=lambda mark: mark.at)

    def _note_marks(self, view: ClusterView) -> None:
        """Note what a view shows; a later one says what became of it."""
        for mark in [*map(mark_of, view.incidents), *map(mark_of, view.plans)]:
            if mark.at >= self._wholes[0].at:
                self._marks[mark.name] = mark

    def _lines_in(self, entry: RecordedEntry) -> list[PastLine]:
        try:
            lines = _LINES.validate_python(entry.value)
        except ValidationError as error:
            raise self._damaged(entry, error) from error
        return [PastLine(line.at, line.level, line.source, line.text) for line in lines]
