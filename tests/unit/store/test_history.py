"""The history of a run: rows are there once, the oldest go first, and it is read as it was."""

import itertools
import json
import sqlite3
import stat
from pathlib import Path

import pytest

from controller.cli import main
from controller.core.events import Event, PlanRejected, PlanRequested
from controller.core.instructions import Announce, AnswerRequest, ConnectNode, Level
from controller.store.history import (
    History,
    HistoryError,
    HistoryLine,
    HistoryView,
    entries_of,
    read_rows,
)
from nodeagent.protocol.ids import NodeId

DAY_S = 86_400.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


def iteration(number: int, task: str = "gpt-a", at: float | None = None) -> HistoryLine:
    facts = (
        ("iteration", number), ("loss", 5.0 / number), ("generation", 1), ("is_rerun", False),
        ("deviation", None), ("duration_s", 0.5),
    )  # fmt: skip
    line = Announce(number, "trace", "iteration", task, f"iteration {number}", facts)
    return HistoryLine(number, 0, float(number) if at is None else at, line)


def said(number: int, text: str, level: Level = "info") -> HistoryLine:
    return HistoryLine(number, 1, float(number), Announce(number, level, "note", "n1", text))


def write(path: Path, *arguments: list[HistoryLine] | list[HistoryView]) -> None:
    history = History(path)
    history.write(*arguments)  # type: ignore[arg-type]
    history.close()


def test_what_was_written_is_read_and_is_private(path: Path) -> None:
    write(path, [iteration(1), iteration(2), said(3, "hello"), said(4, "details", "trace")])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(read_rows(path, "iterations")) == [
        {
            "task": "gpt-a", "event": number, "at": float(number), "iteration": number,
            "generation": 1, "loss": 5.0 / number, "duration_s": 0.5, "is_rerun": False,
        }
        for number in (1, 2)
    ]  # fmt: skip
    [line] = read_rows(path, "lines")
    assert (line["event"], line["text"], line["facts"]) == (3, "hello", {})


def test_what_is_written_again_after_a_crash_is_there_once(path: Path) -> None:
    lines = [iteration(1), iteration(2), said(2, "hello")]
    write(path, lines)
    write(path, [*lines, iteration(3)])
    assert [row["iteration"] for row in read_rows(path, "iterations")] == [1, 2, 3]
    assert len(list(read_rows(path, "lines"))) == 1


def test_an_incident_is_as_it_was_last_and_each_revision_of_a_plan_is_kept(path: Path) -> None:
    incident = HistoryView("I-1", 0, 1.0, '{"id":"I-1","state":"detected"}')
    plans = [HistoryView("P-1", n, 2.0, f'{{"id":"P-1","revision":{n}}}') for n in (1, 2)]
    write(path, [], [incident], plans)
    write(path, [], [incident._replace(view='{"id":"I-1","state":"resolved"}')])
    assert list(read_rows(path, "incidents")) == [{"id": "I-1", "state": "resolved"}]
    assert [row["revision"] for row in read_rows(path, "plans")] == [1, 2]


def test_rows_are_chosen_by_task_time_and_number(path: Path) -> None:
    write(path, [*(iteration(n) for n in range(1, 9)), iteration(9, "gpt-b")])
    newest = read_rows(path, "iterations", name="gpt-a", limit=3)
    assert [row["iteration"] for row in newest] == [6, 7, 8]
    later = read_rows(path, "iterations", since=7.5)
    assert [row["iteration"] for row in later] == [8, 9]


def test_rows_beyond_an_age_are_deleted(path: Path) -> None:
    history = History(path)
    history.write(
        [iteration(n, at=n * DAY_S) for n in range(1, 11)], [HistoryView("I-1", 0, 1.0, "{}")]
    )
    history.prune(10 * DAY_S, 3.5 * DAY_S, 10**9)
    history.close()
    assert [row["iteration"] for row in read_rows(path, "iterations")] == [7, 8, 9, 10]
    assert not list(read_rows(path, "incidents"))


