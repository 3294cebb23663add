"""Which logs are meant: files, folders, patterns and archives, or standard input; each opened."""

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final, cast

from controller.classify.unpacking import InputError, as_text, compression_of, unpacked, with_head

STANDARD_INPUT: Final = "-"
_Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LogPath:
    """An input.

    Attributes:
        path: Its path, or ``-``.
        size: Its size in bytes as it lies on the disk; 0 if unknown.
        mistake: Why it can't be read, if that is known already; else empty.
    """

    path: str
    size: int = 0
    mistake: str = ""


def logs_in(paths: Iterable[str]) -> list[LogPath]:
    """Return the inputs that ``paths`` name, those of a directory sorted.

    Hidden entries of directories are left out. So are files that were listed before under another
    name, and the file that standard output is written to. Symbolic links are followed, last.
    """
    lister = _Lister()
    return [found for path in paths for found in lister.listed(path)]


class _Lister:
    def __init__(self) -> None:
        self._seen = set(_outputs())

    def listed(self, path: str) -> Iterator[LogPath]:
        """Yield the inputs that the argument ``path`` names."""
        if path == STANDARD_INPUT:
            yield LogPath(path, _size_of_input())
            return
        if not _is_directory(path):
            status = _status(Path(path))
            if status is not None:
                self._seen.add(_key(status))
            yield LogPath(path, status.st_size if status and stat.S_ISREG(status.st_mode) else 0)
            return
        if (status := _status(Path(path))) is not None:
            self._seen.add(_key(status))
        found = sorted(self._walk(Path(path)), key=lambda each: each.path)
        yield from found or [
            LogPath(
                path, mistake=f"{path}: holds no log; hidden files don't count: name a log file"
            )
        ]

    def _walk(self, root: Path) -> Iterator[LogPath]:
        """Yield what lies below ``root``. Real entries come before links to the same."""
        waiting, links = [root], list[Path]()
        while waiting or links:
            if not waiting:
                target = links.pop(0)
                yield from self._entry(target, waiting)
                continue
            directory = waiting.pop()
            try:
                entries = [entry for entry in os.scandir(directory) if entry.name[:1] != "."]
            except OSError as error:
                reason = (error.strerror or "can't be read").lower()
                yield LogPath(
                    str(directory), mistake=f"{directory}: {reason}; make the directory readable"
                )
                continue
            for entry in sorted(entries, key=lambda each: each.name):
                if entry.is_symlink():
                    links.append(Path(entry.path))
                else:
                    yield from self._entry(Path(entry.path), waiting)

    def _entry(self, path: Path, waiting: list[Path]) -> Iterator[LogPath]:
        """Yield ``path`` if it is a new file; add it to ``waiting`` if it is a new directory."""
        status = _status(path)
        if status is None:
            yield LogPath(str(path))  # opening it says why it can't be read
            return
        if _key(status) in self._seen:
            return
        if stat.S_ISDIR(status.st_mode):
            self._seen.add(_key(status))
            waiting.append(path)
        elif stat.S_ISREG(status.st_mode):
            self._seen.add(_key(status))
            yield LogPath(str(path), status.st_size)


def _outputs() -> Iterator[_Key]:
    """Yield the file that standard output goes to: reading it would never end."""
    with suppress(OSError, ValueError):
        status = os.fstat(sys.stdout.fileno())
        if stat.S_ISREG(status.st_mode):
            yield _key(status)


def _size_of_input() -> int:
    with suppress(OSError, ValueError):
        status = os.fstat(sys.stdin.fileno())
        return status.st_size if stat.S_ISREG(status.st_mode) else 0
    return 0


def _is_directory(path: str) -> bool:
    with suppress(OSError, ValueError):
        return Path(path).is_dir()
    return False


def _status(path: Path) -> os.stat_result | None:
    with suppress(OSError, ValueError):
        return path.stat()
    return None


def _key(status: os.stat_result) -> _Key:
    return status.st_dev, status.st_ino


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
