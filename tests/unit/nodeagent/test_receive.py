"""An archive is unpacked whole, or not at all: a connection may end at any byte of it."""

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from nodeagent import receive

NAMES = ("agent.py", "rank/__init__.py", "ranks/__init__.py", "ranks/supervisor.py")


def archive() -> bytes:
    """Return a compressed archive of some files, each of several blocks."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as packed:
        for number, name in enumerate(NAMES):
            content = bytes(range(256)) * (8 * (number + 1))
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))
    return target.getvalue()


def received(monkeypatch: pytest.MonkeyPatch, place: Path, data: bytes) -> int:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    return receive.main(place)


def test_a_whole_archive_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert received(monkeypatch, tmp_path / "code", archive()) == 0
    assert all((tmp_path / "code" / name).is_file() for name in NAMES)
    assert [each.name for each in tmp_path.iterdir()] == ["code"]


def test_an_archive_that_is_cut_off_anywhere_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = archive()
    for length in [*range(0, len(whole), 9), *range(len(whole) - 40, len(whole))]:
        assert received(monkeypatch, tmp_path / "code", whole[:length]) == 1, length
        assert not list(tmp_path.iterdir()), length
        assert "Traceback" not in capsys.readouterr().err


def test_a_damaged_archive_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bytearray(archive())
    for position in range(12, len(whole), 11):
        damaged = bytes([*whole[:position], whole[position] ^ 0x55, *whole[position + 1 :]])
        assert received(monkeypatch, tmp_path / "code", damaged) == 1, position
        assert not list(tmp_path.iterdir()), position


def test_it_runs_as_the_controller_sends_it(tmp_path: Path) -> None:
    """By ``python -c``, isolated, from standard input."""
    text = Path(receive.__file__).read_text()
    command = [sys.executable, "-I", "-c", text, str(tmp_path / "code")]
    done = subprocess.run(command, input=archive()[:-9], capture_output=True, check=False)
    assert done.returncode == 1
    assert b"the archive was cut off" in done.stderr
    assert subprocess.run(command, input=archive(), check=False).returncode == 0
