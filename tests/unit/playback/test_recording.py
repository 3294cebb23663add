"""A recording gives back what was recorded; one that was cut off, up to there."""

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from controller.api.views import ClusterView, LogLevel, LogLine
from controller.playback.past import PastError
from controller.playback.recorded_past import RecordedPast
from controller.playback.recording import RecordingFile
from tests.fakes import cluster_views

SCENES = [cluster_views.calm(), cluster_views.parking_task(), cluster_views.waiting()]


def at(view: ClusterView, now: float) -> ClusterView:
    return view.model_copy(update={"now": now})


def recorded(path: Path, views: list[ClusterView], lines: list[LogLine] | None = None) -> Path:
    file = RecordingFile(path, "demo")
    for view in views:
        file.add_view(view)
    file.add_lines(lines or [])
    file.close()
    return path


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.sampled_from(SCENES), st.floats(0.5, 70.0)), min_size=1, max_size=12),
    st.lists(st.floats(0, 1), min_size=1, max_size=8),
)
def test_each_instant_is_the_newest_recorded_view(
    tmp_path_factory: pytest.TempPathFactory,
    scenes: list[tuple[ClusterView, float]],
    shares: list[float],
) -> None:
    now, views = 100.0, list[ClusterView]()
    for scene, seconds in scenes:
        now += seconds
        views.append(at(scene, now))
    past = RecordedPast(recorded(tmp_path_factory.mktemp("r") / "x.unicron", views))
    begin, end = past.facts.begin, past.facts.end
    assert (begin, end) == (views[0].now, views[-1].now)
    for share in shares:
        instant = begin + share * (end - begin)
        newest = [view for view in views if view.now <= instant][-1]
        assert past.view_at(instant) == at(newest, instant)


def test_lines_marks_and_shares_are_there(tmp_path: Path) -> None:
    killed = cluster_views.waiting()
    views = [at(cluster_views.calm(), killed.incidents[-1].detected_at - 5), killed]
    lines = [
        LogLine(seq=n, at=views[0].now + n, level=LogLevel.INFO, source="n1", text=f"line {n}")
        for n in (1, 2, 3)
    ]
    file = RecordingFile(tmp_path / "x", "demo")
    file.add_view(views[0])
    file.add_lines(lines[:2])
    file.add_lines(lines)  # a controller repeats its newest lines to each client
    file.add_lines([replace(lines[2], seq=1, at=views[0].now + 4, text="next")])
    file.add_view(views[1])
    file.close()
    facts = RecordedPast(tmp_path / "x").facts
    assert [line.text for line in facts.lines] == ["line 1", "line 2", "line 3", "next"]
    assert [mark.name for mark in facts.marks if mark.kind == "incident"] == [
        killed.incidents[-1].id
    ]
    assert [share for _, share in facts.wafs] == [
        round(view.waf / view.waf_full, 4) for view in views
    ]
    assert (facts.cluster, facts.started_wall_s) == ("demo", killed.started_wall_s)


def test_the_file_is_private_and_is_never_overwritten(tmp_path: Path) -> None:
    path = recorded(tmp_path / "x", SCENES[:1])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        RecordingFile(path, "demo")
    assert path.read_bytes() == before


def test_a_recording_that_was_cut_off_is_played_back_up_to_its_last_whole_line(
    tmp_path: Path,
) -> None:
    views = [at(view, 100.0 + n) for n, view in enumerate(SCENES)]
    path = recorded(tmp_path / "x", views)
    path.write_bytes(path.read_bytes()[:-20])
    past = RecordedPast(path)
    assert past.facts.end == 101.0
    assert past.view_at(101.0) == views[1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "it is no recording"),
        (b"[]\n", "it is no recording"),
        (b"\xff\xfe\n", "it is no recording"),
        (b'{"format": "unicron-recording", "version": 2, "cluster": "c"}\n', "format version 2"),
        (b'{"format": "unicron-recording", "version": 1, "cluster": "c"}\n', "has no view"),
        (
            b'{"format": "unicron-recording", "version": 1, "cluster": "c"}\n{"at": 1}\n',
            "62 bytes from its begin: the line has neither",
        ),
        (
            b'{"format": "unicron-recording", "version": 1, "cluster": "c"}\n{"at": 1, "vi\n',
            "the line is damaged",
        ),
        (
            b'{"format": "unicron-recording", "version": 1, "cluster": "c"}\n{"at":1,"view":{}}\n',
            "validation error",
        ),
    ],
)
def test_another_file_is_refused_with_the_reason(tmp_path: Path, text: bytes, reason: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(text)
    with pytest.raises(PastError, match=reason):
        RecordedPast(path)


def test_changes_that_do_not_fit_are_refused_when_they_are_looked_at(tmp_path: Path) -> None:
    path = recorded(tmp_path / "x", [at(SCENES[0], 100.0)])
    changes = {"nodes": {"changed": {"99": {"note": "?"}}, "order": [99]}}
    with path.open("ab") as file:
        file.write(json.dumps({"at": 101.0, "changes": changes}).encode() + b"\n")
    with pytest.raises(PastError, match="there are 4 entries"):
        RecordedPast(path)
