"""Reads logs from files or standard input, plain or gzip."""

import gzip
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, cast

_CHUNK_BYTES: Final = 1 << 18
_GZIP_MAGIC: Final = b"\x1f\x8b"


class InputError(Exception):
    """An input can't be read. The text is one line with the input, the reason and the mend."""


def name_of(path: str) -> str:
    """Return the name of the input ``path`` for messages."""
    return "standard input" if path == "-" else path


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """Open ``path`` for reading bytes; ``-`` is standard input. Compressed content is unpacked.

    Raises:
        InputError: There is no such file, or it is a directory, or it can't be read.
    """
    if path == "-":
        yield _unpacked(sys.stdin.buffer)
        return
    if Path(path).is_dir():
        raise InputError(f"{path}: is a directory; name a log file")
    with _file(path) as file:
        yield _unpacked(file)


def _file(path: str) -> BinaryIO:
    try:
        return Path(path).open("rb")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}: {reason.lower()}; name a readable log file, or '-'") from error


def chunks(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Read ``file`` to its end.

    Raises:
        InputError: Reading fails, or the compressed content is damaged.
    """
    # read1 returns what has arrived: a pipe may stay open for hours between two lines.
    read = getattr(file, "read1", file.read)
    while chunk := guarded(lambda: cast("bytes", read(_CHUNK_BYTES)), name):
        yield chunk


def lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Read ``file`` line by line. Raises ``InputError`` like ``chunks``."""
    while line := guarded(file.readline, name):
        yield line


def guarded(read: Callable[[], bytes], name: str) -> bytes:
    """Call ``read``; turn its errors into ``InputError``."""
    try:
        return read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{name}: the compressed content is damaged or cut off") from error
    except OSError as error:
        raise InputError(f"{name}: {(error.strerror or 'reading failed').lower()}") from error


def _unpacked(file: BinaryIO) -> BinaryIO:
    peek = getattr(file, "peek", None)
    if peek is None or peek(2)[:2] != _GZIP_MAGIC:
        return file
    return cast("BinaryIO", gzip.GzipFile(fileobj=file))
