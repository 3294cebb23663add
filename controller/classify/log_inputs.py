"""Reads logs from files or standard input: plain, compressed, and in several encodings."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final, cast

from controller.classify.input_error import InputError
from controller.classify.text_decoding import as_text, with_head
from controller.classify.unpacking import compression_of, unpacked

_CHUNK_BYTES: Final = 1 << 18
_MAX_LAYERS: Final = 3
"""How often a file may be compressed. There are files that unpack to themselves."""

Wait = Callable[[], AbstractContextManager[None]]


def name_of(path: str) -> str:
    """Return the name of the input ``path`` for messages."""
    return "standard input" if path == "-" else path


@contextmanager
def opened(
    path: str, *, wait: Wait = nullcontext, on_read: Callable[[int], None] = lambda _: None
) -> Iterator[Iterator[bytes]]:
    """Open ``path``, which may be ``-``, and give its text in chunks, as UTF-8.

    Args:
        path: The file.
        wait: Is entered while bytes are awaited.
        on_read: Gets the number of bytes of the file that were read, again and again.

    Raises:
        InputError: The input can't be opened, or is a directory. Reading a chunk raises it if the
            input is damaged, cut off, or no text.
    """
    with _file(path) as file:
        yield _text_of(_chunks(file, name_of(path), wait, on_read), name_of(path))


def lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines in ``chunks``, without their ends."""
    rest: list[bytes] = []
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        rest.append(first)
        if others:
            yield b"".join(rest)
            yield from others[:-1]
            rest = [others[-1]]
    if last := b"".join(rest):
        yield last


def _file(path: str) -> AbstractContextManager[BinaryIO]:
    if path == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        if Path(path).is_dir():
            raise InputError(f"{path}: is a directory; name a file in it")
        return Path(path).open("rb")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}: {reason.lower()}; name a readable log file, or '-'") from error


def _chunks(
    file: BinaryIO, name: str, wait: Wait, on_read: Callable[[int], None]
) -> Iterator[bytes]:
    # read1 returns what has arrived: a pipe may stay open for hours between two lines.
    read = cast("Callable[[int], bytes]", getattr(file, "read1", file.read))
    num_bytes = 0
    while True:
        try:
            with wait():
                chunk = read(_CHUNK_BYTES)
        except OSError as error:
            reason = (error.strerror or "reading failed").lower()
            raise InputError(
                f"{name}: {reason} at byte {num_bytes:,}; check the disk or the network"
            ) from error
        if not chunk:
            return
        num_bytes += len(chunk)
        on_read(len(chunk))
        yield chunk


def _text_of(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    for _ in range(_MAX_LAYERS + 1):
        head, rest = with_head(chunks)
        chunks = chain((head,) if head else (), rest)
        compression = compression_of(head)
        if compression is None:
            return as_text(chunks, name)
        chunks = unpacked(chunks, compression, name)
    raise InputError(f"{name}: is compressed more than {_MAX_LAYERS} times; unpack it yourself")
