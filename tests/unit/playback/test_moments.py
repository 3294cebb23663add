"""Moments as people name them, and where the cursor goes from there."""

from pathlib import Path

import pytest

from controller.api.views import LogLevel, MarkView
from controller.api.wire import MovePlayback
from controller.playback.past import PastError, PastFacts, PastLine
from controller.playback.playback_cursor import PlaybackCursor, moment_of

DAY = 1_767_139_200.0
"""2025-12-31, midnight UTC."""


def facts() -> PastFacts:
    """Return 13 hours from 11 in the evening on, with three incidents."""
    marks = [
        MarkView(at=at, kind="incident", name=name, text="x")
        for at, name in ((100.0, "I-1"), (900.0, "I-2"), (1000.0, "I-10"))
    ]
    marks.append(MarkView(at=950.0, kind="plan", name="P-1", text="x"))
    found = PastFacts(Path("run"), "journal", "", "c")
    found.started_wall_s, found.begin, found.end = DAY - 3600, 10.0, 13 * 3600.0
    found.marks = sorted(marks, key=lambda mark: mark.at)
    found.lines = [PastLine(at, LogLevel.INFO, "n1", "x") for at in (20.0, 30.0, 30.0, 40.0)]
    return found


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("I-1", 100.0),
        ("I-10", 1000.0),
        ("250.5", 250.5),
        ("23:30", 1800.0),  # the day before, since the playback ends at noon
        ("23:30:15Z", 1815.0),
        ("0:10", 4200.0),
        ("11:59:59", 46_799.0),
        ("2025-12-31T00:10:00Z", 4200.0),
        ("2025-12-31 00:10", 4200.0),
        ("2025-12-31T01:10:00+01:00", 4200.0),
    ],
)
def test_a_moment_is_an_incident_a_time_or_seconds(text: str, at: float) -> None:
    assert moment_of(text, facts()) == at


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("I-3", "there is no incident I-3; it has I-1, I-2, I-10"),
        ("noon", "is no moment: write I-3"),
        ("25:00", "is no moment"),
        ("", "is no moment"),
        ("nan", "it reaches from 2025-12-30 23:00:10 to 2025-12-31 12:00:00"),
        ("inf", "is not in it"),
        ("5", "is not in it"),
        ("22:00", "is not in it"),
        ("2031-01-01", "is not in it"),
    ],
)
def test_what_is_no_moment_of_this_past_is_refused(text: str, reason: str) -> None:
    with pytest.raises(PastError, match=reason):
        moment_of(text, facts())


def test_what_was_left_out_is_named() -> None:
    cut = facts()
    cut.has_earlier = True
    with pytest.raises(PastError, match="--last reads further back"):
        moment_of("5", cut)
    with pytest.raises(PastError, match="--last reads further back"):
        moment_of("I-3", cut)


def move(**fields: object) -> MovePlayback:
    return MovePlayback.model_validate({"request_id": "r", "actor": "a", **fields})


@pytest.mark.parametrize(
    ("begin", "fields", "end"),
    [
        (10.0, {"step": "incident"}, 100.0),
        (100.0, {"step": "incident"}, 900.0),
        (900.0, {"step": "incident", "is_back": True}, 100.0),
        (950.0, {"step": "incident", "is_back": True}, 900.0),
        (100.0, {"step": "incident", "is_back": True}, 10.0),
        (1000.0, {"step": "incident"}, 46_800.0),
        (20.0, {"step": "line"}, 30.0),
        (30.0, {"step": "line"}, 40.0),
        (40.0, {"step": "line", "is_back": True}, 30.0),
        (30.0, {"by_s": -60.0}, 10.0),
        (30.0, {"by_s": 60.0}, 90.0),
        (30.0, {"by_s": 1e9}, 46_800.0),
        (30.0, {"moment": "I-2"}, 900.0),
        (30.0, {}, 30.0),
    ],
)
def test_a_move_goes_to_what_is_next_and_never_outside(
    begin: float, fields: dict[str, object], end: float
) -> None:
    assert PlaybackCursor(begin).moved(move(**fields), facts()).at == end


def test_time_passes_at_its_speed_until_the_end_and_stops_there() -> None:
    there = facts()
    cursor = PlaybackCursor(100.0)
    assert cursor.after(5.0, there.end) == cursor
    playing = cursor.moved(move(is_playing=True, speed=4.0), there)
    assert playing.after(5.0, there.end) == PlaybackCursor(120.0, 4.0, is_playing=True)
    assert playing.after(1e6, there.end) == PlaybackCursor(there.end, 4.0, is_playing=False)
    assert not playing.moved(move(by_s=1e9), there).is_playing
    assert playing.moved(move(step="incident"), there).is_playing
