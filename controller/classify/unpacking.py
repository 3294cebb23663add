"""Unpacks compressed logs piece by piece (gzip, bzip2, xz and zstd), and decodes their text.

``log_inputs`` calls it. The first bytes of a file decide. Memory stays bounded,
however much a file expands.
"""

import bz2
import codecs
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol, cast

import zstandard
from typing_extensions import override


class InputError(Exception):
    """An input can't be read. The text is one line with the input, the place and the mend."""


_HEAD_BYTES: Final = 1024
"""How much of an input decides what it is."""
_MARKS: Final = (
    # The marks of UTF-32 come first, since the mark of UTF-16 is the beginning of one of them.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, ""),
)
_ARCHIVE_MEND: Final = "unpack it and name the logs in it"
_FOREIGN: Final = (
    (0, b"PK\x03\x04", "a zip archive or a PyTorch checkpoint", _ARCHIVE_MEND),
    (0, b"PK\x05\x06", "an empty zip archive", "name a log file"),
    (257, b"ustar", "a tar archive", _ARCHIVE_MEND),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", _ARCHIVE_MEND),
    (0, b"Rar!\x1a\x07", "a rar archive", _ARCHIVE_MEND),
    (0, b"\x04\x22\x4d\x18", "compressed with lz4", "unpack it with lz4 -d"),
    (0, b"LZIP\x01", "compressed with lzip", "unpack it with lzip -d"),
    (0, b"\x1f\x9d", "compressed with compress (.Z)", "unpack it with uncompress"),
    (0, b"\x89LZO\0", "compressed with lzop", "unpack it with lzop -d"),
    (0, b"\xff\x06\0\0sNaPpY", "compressed with snappy", "unpack it"),
    (0, b"LPKSHHRH", "a systemd journal", "print it with journalctl --file"),
    (0, b"\x7fELF", "a program or a core dump (ELF)", "name a log file"),
    (0, b"SQLite format 3\0", "a SQLite database", "name a log file"),
    (0, b"%PDF-", "a PDF file", "name a log file"),
    (0, b"\x93NUMPY", "a NumPy array", "name a log file"),
    (4, b"\0\0\0\0{", "a safetensors file", "name a log file"),
    *((0, bytes((0x80, version)), "a Python pickle", "name a log file") for version in range(2, 6)),
)
"""Files that are no text, or text that nobody would call a log: place and bytes, name, mend."""
_NOT_IN_TEXT: Final = bytes(sorted({*range(1, 32), 127} - set(b"\a\b\t\n\v\f\r\x1b")))
_MAX_SHARE_OF_BINARY: Final = 0.03
"""Random bytes have 0.09, programs and tensors more; logs with stray bytes far less."""
_MIN_WIDE_SHARE: Final = 0.6
"""Of the characters of UTF-16 that have a zero byte; of text with many others less."""
_MAX_STRAY_SHARE: Final = 0.05


