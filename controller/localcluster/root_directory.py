"""The demo's root directory: made by the warden, removed by whichever guard ends last.

Layout: ``ROOT/n1`` .. are the state directories of the nodes; everything else in it (keys, server
configurations) belongs to the demo. The directory carries a marker file with a nonce. Every guard
(the warden and each host) holds a shared lock on the marker while something of its own may run; a
guard that ends removes the directory if it can make its lock exclusive, which only the last one can.
The kernel drops the lock of a guard that was killed. A directory without our nonce is never touched.

Standard library only.
"""

import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

MARKER_NAME: Final = ".unicron-demo"
_NONCE_BYTES: Final = 16
_NAME_BYTES: Final = 4


class RootDirectory:
    """One guard's hold on the root directory."""

    def __init__(self, path: Path, nonce: str) -> None:
        """Take hold of the directory that ``create`` made.

        Raises:
            OSError: The directory or its marker is gone.
        """
        self.path = path
        self._nonce = nonce
        self._lock = os.open(path / MARKER_NAME, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    @classmethod
    def create(cls, parent: Path, path: Path | None = None) -> "RootDirectory":
        """Make the directory (mode 0700) and its marker.

        Args:
            parent: Where to make one with a new name.
            path: The directory itself instead; it must not exist.

        Raises:
            OSError: It can't be made, or exists.
        """
        path = path or parent / f"unicron-{os.urandom(_NAME_BYTES).hex()}"
        path.mkdir(mode=0o700)
        nonce = os.urandom(_NONCE_BYTES).hex()
        (path / MARKER_NAME).write_text(nonce)
        return cls(path, nonce)

    def share(self) -> "RootDirectory":
        """Return a hold of its own for a process just forked, and drop the inherited one.

        A lock belongs to the open file, which a fork shares: without this, two guards would count
        as one.
        """
        own = RootDirectory(self.path, self._nonce)
        os.close(self._lock)
        return own

    def remake_state_directory(self, node: str) -> None:
        """Make the node's state directory (mode 0700), or make it anew and empty.

        Raises:
            OSError: It can't be emptied or made.
        """
        directory = self.path / node
        if directory.exists():
            shutil.rmtree(directory)
        directory.mkdir(mode=0o700)

    def release(self) -> None:
        """Let go, once; remove the directory if no other guard holds it. Never raises."""
        with suppress(OSError):
            # Unlocked first: of several guards that end at once, the last to let go then succeeds.
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._is_ours():
                shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def _is_ours(self) -> bool:
        try:
            return (self.path / MARKER_NAME).read_text() == self._nonce
        except OSError:
            return False
