"""``unicron journal``: whole and damaged journals, beside a living controller, and in JSON."""

import itertools
import json
import stat
from pathlib import Path

import pytest

from controller.cli import main
from controller.store.compaction import compact
from controller.store.journal import Journal, read_journal
from controller.store.run_lock import RunLock
from controller.store.segments import closed_segments, compressed
from controller.store.snapshots import snapshots_of
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
    lines[line - 1] = lines[line - 1].replace(b",", b",1", 1)
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
    header = (run / "journal.jsonl").read_bytes().index(b"\n") + 1
    assert sum(row["bytes"] for row in stats["types"]) == found["bytes"] - header
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


# --- segments and snapshots ------------------------------------------------------------------


@pytest.fixture
def plain(run: Path) -> Path:
    """The same run in segments of ten events."""
    path = run / "journal.jsonl"
    events = list(read_journal(path))
    path.unlink()
    journal = Journal(path, segment_events=10)
    for event in events:
        journal.append(event)
        if journal.is_long:
            journal.commit_at_once()
            journal.begin_segment()
    journal.close()
    return run


@pytest.fixture
def segments(plain: Path) -> Path:
    """The segments compacted, and the first one deleted."""
    path = plain / "journal.jsonl"
    compact(path, keep_bytes=10**9, keep_s=1e9, now_s=0.0)
    closed_segments(path)[0].path.unlink()
    return plain


def test_a_journal_in_segments_is_checked_with_its_snapshots(
    segments: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    num = len(closed_segments(segments / "journal.jsonl"))
    assert main(["journal", "verify", str(segments), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["deleted"], found["segments"]) == (10, num + 1)
    assert found["snapshots"] == [{"events": 10 * (num + 1), "error": None}]
    assert main(["journal", "verify", str(segments)]) == 0
    told = capsys.readouterr().out
    assert f"in {num + 1} segment(s)" in told
    assert "1 snapshot(s)" in told
    assert "events 1 to 10 were deleted: they were too old" in told
    assert main(["journal", "export", str(segments)]) == 0
    exported = [json.loads(line)["n"] for line in capsys.readouterr().out.splitlines()]
    assert exported == list(range(11, found["events"] + 1))


def test_a_damaged_snapshot_is_told_and_is_no_damage_of_the_journal(
    run: Path, segments: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [snapshot] = snapshots_of(segments / "journal.jsonl")
    whole = snapshot.path.read_bytes()
    snapshot.path.write_bytes(whole[:100])
    assert main(["journal", "verify", str(segments)]) == 0
    assert "a snapshot can't be read and is passed over: " in capsys.readouterr().out
    snapshot.path.unlink()
    assert main(["journal", "verify", str(segments)]) == 1
    assert "events 1 to 10 are missing, and no snapshot has them" in capsys.readouterr().err


def hurt_line(run: Path, line: int) -> Path:
    """Change a digit of a line in the second closed segment; return its file."""
    hurt = closed_segments(run / "journal.jsonl")[1]
    content = hurt.content().splitlines(keepends=True)
    content[line - 1] = content[line - 1].replace(b",", b",1", 1)
    changed = b"".join(content)
    hurt.path.write_bytes(compressed(changed) if hurt.is_compressed else changed)
    return hurt.path


def test_damage_in_a_closed_segment_is_cut_off_with_all_after_it(
    plain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, hurt = plain / "journal.jsonl", hurt_line(plain, 5)
    events = list(itertools.islice(read_journal(path), 13))
    assert main(["journal", "repair", str(plain)]) == 1
    assert f"{hurt}, line 5: the checksum is wrong" in capsys.readouterr().out
    assert main(["journal", "repair", str(plain), "--yes"]) == 0
    assert f"{hurt}: " in capsys.readouterr().out
    assert list(read_journal(path)) == events
    assert main(["journal", "verify", str(plain)]) == 0


def test_damage_that_a_snapshot_makes_up_for_is_not_cut_off(
    segments: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hurt = hurt_line(segments, 5)
    before = hurt.read_bytes()
    assert main(["journal", "verify", str(segments)]) == 1
    assert f"{hurt}, line 5: the checksum is wrong" in capsys.readouterr().err
    for words in ((), ("--yes",)):
        assert main(["journal", "repair", str(segments), *words]) == 0
        told = capsys.readouterr().out
        assert "events 1 to " in told
        assert told.endswith("nothing to repair\n")
    assert hurt.read_bytes() == before
