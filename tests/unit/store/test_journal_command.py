"""``unicron journal``: whole and damaged journals, beside a living controller, and in JSON."""

import json
import stat
from pathlib import Path

import pytest

from controller.cli import main
from controller.store.journal import read_journal
from controller.store.run_lock import RunLock
from tests.fakes.clusters import demo_machine
from tests.fakes.saved_runs import save_run
from tests.fakes.world import World


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    world = World(demo_machine(), num_iterations=12)
    world.run(6.0)
    return save_run(world, tmp_path_factory.mktemp("saved"))


@pytest.fixture
def run(saved: Path, tmp_path: Path) -> Path:
    """A run's directory, with a journal of more than ten events."""
    for path in saved.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def damage(run: Path, line: int) -> int:
    """Change a digit of a line; return how many bytes there are from that line on."""
    path = run / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line - 1] = lines[line - 1].replace(b'"at":', b'"at":1', 1)
    path.write_bytes(b"".join(lines))
    return sum(map(len, lines[line - 1 :]))


def test_a_whole_journal_is_counted(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = list(read_journal(run / "journal.jsonl"))
    lock = RunLock(run, 0.0)  # a controller lives
    assert main(["journal", "verify", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["events"], found["controllers"]) == (len(events), 1)
    assert found["bytes"] == (run / "journal.jsonl").stat().st_size
    assert found["seconds"] == events[-1].at
    assert main(["journal", "verify", str(run)]) == 0
    assert f"journal.jsonl: whole: {len(events)} events" in capsys.readouterr().out
    assert main(["journal", "stats", str(run), "--json"]) == 0
    stats = json.loads(capsys.readouterr().out)
    assert sum(row["events"] for row in stats["types"]) == len(events)
    assert sum(row["bytes"] for row in stats["types"]) == found["bytes"]
    assert main(["journal", "stats", str(run)]) == 0
    assert "Observed" in capsys.readouterr().out
    lock.close()


def test_an_export_has_every_event_without_its_checksum(
    run: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["journal", "export", str(run)]) == 0
    lines = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [line["n"] for line in lines] == list(range(1, len(lines) + 1))
    assert all(line.keys() == {"n", "at", "type", "body"} for line in lines)


@pytest.mark.parametrize("line", [2, 7])
def test_damage_is_named_and_cut_off_if_that_is_wanted(
    run: Path, capsys: pytest.CaptureFixture[str], line: int
) -> None:
    num_bytes, path = damage(run, line), run / "journal.jsonl"
    whole = path.read_bytes()
    for action in ("verify", "stats", "export"):
        assert main(["journal", action, str(run)]) == 1
        text = capsys.readouterr().err
        assert text.startswith(
            f"unicron journal {action}: {path}, line {line}: the checksum is wrong"
        )
        assert text.endswith(f"`unicron journal repair {run}` says what can be saved\n")
    assert main(["journal", "repair", str(run)]) == 1
    assert "--yes cuts off this line and all after it" in capsys.readouterr().out
    assert path.read_bytes() == whole
    assert main(["journal", "repair", str(run), "--yes"]) == 0
    kept = run / f"journal.jsonl.from-line-{line}"
    told = capsys.readouterr().out
    assert told == f"{path}: {num_bytes} bytes from line {line} on are now in {kept}\n"
    assert path.read_bytes() + kept.read_bytes() == whole
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert len(list(read_journal(path))) == line - 2
    assert main(["journal", "repair", str(run), "--yes"]) == 0
    assert capsys.readouterr().out == f"{path}: whole; nothing to repair\n"


def test_missing_events_are_found(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:4] + lines[5:]))
    assert main(["journal", "verify", str(run)]) == 1
    assert "line 5: event 5 follows event 3: some are missing" in capsys.readouterr().err


def test_a_journal_in_use_is_not_repaired(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(run, 3)
    whole = (run / "journal.jsonl").read_bytes()
    lock = RunLock(run, 0.0)
    assert main(["journal", "repair", str(run), "--yes"]) == 2
    assert "a controller acts on this run already" in capsys.readouterr().err
    assert (run / "journal.jsonl").read_bytes() == whole
    lock.close()


@pytest.mark.parametrize("place", ["no", "run.json", "."])
def test_a_wrong_place_is_one_line(
    run: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    (run / "journal.jsonl").unlink()
    for action in ("verify", "stats", "export", "repair"):
        assert main(["journal", action, str(run / place)]) == 2
        text = capsys.readouterr().err
        directory = run / place
        expected = f"{directory}: there is no journal.jsonl; name the directory of a run"
        assert text == f"unicron journal {action}: {expected}\n"
