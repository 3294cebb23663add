"""The root directory goes where the sockets in it have short enough names."""

import tempfile
from pathlib import Path

import pytest

from controller.localcluster.cluster_errors import LocalClusterError
from controller.localcluster.short_path import choose_root


@pytest.fixture
def long_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A TMPDIR that is too long for sockets."""
    directory = tmp_path / ("d" * 90)
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def test_tmpdir_is_taken_where_it_is_short_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    claim = choose_root(4, None, short_parents=[])
    assert (claim.parent, claim.root) == ("/tmp", "")


def test_a_long_tmpdir_gives_way_to_a_shorter_parent(long_directory: Path) -> None:
    missing = Path("/nonexistent")
    assert choose_root(4, None, short_parents=[missing, Path("/tmp")]).parent == "/tmp"


def test_no_parent_at_all_is_one_clear_error(long_directory: Path) -> None:
    with pytest.raises(LocalClusterError, match="set TMPDIR to a writable one of at most 65 bytes"):
        choose_root(4, None, short_parents=[])


@pytest.mark.parametrize(("num_nodes", "room"), [(4, 82), (12, 80)])
def test_a_given_root_must_leave_room_for_the_longest_socket(num_nodes: int, room: int) -> None:
    fitting = Path("/" + "r" * (room - 1))
    assert choose_root(num_nodes, fitting).root == str(fitting)
    assert len(f"{fitting}/n{num_nodes}/demo/n{num_nodes}/template.sock") == 107
    with pytest.raises(LocalClusterError, match=f"choose a directory of at most {room} bytes"):
        choose_root(num_nodes, Path(f"{fitting}r"))


def test_a_relative_root_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/tmp")
    assert choose_root(1, Path("here")).root == "/tmp/here"