def test_the_oldest_rows_are_deleted_while_the_file_is_too_large(path: Path) -> None:
    history = History(path)
    history.write([iteration(number) for number in range(1, 30_001)])
    size = path.stat().st_size + path.with_name(f"{path.name}-wal").stat().st_size
    history.prune(30_000.0, 1e9, size // 2)
    history.close()
    kept = [row["iteration"] for row in read_rows(path, "iterations", limit=10**6)]
    assert kept == list(range(kept[0], 30_001))
    assert 0.3 < len(kept) / 30_000 < 0.7
    assert path.stat().st_size <= 0.7 * size


@pytest.mark.parametrize("content", [b"?" * 5000, b"SQLite format 3\0" + b"?" * 5000])
def test_a_file_that_is_no_history_is_told_in_one_line(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(HistoryError, match=str(path)):
        History(path)
    with pytest.raises(HistoryError, match=str(path)):
        list(read_rows(path, "lines"))


def test_a_history_of_another_version_is_refused(path: Path) -> None:
    history = History(path)
    history._database.execute("pragma user_version = 9")
    history.close()
    with pytest.raises(HistoryError, match="version 9, and this is version 1"):
        History(path)


def test_a_number_that_has_no_place_in_a_column_is_told_in_one_line(path: Path) -> None:
    history = History(path)
    with pytest.raises(HistoryError, match=f"{path}: .*too large"):
        history.write([iteration(2**63)])
    history.write([iteration(1)])
    history.close()
    assert [row["iteration"] for row in read_rows(path, "iterations")] == [1]


def test_announcements_keep_their_place_among_the_instructions() -> None:
    first, second = (Announce(7, "info", "x", "n1", text) for text in "ab")
    event = Event(7, 1.5, PlanRequested("r1", "ann"))
    found = list(entries_of(event, [first, ConnectNode(7, NodeId("n1"), ""), second]))
    assert found == [HistoryLine(7, 0, 1.5, first), HistoryLine(7, 2, 1.5, second)]


def test_a_history_without_a_table_has_no_rows_of_it(path: Path) -> None:
    sqlite3.connect(path).close()
    assert list(read_rows(path, "iterations")) == []
    history = History(path)
    history._database.execute("drop table audit")
    history.close()
    assert list(read_rows(path, "audit")) == []


def test_a_request_is_kept_with_its_answer_however_old_it_is(path: Path) -> None:
    event = Event(7, 1.5, PlanRejected("r1", "ann", "P-1", 2, "too late"))
    answer = AnswerRequest(7, "r1", is_ok=False, code="decided", message="P-1 is applied already")
    history = History(path)
    history.write([*entries_of(event, [answer]), iteration(1)])
    history.prune(now=1e9, keep_s=DAY_S, keep_bytes=0)
    history.close()
    assert list(read_rows(path, "iterations")) == []
    [row] = read_rows(path, "audit", name="P-1")
    assert row == {
        "event": 7, "at": 1.5, "actor": "ann", "verb": "reject", "subject": "P-1",
        "asked": {"plan": "P-1", "revision": 2, "reason": "too late"}, "code": "decided",
        "outcome": "P-1 is applied already",
    }  # fmt: skip
    assert list(read_rows(path, "audit", name="P-2")) == []


# --- unicron history -------------------------------------------------------------------------


def test_the_command_prints_a_table_or_json(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(path, [iteration(1), iteration(2), said(3, "n1 is \x1b[31mred")])
    assert main(["history", "iterations", str(path.parent), "--limit", "1"]) == 0
    told = capsys.readouterr().out
    assert "gpt-a" in told
    assert "2.500" in told
    assert "5.000" not in told
    assert main(["history", "lines", str(path.parent)]) == 0
    assert "\x1b[31m" not in capsys.readouterr().out
    assert main(["history", "iterations", str(path.parent), "--json", "--name", "gpt-a"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["loss"] for row in rows] == [5.0, 2.5]


@pytest.mark.parametrize(
    "words", list(itertools.chain([["lines", "DIR/none"], ["lines", "DIR"]], [["plans", "DIR/x"]]))
)
def test_a_wrong_place_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    table, place = words
    directory = place.replace("DIR", str(tmp_path))
    assert main(["history", table, directory]) == 2
    text = capsys.readouterr().err
    expected = f"{directory}: there is no history.sqlite; name the directory of a run"
    assert text == f"unicron history: {expected}\n"
