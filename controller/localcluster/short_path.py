"""Chooses a root directory whose sockets fit the kernel's limit.

The path of a unix socket may have 107 bytes. A long TMPDIR leaves no room for the nodes' sockets,
so shorter parents are tried too.
"""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from controller.localcluster.cluster_errors import LocalClusterError
from controller.localcluster.warden_orders import RootRequest

_MAX_SOCKET_BYTES: Final = 107
_LONGEST_SOCKET: Final = "template.sock"
_SAMPLE_ROOT: Final = "unicron-00000000"
_SHORT_PARENTS: Final = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))  # noqa: S108


def choose_root(
    num_nodes: int, root: Path | None, short_parents: Sequence[Path] = _SHORT_PARENTS
) -> RootRequest:
    """Return where the warden is to make the root directory.

    Args:
        num_nodes: The highest node number.
        root: The directory that the caller wants. None for a new one in TMPDIR, or in one of
            ``short_parents`` if TMPDIR is too long or not writable.
        short_parents: The parents to try after TMPDIR, in order.

    Raises:
        LocalClusterError: ``root`` is too long, or no parent is short and writable.
    """
    # The nodes of a playground have their agents below the names of cluster and node.
    room = _MAX_SOCKET_BYTES - len(f"/n{num_nodes}/demo/n{num_nodes}/{_LONGEST_SOCKET}")
    if root is not None:
        path = Path(os.path.abspath(root))  # noqa: PTH100 - resolving links may lengthen the path
        if len(os.fsencode(path)) > room:
            raise LocalClusterError(
                f"{path} is too long for the sockets of the nodes: choose a directory of at most"
                f" {room} bytes"
            )
        return RootRequest(parent=str(path.parent), root=str(path))
    for parent in (Path(tempfile.gettempdir()), *short_parents):
        fits = len(os.fsencode(parent / _SAMPLE_ROOT)) <= room
        if fits and os.access(parent, os.W_OK | os.X_OK):
            return RootRequest(parent=str(parent))
    raise LocalClusterError(
        f"no directory for the demo: set TMPDIR to a writable one of at most"
        f" {room - len(_SAMPLE_ROOT) - 1} bytes"
    )
