"""The event log: one JSON object a line, for people and for checkers."""

import json
import stat
from pathlib import Path

import pytest

from controller.core.instructions import Announce
from controller.store.event_log import EventLog


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def iteration(loss: float) -> Announce:
    facts = (("iteration", 5), ("loss", loss), ("is_rerun", False), ("deviation", None))
    return Announce(42, "trace", "iteration", "gpt-a", "iteration 5", facts)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def test_an_announcement_is_one_object_with_its_facts(path: Path) -> None:
    log = EventLog(path)
    log.append(1.23456789, iteration(2.5))
    assert lines(path) == [  # written at once, not at the end
        {
            "at": 1.234568,
            "event": 42,
            "level": "trace",
            "kind": "iteration",
            "source": "gpt-a",
            "text": "iteration 5",
            "iteration": 5,
            "loss": 2.5,
            "is_rerun": False,
            "deviation": None,
        }
    ]
    log.close()


def test_a_text_of_several_lines_and_letters_stays_on_one(path: Path) -> None:
    log = EventLog(path)
    log.append(0.0, Announce(1, "error", "fault", "n1", 'größer\n"zwei"'))
    log.append(0.5, Announce(2, "info", "x", "n1", "y"))
    log.close()
    assert [line["text"] for line in lines(path)] == ['größer\n"zwei"', "y"]


@pytest.mark.parametrize(
    ("loss", "text"), [(float("nan"), "NaN"), (float("inf"), "Infinity"), (-1e400, "-Infinity")]
)
def test_a_loss_that_is_no_number_keeps_the_line_valid_json(
    path: Path, loss: float, text: str
) -> None:
    log = EventLog(path)
    log.append(0.0, iteration(loss))
    log.close()

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    [record] = [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]
    assert record["loss"] == text


def test_a_log_is_private_and_replaces_an_older_one(path: Path) -> None:
    path.write_text("old\n")
    path.chmod(0o644)
    log = EventLog(path)
    log.append(0.0, iteration(1.0))
    log.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(lines(path)) == 1


def test_a_service_appends_and_keeps_a_full_file_beside_the_new_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    EventLog(path, is_appended=True).close()
    log = EventLog(path, is_appended=True)
    log.append(1.0, iteration(2.5))
    log.close()
    assert len(lines(path)) == 1
    monkeypatch.setattr("controller.store.event_log._MOST_BYTES", 2 * path.stat().st_size)
    log = EventLog(path, is_appended=True)
    for number in range(2):
        log.append(2.0 + number, iteration(2.0))
    log.close()
    assert [line["at"] for line in lines(path.with_name("events.jsonl.1"))] == [1.0, 2.0]
    assert [line["at"] for line in lines(path)] == [3.0]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
