"""The demo's root directory: the warden makes it, and the last guard to end removes it.

The guards are the warden and the hosts. ``ROOT/n1`` and so on are the nodes' state directories; the
other files (keys, server configurations) belong to the demo. A marker file in the directory holds a
nonce. Every guard holds a shared lock on the marker. A guard that ends tries to make its lock
exclusive, which only the last guard can do; then it removes the directory. The kernel drops the
lock of a guard that was killed. A directory with another nonce is never touched.

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
    """The root directory, locked by one guard."""

    def __init__(self, path: Path, nonce: str) -> None:
        """Lock the directory that ``create`` made.

        Raises:
            OSError: The directory or its marker does not exist.
        """
        self.path = path
        self._nonce = nonce
        self._lock = os.open(path / MARKER_NAME, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    @classmethod
    def create(cls, parent: Path, path: Path | None = None) -> "RootDirectory":
        """Make the directory (mode 0700) and its marker.

        Args:
            parent: Where to make a directory with a new name, if ``path`` is None.
            path: The directory to make. It must not exist.

        Raises:
            OSError: The directory exists, or can't be made.
        """
        path = path or parent / f"unicron-{os.urandom(_NAME_BYTES).hex()}"
        path.mkdir(mode=0o700)
        nonce = os.urandom(_NONCE_BYTES).hex()
        (path / MARKER_NAME).write_text(nonce)
        return cls(path, nonce)

    def share(self) -> "RootDirectory":
        """Return a lock for the process just forked, and close the inherited one.

        A lock belongs to the open file, which a fork shares. Without this call two guards would
        count as one.
        """
        own = RootDirectory(self.path, self._nonce)
        os.close(self._lock)
        return own

    def remake_state_directory(self, node: str) -> None:
        """Make the node's state directory (mode 0700), empty also if it existed.

        Raises:
            OSError: It can't be emptied or made.
        """
        directory = self.path / node
        if directory.exists():
            shutil.rmtree(directory)
        directory.mkdir(mode=0o700)

    def release(self) -> None:
        """Release the lock, and remove the directory if no other guard holds it. Never raises."""
        with suppress(OSError):
            # Unlock first: if several guards end at once, the last one to unlock gets the exclusive
            # lock.
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