def as_text(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Yield the text in ``chunks`` as UTF-8, without zero bytes.

    Zeros are what a log rotation leaves at the begin of a file that is still written to. They are
    also what is left of UTF-16 that was appended to another encoding.

    Raises:
        InputError: The input is no text.
    """
    head, chunks = with_head(chunks)
    if not head:
        yield from chunks
        return
    encoding, size = encoding_of(head)
    _refuse_foreign(head, name)
    texts = (
        _decoded(head[size:], chunks, encoding) if encoding else _without_zeros(head[size:], chunks)
    )
    first, texts = with_head(texts)
    if not first:
        yield from texts
        if size == len(head):
            return
        raise InputError(f"{name}: holds nothing but zero bytes; copy the file again")
    _refuse_binary(first, name)
    yield first
    yield from texts


def with_head(chunks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Return the first kilobyte of an input or more, and the chunks that follow.

    An error in the first kilobyte is raised by the chunks: what was read before it counts.
    """
    head: list[bytes] = []
    num_bytes = 0
    try:
        while num_bytes < _HEAD_BYTES and (chunk := next(chunks, None)) is not None:
            head.append(chunk)
            num_bytes += len(chunk)
    except (InputError, KeyboardInterrupt) as error:
        chunks = _raising(error)
    return b"".join(head), chunks


def _raising(error: BaseException) -> Iterator[bytes]:
    yield from ()
    raise error


def encoding_of(head: bytes) -> tuple[str, int]:
    """Return the encoding, empty for those that contain ASCII, and the size of its mark."""
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding, len(mark)
    pairs = len(head[:_HEAD_BYTES]) // 2
    even, odd = (head[start : 2 * pairs : 2].count(0) for start in (0, 1))
    if odd >= pairs * _MIN_WIDE_SHARE and even <= pairs * _MAX_STRAY_SHARE:
        return "utf-16-le", 0
    if even >= pairs * _MIN_WIDE_SHARE and odd <= pairs * _MAX_STRAY_SHARE:
        return "utf-16-be", 0
    return "", 0


def _decoded(head: bytes, chunks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for chunk in _all(head, chunks):
        yield decoder.decode(chunk).encode("utf-8", "replace").replace(b"\0", b"")
    yield decoder.decode(b"", final=True).encode()


def _without_zeros(head: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    for chunk in _all(head, chunks):
        yield chunk.translate(None, b"\0") if b"\0" in chunk else chunk


def _all(head: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    yield head
    yield from chunks


def _refuse_foreign(head: bytes, name: str) -> None:
    for place, magic, what, mend in _FOREIGN:
        if head[place:].startswith(magic):
            raise InputError(f"{name}: is {what}, no text (byte {place}); {mend}")


def _refuse_binary(first: bytes, name: str) -> None:
    head = first[: 64 * _HEAD_BYTES]
    num_strange = len(head) - len(head.translate(None, _NOT_IN_TEXT))
    if num_strange > max(2, len(head) * _MAX_SHARE_OF_BINARY):
        place = next(index for index, byte in enumerate(head) if byte in _NOT_IN_TEXT)
        raise InputError(
            f"{name}: is binary, no text (from byte {place:,} on); name a log file, or unpack it"
        )


_PIECE_BYTES: Final = 1 << 14
_ZSTD_PIECE_BYTES: Final = 512
"""zstandard returns all that a piece holds: at most 16 MiB for a piece of this size."""
_MAX_TEXT_BYTES: Final = 1 << 18
_MAX_WINDOW_BYTES: Final = 1 << 27
"""The limit of ``zstd`` itself, without its option ``--long``."""
_MAX_XZ_BYTES: Final = 1 << 28
"""Above the 65 MiB of ``xz -9``."""
_GZIP_FORMAT: Final = 31
"""zlib's number for gzip with its header and checksum, and the largest window."""


class _Decoder(Protocol):
    """Unpacks one member of a file, like the decoders of ``bz2`` and ``lzma``."""

    @property
    def eof(self) -> bool:
        """Whether the member is complete."""

    @property
    def needs_input(self) -> bool:
        """Whether nothing is left to return until more input comes."""

    @property
    def unused_data(self) -> bytes:
        """The input behind the end of the member."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return the next text of the member."""


class _GzipDecoder(_Decoder):
    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP_FORMAT)
        self._is_drained = True

    @property
    @override
    def eof(self) -> bool:
        return self._member.eof

    @property
    @override
    def needs_input(self) -> bool:
        return self._is_drained and not self._member.unconsumed_tail

    @property
    @override
    def unused_data(self) -> bytes:
        return self._member.unused_data

    @override
    def decompress(self, data: bytes, max_length: int) -> bytes:
        text = self._member.decompress(self._member.unconsumed_tail + data, max_length)
        self._is_drained = len(text) < max_length
        return text


class _ZstdDecoder(_Decoder):
    def __init__(self) -> None:
        self._frame = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).decompressobj()

    @property
    @override
    def eof(self) -> bool:
        return self._frame.eof

    @property
    @override
    def needs_input(self) -> bool:
        return True

    @property
    @override
    def unused_data(self) -> bytes:
        return self._frame.unused_data

    @override
    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._frame.decompress(data)


@dataclass(frozen=True, slots=True)
class Compression:
    """A format of compressed files.

    Attributes:
        name: The name for messages; also the program that unpacks the format.
        magics: The bytes that a file of the format may begin with.
        decoder: Makes the decoder of a member.
        piece_bytes: How much input a decoder gets at once.
    """

    name: str
    magics: tuple[bytes, ...]
    decoder: Callable[[], _Decoder]
    piece_bytes: int = _PIECE_BYTES


def _xz_decoder() -> _Decoder:
    return cast("_Decoder", lzma.LZMADecompressor(lzma.FORMAT_AUTO, memlimit=_MAX_XZ_BYTES))


def _bzip2_decoder() -> _Decoder:
    return cast("_Decoder", bz2.BZ2Decompressor())


_COMPRESSIONS: Final = (
    Compression("gzip", (b"\x1f\x8b\x08",), _GzipDecoder),
    # With the level alone: what begins so and is none is damaged, and no text.
    Compression("bzip2", tuple(b"BZh%d" % level for level in range(1, 10)), _bzip2_decoder),
    Compression("xz", (b"\xfd7zXZ\0", b"\x5d\0\0"), _xz_decoder),
    Compression(
        "zstd",
        (b"\x28\xb5\x2f\xfd", *(bytes((kind, 0x2A, 0x4D, 0x18)) for kind in range(0x50, 0x60))),
        _ZstdDecoder,
        _ZSTD_PIECE_BYTES,
    ),
)


def compression_of(head: bytes) -> Compression | None:
    """Return the format of a file that begins with ``head``, or None if it is not compressed.

    A head that ends within the first bytes of a format counts as this format, cut off.
    """
    for compression in _COMPRESSIONS:
        if any(_begins(head, magic) for magic in compression.magics):
            return compression
    return None


def _begins(head: bytes, magic: bytes) -> bool:
    return head.startswith(magic) or (
        len(head) >= 2 and not head.isascii() and magic.startswith(head)
    )


def unpacked(packed: Iterator[bytes], compression: Compression, name: str) -> Iterator[bytes]:
    """Yield the text of a compressed file, at most some megabytes at once.

    Raises:
        InputError: The file is damaged or cut off, or needs too much memory. All text before that
            place is yielded first.
    """
    file = _PackedFile(compression, name)
    for chunk in packed:
        for start in range(0, len(chunk), compression.piece_bytes):
            yield from file.read(chunk[start : start + compression.piece_bytes])
    file.end()


class _PackedFile:
    """A compressed file: one member or several, with zeros between them."""

    def __init__(self, compression: Compression, name: str) -> None:
        self._compression = compression
        self._name = name
        self._num_bytes = 0
        self._member: _Decoder | None = None

    def read(self, data: bytes) -> Iterator[bytes]:
        """Yield the text in the next piece of the file."""
        num_bytes = self._num_bytes + len(data)
        while True:
            if self._member is None:
                data = data.lstrip(b"\0")
                if not data:
                    break
                self._member = self._compression.decoder()
            text = self._text_of(self._member, data)
            for start in range(0, len(text), _MAX_TEXT_BYTES):
                yield text[start : start + _MAX_TEXT_BYTES]
            data = b""
            if self._member.eof:
                data = self._member.unused_data
                self._num_bytes = num_bytes - len(data)
                self._member = None
            elif self._member.needs_input:
                break
        self._num_bytes = num_bytes

    def end(self) -> None:
        """End the file. Raises ``InputError`` if its last member is not complete."""
        if self._member is not None:
            raise InputError(
                f"{self._name}: the {self._compression.name} file is cut off at byte"
                f" {self._num_bytes:,}; copy it again"
            )

    def _text_of(self, member: _Decoder, data: bytes) -> bytes:
        try:
            return member.decompress(data, _MAX_TEXT_BYTES)
        except (OSError, ValueError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise self._mistake(error) from error
        except zstandard.ZstdError as error:
            raise self._mistake(error) from error

    def _mistake(self, error: Exception) -> InputError:
        form = self._compression.name
        if "memory" in str(error).lower():
            return InputError(
                f"{self._name}: unpacking needs more memory than is allowed (byte"
                f" {self._num_bytes:,}); unpack it with {form} and classify the result"
            )
        return InputError(
            f"{self._name}: the {form} file is damaged near byte {self._num_bytes:,}; copy it again"
        )
