"""Where the sockets of a state directory are."""

import os
from pathlib import Path

import pytest

from nodeagent.process_tools import socket_places
from nodeagent.process_tools.socket_places import is_on_network, remove_sockets, sockets_dir

MOUNTS = """\
22 27 0:20 / /proc rw,nosuid - proc proc rw
27 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
41 27 0:35 / /home rw,relatime shared:2 - nfs4 filer:/home rw,vers=4.2
42 41 8:2 / /home/scratch rw,relatime - xfs /dev/sdb1 rw
43 27 0:36 / /my\\040data rw - lustre mds@tcp:/fs rw
44 27 0:37 / /gcs rw - fuse.gcsfuse bucket rw
45 27 0:38 / /over rw - nfs filer:/over rw
46 27 0:39 / /over rw - tmpfs tmpfs rw
broken line
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of this test that stands for ``/tmp``."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(socket_places, "_ELSEWHERE", str(place))
    sockets_dir.cache_clear()
    return place


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/home/ann/state", True),
        ("/home", True),
        ("/homes/ann", False),
        ("/home/scratch/ann", False),
        ("/my data/ann", True),
        ("/gcs/state", True),
        ("/over/state", False),
        ("/var/lib/state", False),
    ],
)
def test_the_innermost_mount_decides(path: str, expected: bool) -> None:
    assert is_on_network(path, MOUNTS) is expected


def test_a_local_short_path_holds_its_sockets_itself() -> None:
    assert sockets_dir(Path("/var/lib/unicron")) == Path("/var/lib/unicron")


def test_each_state_directory_on_a_network_has_a_place_of_its_own(
    elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    monkeypatch.setattr(socket_places, "_MOUNTS", str(mounts))
    places = {sockets_dir(Path(f"/home/ann/{node}")) for node in ("n1", "n2")}
    assert len(places) == 2
    for place in places:
        assert place.parent.parent == elsewhere
        assert place.stat().st_mode & 0o777 == 0o700
    (sockets_dir(Path("/home/ann/n1")) / "agent.sock").touch()
    remove_sockets(Path("/home/ann/n1"))
    assert [place.exists() for place in places].count(True) == 1


@pytest.mark.parametrize("kind", ["link", "open to others", "file"])
def test_a_place_that_somebody_else_prepared_is_refused(
    elsewhere: Path, tmp_path: Path, kind: str
) -> None:
    place = elsewhere / f"unicron-{os.getuid()}"
    if kind == "link":
        (tmp_path / "theirs").mkdir(mode=0o700)
        place.symlink_to(tmp_path / "theirs")
    elif kind == "file":
        place.touch()
    else:
        place.mkdir()
        place.chmod(0o777)
    with pytest.raises(OSError, match="unicron-"):
        sockets_dir(Path("/" + "x" * 120))
