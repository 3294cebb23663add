"""The past of a run from its controller's journal, by replay.

The core is deterministic, so the state at an instant is that of a replay until then. Reading a
journal replays all of it once, and keeps the state at the beginning of each stretch of events,
compressed, with the events of the stretch. To show an instant, one stretch is replayed at most.
"""

import json
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from typing_extensions import override

from controller.api.projection import Frame, evidence_reply, incident_view, plan_view, waf_of
from controller.api.view_keeper import ViewKeeper
from controller.api.views import ClusterView, LogLevel, MarkView
from controller.api.wire import ReadEvidence, Reply
from controller.core.events import ControllerStarted, Event
from controller.core.instructions import Announce, Instruction
from controller.core.machine import Machine
from controller.core.rules.policy import Policy
from controller.core.state.cluster import ClusterState
from controller.core.state.incident import Incident
from controller.core.state.plan import Plan
from controller.playback.past import Past, PastError, PastFacts, PastLine, mark_of
from controller.store.history import HISTORY_NAME
from controller.store.journal import JournalError, read_journal
from controller.store.journal_lines import LineReader, encode_event, encode_header
from controller.store.replay import ReplayedRun, replay
from controller.store.run_file import JOURNAL_NAME
from controller.store.segments import SegmentError, compressed, decompressed, segments_of
from controller.store.snapshots import SnapshotError, read_snapshot, saved_state, snapshots_of
from controller.store.state_codec import Takeover, decode_state, encode_state

_UNKNOWN: Final = "heartbeats, memory, agents, log lines of SSH"
_STRETCH_EVENTS: Final = 1000
_LARGEST_SHARE: Final = 0.25
"""Share of the reading that keeping states may take."""

