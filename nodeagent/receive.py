"""Unpack an archive from standard input into a directory: how files come to a node.

The controller runs the text of this module with ``python -c``, before any file of the agent is
there. So it needs no SFTP, and imports nothing of ours. It works with Python 3.6 too.
"""

import gzip
import shutil
import sys
import tarfile
import tempfile
import time
import zlib
from pathlib import Path

_OLD_S = 3600.0
"""Age of a copy that nobody completes any more."""
_TEMPORARY = ".tmp"
_BLOCK = 65536


def main(place: Path) -> int:
    """Unpack into ``place`` in one step: it is never there with some files missing."""
    try:
        _receive(place)
    except (EOFError, zlib.error) as error:
        # tarfile alone takes an archive that ends between two files for a whole one.
        sys.stderr.write(f"{place}: the archive was cut off, or damaged on its way: {error}\n")
        return 1
    except (OSError, tarfile.TarError) as error:
        where = getattr(error, "filename", None) or place
        sys.stderr.write(f"{where}: {getattr(error, 'strerror', None) or error}\n")
        return 1
    return 0


def _receive(place: Path) -> None:
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove_old_copies(place)
    # Others may copy the same at the same time: each has a name of its own.
    copy = Path(tempfile.mkdtemp(_TEMPORARY, f"{place.name}.", place.parent))
    try:
        with gzip.GzipFile(fileobj=sys.stdin.buffer, mode="rb") as stream:
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                if hasattr(tarfile, "data_filter"):
                    archive.extraction_filter = tarfile.data_filter
                archive.extractall(copy)  # noqa: S202 - the controller's own archive
            while stream.read(_BLOCK):  # up to the length and the checksum at its end
                pass
        try:
            copy.rename(place)
        except OSError:
            if not place.is_dir():
                raise
            # Another one was faster.
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def _remove_old_copies(place: Path) -> None:
    for copy in place.parent.glob(f"{place.name}.*{_TEMPORARY}"):
        if time.time() - copy.lstat().st_mtime > _OLD_S:  # noqa: TID251 - the age of a file
            shutil.rmtree(copy, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
