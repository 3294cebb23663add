"""Turns the bytes of a log into UTF-8, and refuses what is no text.

``log_inputs`` calls it with unpacked bytes. The content decides, never the name of the file. Text
in an old 8-bit or Asian encoding passes as it is: faults are written in ASCII.
"""

import codecs
from collections.abc import Iterator
from typing import Final

from controller.classify.input_error import InputError

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
