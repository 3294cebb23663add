"""Directories for tests."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def short_directory() -> Iterator[Path]:
    """Yield a new directory with a short path, and remove it afterwards.

    The name of a unix socket has at most 107 bytes: pytest's ``tmp_path`` can be too long.
    """
    directory = Path(tempfile.mkdtemp(prefix="ur-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
