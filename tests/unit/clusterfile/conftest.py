"""A folder with the files that a cluster file names."""

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is the home too, with a key and known hosts."""
    ssh = tmp_path / ".ssh"
    ssh.mkdir()
    (ssh / "id_ed25519").touch()
    (ssh / "known_hosts").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "/state")  # the path of a socket must not be too long
    monkeypatch.chdir(tmp_path)
    return tmp_path