Progress = Callable[[int, int], None]
"""Called with the number of events so far, and about how many there are."""


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Events that follow each other, and the state before them.

    Attributes:
        at: Time of the first event.
        first: Number of the first event.
        state: The state before it, compressed.
        events: The events as lines of a journal, compressed.
    """

    at: float
    first: int
    state: bytes
    events: bytes

    def begin(self) -> Takeover:
        """Return the state before the first event."""
        return decode_state(json.loads(decompressed(self.state)))

    def read(self) -> list[Event]:
        """Return the events."""
        reader = LineReader.of(encode_header(self.first))
        return [reader.decode(line) for line in decompressed(self.events).splitlines()]


@dataclass(slots=True)
class _Position:
    """An instant in a stretch.

    Attributes:
        place: Which stretch.
        at: The instant.
        machine: The machine after the events until then.
        views: The views of its state.
        events: All events of the stretch.
        num_handled: How many of them the machine has handled.
    """

    place: int
    at: float
    machine: Machine
    views: ViewKeeper
    events: list[Event]
    num_handled: int = 0

    def go_to(self, at: float) -> None:
        """Go to an instant that is not earlier."""
        while self.num_handled < len(self.events):
            event = self.events[self.num_handled]
            if event.at > at:
                break
            self.views.note(event, self.machine.handle(event))
            self.num_handled += 1
        self.at = at


class JournalPast(Past):
    """The past in the journal of a run.

    Args:
        directory: The directory of the run. Its controller may live; later events are left out.
        cluster: Name of the cluster, which a journal does not have.
        last_s: Leave out what was longer ago than this before the end; None for all there is.
        progress: Called from time to time while the journal is read.

    Raises:
        PastError: There is no journal, it is damaged, or it has no events.
    """

    def __init__(
        self,
        directory: Path,
        cluster: str,
        last_s: float | None = None,
        progress: Progress = lambda _num, _of: None,
    ) -> None:
        self._path = directory / JOURNAL_NAME
        self.facts = PastFacts(self._path, "journal", _UNKNOWN, cluster)
        self.facts.history = directory / HISTORY_NAME
        self._stretches: list[_Stretch] = []
        try:
            self._read(last_s, progress)
        except FileNotFoundError as error:
            raise PastError(
                f"{directory}: no run is saved there: it has no {JOURNAL_NAME}"
            ) from error
        except OSError as error:
            reason = (error.strerror or "unreadable").lower()
            raise PastError(f"{error.filename}: {reason}") from error
        except (JournalError, SegmentError) as error:
            raise PastError(str(error)) from error
        if not self._stretches:
            raise PastError(f"{self._path}: it has no events in that time")
        self._position = self._begin_of(0)

    @override
    def view_at(self, at: float) -> ClusterView:
        position = self._position_at(at)
        policy = position.machine.policy
        frame = Frame(
            cluster=self.facts.cluster,
            started_wall_s=self.facts.started_wall_s,
            is_auto_heal=policy.is_auto_heal,
            policy=policy,
        )
        return position.views.view(at, frame)

    @override
    def evidence(self, question: ReadEvidence, at: float) -> Reply:
        return evidence_reply(question, self._position_at(at).machine.state)

    @override
    def core_at(self, at: float) -> tuple[ClusterState, Policy]:
        machine = self._position_at(at).machine
        return machine.state, machine.policy

    def _position_at(self, at: float) -> _Position:
        place = max(0, bisect_right(self._stretches, at, key=lambda each: each.at) - 1)
        if place != self._position.place or at < self._position.at:
            self._position = self._begin_of(place)
        self._position.go_to(at)
        return self._position

    def _begin_of(self, place: int) -> _Position:
        stretch = self._stretches[place]
        machine = stretch.begin().machine()
        return _Position(place, stretch.at, machine, ViewKeeper(machine.state), stretch.read())

    def _read(self, last_s: float | None, progress: Progress) -> None:
        saved = _beginning(self._path, last_s)
        machine, run = saved.machine(), saved.run
        self.facts.begin = self.facts.end = run.at
        self.facts.has_earlier = run.num_events >= segments_of(self._path)[0].first_event()
        if run.started is not None:
            self.facts.started_wall_s = run.started.started_wall_s
        events = read_journal(self._path, run.num_events)
        notes = _Notes(machine, self.facts)
        num_at_once = _STRETCH_EVENTS
        num_before, num_all = run.num_events, _num_events(self._path)
        while stretch := list(islice(events, num_at_once)):
            began_s = time.perf_counter()
            state = compressed(json.dumps(encode_state(saved_state(machine, run))).encode())
            lines = compressed(b"".join(encode_event(event) for event in stretch))
            self._stretches.append(_Stretch(stretch[0].at, stretch[0].number, state, lines))
            kept_s = time.perf_counter() - began_s
            run = replay(machine, stretch, run, notes.note)
            took_s = time.perf_counter() - began_s
            if kept_s > _LARGEST_SHARE * took_s:
                num_at_once *= 2
            self.facts.end = run.at
            progress(run.num_events - num_before, num_all - num_before)
        if self._stretches:
            self.facts.begin = self._stretches[0].at
        if run.started is not None:
            self.facts.started_wall_s = run.started.started_wall_s
        notes.add_marks()


class _Notes:
    """What a replay shows, beside the states: lines and marks."""

    def __init__(self, machine: Machine, facts: PastFacts) -> None:
        self._machine, self._facts = machine, facts
        # An incident gets its cause later, and a plan its decision.
        self._incidents: dict[str, Incident] = {}
        self._plans: dict[str, Plan] = {}
        state = machine.state
        self._known = frozenset(
            [each.name for each in state.incidents.all] + [each.name for each in state.plans.all]
        )

    def note(self, event: Event, instructions: list[Instruction]) -> None:
        """An event was handled."""
        for each in instructions:
            if isinstance(each, Announce) and each.level != "trace":
                line = PastLine(event.at, LogLevel(each.level), each.source, each.text)
                self._facts.lines.append(line)
        state, body = self._machine.state, event.body
        self._facts.note_waf(event.at, *waf_of(state))
        for incident in reversed(state.incidents.all):
            if incident.name in self._known or self._incidents.get(incident.name) is incident:
                break
            self._incidents[incident.name] = incident
        for plan in reversed(state.plans.all):
            if plan.name in self._known or plan.name in self._plans:
                break
            self._plans[plan.name] = plan
        if isinstance(body, ControllerStarted):
            text = "controller started" if body.term == 1 else f"controller {body.term} took over"
            self._facts.marks.append(
                MarkView(at=event.at, kind="controller", name=str(body.term), text=text)
            )

    def add_marks(self) -> None:
        """The replay is over: say what became of the incidents and plans that it has shown."""
        marks = self._facts.marks
        for name, incident in self._incidents.items():
            if incident.is_open and self._machine.state.incidents.find(name) is None:
                continue  # another one has absorbed it
            marks.append(mark_of(incident_view(incident)))
        marks += [mark_of(plan_view(plan)) for plan in self._plans.values()]
        marks.sort(key=lambda mark: mark.at)


def _beginning(path: Path, last_s: float | None) -> Takeover:
    """Return the state to begin with: of a snapshot, or of a run without events.

    The end of the journal is not known before it is read: snapshots count from the newest one.

    Raises:
        PastError: The first events were deleted, and no snapshot has what they did.
    """
    first, oldest = segments_of(path)[0].first_event(), None
    newest_at: float | None = None
    if first > 1 or last_s is not None:
        for saved in _readable_snapshots(path):  # the newest first
            if saved.run.num_events < first - 1:
                break
            newest_at = saved.run.at if newest_at is None else newest_at
            if last_s is not None and saved.run.at <= newest_at - last_s:
                return saved
            oldest = saved
    if first == 1:
        return saved_state(Machine(), ReplayedRun())
    if oldest is None:
        raise PastError(f"{path}: events 1 to {first - 1} are missing, and no snapshot has them")
    return oldest


def _readable_snapshots(path: Path) -> Iterator[Takeover]:
    for snapshot in snapshots_of(path):
        try:
            yield read_snapshot(snapshot.path)
        except SnapshotError:
            continue


def _num_events(path: Path) -> int:
    """Return about how many events the journal has: its last lines are counted, not read."""
    num_closed = max((segment.last or 0 for segment in segments_of(path)), default=0)
    return num_closed + path.read_bytes().count(b"\n")
