"""The demo's root directory goes with its last guard, and only if it is ours."""

import stat
from pathlib import Path

import pytest

from controller.localcluster.root_directory import MARKER_NAME, RootDirectory


def _second_guard(first: RootDirectory) -> RootDirectory:
    return RootDirectory(first.path, (first.path / MARKER_NAME).read_text())


def test_it_is_private_and_new(tmp_path: Path) -> None:
    root = RootDirectory.create(tmp_path)
    assert root.path.parent == tmp_path
    assert stat.S_IMODE(root.path.stat().st_mode) == 0o700
    with pytest.raises(FileExistsError):
        RootDirectory.create(tmp_path, root.path)
    root.release()


def test_only_the_last_guard_removes_it(tmp_path: Path) -> None:
    first = RootDirectory.create(tmp_path)
    second, third = _second_guard(first), _second_guard(first)
    (first.path / "n1").mkdir()
    for guard in (second, first):
        guard.release()
        assert first.path.exists()
    third.release()
    assert not first.path.exists()


def test_a_shared_hold_counts_for_itself(tmp_path: Path) -> None:
    root = RootDirectory.create(tmp_path)
    other = _second_guard(root)
    own = root.share()  # drops the first hold, as in a forked process
    other.release()
    assert root.path.exists()
    own.release()
    assert not root.path.exists()


def test_a_directory_with_another_marker_is_left_alone(tmp_path: Path) -> None:
    root = RootDirectory.create(tmp_path)
    (root.path / MARKER_NAME).write_text("somebody else's")
    root.release()
    assert root.path.exists()


def test_a_directory_already_gone_is_no_error(tmp_path: Path) -> None:
    root = RootDirectory.create(tmp_path)
    (root.path / MARKER_NAME).unlink()
    root.path.rmdir()
    root.release()


def test_a_state_directory_is_made_anew_without_following_links(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    root = RootDirectory.create(tmp_path)
    root.remake_state_directory("n1")
    (root.path / "n1" / "link").symlink_to(precious)
    (root.path / "n1" / "old").mkdir(mode=0o500)
    root.remake_state_directory("n1")
    assert list((root.path / "n1").iterdir()) == []
    assert stat.S_IMODE((root.path / "n1").stat().st_mode) == 0o700
    root.release()
    assert (precious / "file").exists()
