"""Where the sockets of a state directory are: in it, or below ``/tmp`` where they can't be.

A socket needs a path of at most ``MAX_SOCKET_PATH_BYTES``, and a file system of this machine alone:
on a network file system another node could take its name away. Every process finds the same place
by itself. ``/tmp`` is used, not ``XDG_RUNTIME_DIR``: that ends with the user's last login.

Standard library only.
"""

import hashlib
import os
import stat
from functools import lru_cache
from pathlib import Path
from typing import Final

MAX_SOCKET_PATH_BYTES: Final = 107
"""Longest path of a unix socket on Linux, without the terminating zero."""
NAMES: Final = ("agent.sock", "ranks.sock", "template.sock")
_NETWORK_TYPES: Final = frozenset(
    [
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "glusterfs",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "panfs",
        "smb3",
        "wekafs",
    ]
)
_MOUNTS: Final = "/proc/self/mountinfo"
_ELSEWHERE: Final = "/tmp"  # noqa: S108 - the directory in it is checked
_ONLY_OWNER: Final = 0o700


@lru_cache(maxsize=8)
def sockets_dir(state_dir: Path) -> Path:
    """Return the directory of the sockets of an absolute ``state_dir``; make it if it is missing.

    Raises:
        OSError: The directory below ``/tmp`` can't be made, or belongs to somebody else.
    """
    longest = len(os.fsencode(state_dir / max(NAMES, key=len)))
    if longest <= MAX_SOCKET_PATH_BYTES and not read_is_on_network(state_dir):
        return state_dir
    return _own_directory(Path(_ELSEWHERE), state_dir)


def read_is_on_network(path: Path) -> bool:
    """Return whether a path is on a network file system now."""
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
            return is_on_network(os.path.realpath(path), file.read())
    except OSError:
        return False


def is_on_network(path: str, mounts: str) -> bool:
    """Return whether an absolute ``path`` is on a network file system, by a ``mountinfo``."""
    found, kind = "", ""
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        words = fields.split(" ")
        if len(words) < 5 or not rest:
            continue
        point = words[4].encode("utf-8", "surrogateescape").decode("unicode_escape")
        if (path == point or path.startswith(f"{point.rstrip('/')}/")) and len(point) >= len(found):
            found, kind = point, rest.split(" ", 1)[0]
    return kind in _NETWORK_TYPES or kind.startswith("fuse.")


def _own_directory(parent: Path, state_dir: Path) -> Path:
    """Return a directory of this user alone below ``parent``, where everybody may write."""
    name = hashlib.sha256(os.fsencode(state_dir)).hexdigest()[:16]
    mine = parent / f"unicron-{os.getuid()}"
    for place in (mine, mine / name):
        place.mkdir(mode=_ONLY_OWNER, exist_ok=True)
        found = place.lstat()
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
        if not is_ours or stat.S_IMODE(found.st_mode) & ~_ONLY_OWNER:
            raise PermissionError(
                f"{place} is needed for sockets, but is not a directory of user {os.getuid()} alone:"
                " remove it"
            )
    return mine / name


def remove_sockets(state_dir: Path) -> None:
    """Remove the sockets of ``state_dir``, and their directory if it is below ``/tmp``."""
    place = sockets_dir(state_dir)
    for name in NAMES:
        (place / name).unlink(missing_ok=True)
    if place != state_dir:
        place.rmdir()
