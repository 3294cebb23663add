"""Unpacks compressed logs piece by piece: gzip, bzip2, xz and zstd.

``log_inputs`` calls it. The first bytes of a file decide. Memory stays bounded,
however much a file expands.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol, cast

import zstandard
from typing_extensions import override

from controller.classify.input_error import InputError

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
    Compression("bzip2", tuple(b"BZh%d1AY&SY" % level for level in range(1, 10)), _bzip2_decoder),
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
