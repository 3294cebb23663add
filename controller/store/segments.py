"""The files of a journal: the segment in use, closed ones, and their names.

journal.jsonl                                        in use
journal.d/000000000001-000000020000.jsonl.zst        closed and compressed
journal.d/000000020001-000000040000.jsonl            closed a moment ago
journal.d/000000020000.snapshot.zst                  the state after event 20,000
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import zstandard

from controller.store.journal_lines import LineReader

_CLOSED: Final = re.compile(r"(\d{12})-(\d{12})\.jsonl(\.zst)?")
_ZST: Final = ".zst"
_MOST_BYTES: Final = 2**32
"""A compressed segment says how long it is; more than this is damage."""


class SegmentError(Exception):
    """A compressed segment can't be read."""


def segments_directory(path: Path) -> Path:
    """Return the directory of the closed segments and snapshots of the journal at ``path``."""
    return path.with_name(f"{path.stem}.d")


@dataclass(frozen=True, slots=True)
class JournalSegment:
    """One file of a journal.

    Attributes:
        path: The file.
        first: Number of its first event; None of the segment in use, whose first line says it.
        last: Number of its last event; None of the segment in use.
    """

    path: Path
    first: int | None = None
    last: int | None = None

    @staticmethod
    def place(path: Path, first: int, last: int) -> Path:
        """Return where a segment of the journal at ``path`` is once it is closed."""
        return segments_directory(path) / f"{first:012}-{last:012}.jsonl"

    @property
    def is_compressed(self) -> bool:
        """Whether the file is compressed."""
        return self.path.suffix == _ZST

    def first_event(self) -> int:
        """Return the number of its first event; 1 of one whose first line can't be read.

        Raises:
            OSError: The file can't be read.
        """
        if self.first is not None:
            return self.first
        try:
            return LineReader.of(self.lines()[0]).first
        except (IndexError, ValueError):
            return 1

    def now(self) -> "JournalSegment":
        """Return the segment as it is now: it may have been compressed since it was listed."""
        if self.last is None or self.path.exists():
            return self
        return replace(self, path=self.path.with_name(f"{self.path.name}{_ZST}"))

    @property
    def num_bytes(self) -> int:
        """Size of the file; 0 if it was deleted meanwhile."""
        try:
            return self.now().path.stat().st_size
        except FileNotFoundError:
            return 0

    def content(self) -> bytes:
        """Return its lines as they were written.

        Raises:
            SegmentError: The file is damaged, or was deleted meanwhile.
            OSError: It can't be read.
        """
        segment = self.now()
        try:
            data = segment.path.read_bytes()
        except FileNotFoundError as error:
            if self.last is None:
                raise
            raise SegmentError("it was deleted meanwhile, since it is too old") from error
        return decompressed(data) if segment.is_compressed else data

    def lines(self) -> list[bytes]:
        """Return its complete lines, without their newlines.

        Raises:
            SegmentError: The file is damaged, or was deleted meanwhile.
            OSError: It can't be read.
        """
        *lines, _torn = self.content().split(b"\n")
        return lines

    def is_same_file(self, path: Path) -> bool:
        """Return whether this is another name of a file."""
        try:
            return self.path.samefile(path)
        except FileNotFoundError:
            return False


def closed_segments(path: Path) -> list[JournalSegment]:
    """Return the closed segments of the journal at ``path``, the oldest first.

    Of a segment that is there twice, compressed and not, the compressed one counts: it is complete
    before it gets its name.
    """
    found: dict[tuple[int, int], JournalSegment] = {}
    directory = segments_directory(path)
    names = sorted(directory.iterdir()) if directory.is_dir() else []
    for file in names:
        if match := _CLOSED.fullmatch(file.name):
            first, last = int(match[1]), int(match[2])
            found[first, last] = JournalSegment(file, first, last)  # .jsonl.zst is after .jsonl
    return [found[key] for key in sorted(found)]


def segments_of(path: Path) -> list[JournalSegment]:
    """Return all segments of the journal at ``path``, the oldest first, the one in use last.

    Raises:
        FileNotFoundError: There is no segment in use.
    """
    path.stat()
    # A crash may have left a second name of the segment in use among the closed ones.
    closed = [each for each in closed_segments(path) if not each.is_same_file(path)]
    return [*closed, JournalSegment(path)]


def compressed(data: bytes) -> bytes:
    """Return ``data`` compressed, with its length and a checksum."""
    options = zstandard.ZstdCompressor(level=6, write_checksum=True, write_content_size=True)
    return options.compress(data)


def decompressed(data: bytes) -> bytes:
    """Return what was compressed.

    Raises:
        SegmentError: It is damaged.
    """
    try:
        if zstandard.frame_content_size(data) > _MOST_BYTES:
            raise SegmentError("the file is damaged: it says that it is larger than any segment")
        return zstandard.ZstdDecompressor().decompress(data)
    except zstandard.ZstdError as error:
        raise SegmentError(f"the file is damaged: {error}") from error
