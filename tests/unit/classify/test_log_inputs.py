"""What ``unicron classify`` reads: compressed files, encodings, and what it refuses."""

import bz2
import gzip
import io
import json
import lzma
import os
import random
import struct
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from typing_extensions import Buffer, override

from controller.classify.log_inputs import opened
from controller.classify.unpacking import InputError
from controller.cli import main

_XID = "NVRM: Xid (PCI:0000:1b:00): 79, pid=7, GPU has fallen off the bus."
_LOG = f"step 1 loss 2.0 → läuft\n{_XID}\nbye\n"
_SKIPPABLE = b"\x50\x2a\x4d\x18" + struct.pack("<I", 4) + b"skip"
_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
    "gzip, two members and padding": lambda data: (
        gzip.compress(data[:30]) + gzip.compress(data[30:]) + bytes(512)
    ),
    "bzip2, two streams": lambda data: bz2.compress(data[:30]) + bz2.compress(data[30:]),
    "xz, two streams": lambda data: lzma.compress(data[:30]) + bytes(8) + lzma.compress(data[30:]),
    "zstd, two frames": lambda data: (
        _SKIPPABLE + zstandard.compress(data[:30]) + zstandard.compress(data[30:])
    ),
    "xz of gzip": lambda data: lzma.compress(gzip.compress(data)),
}
_LETTERS = (b"abcdefghijklmnopqrstuvwxyz01234 \n" * 8)[:256]
_FORMATS = ["gzip", "bzip2", "xz", "zstd"]


def _read(path: Path) -> bytes:
    with opened(str(path)) as text:
        return b"".join(text)


def _mistake(path: Path) -> tuple[bytes, str]:
    """Return the text before the mistake, and the mistake."""
    read: list[bytes] = []
    with pytest.raises(InputError) as caught, opened(str(path)) as text:
        read.extend(text)
    return b"".join(read), str(caught.value)


def _noise(num_bytes: int) -> bytes:
    """Return printable text that does not compress well, in lines."""
    return random.Random(1).randbytes(num_bytes).translate(_LETTERS)


@pytest.mark.parametrize("form", _COMPRESS)
def test_a_compressed_log_is_read_whatever_its_name(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.txt"
    log.write_bytes(_COMPRESS[form](_LOG.encode()))
    assert main(["classify", "--json", str(log)]) == 0
    [finding] = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["line"], finding["entry"]) == (2, "gpu-off-bus")


@pytest.mark.parametrize("form", _COMPRESS)
def test_a_large_compressed_log_is_unpacked_without_loss(form: str, tmp_path: Path) -> None:
    text = _noise(300_000) + b"all is well\n" * 200_000 + _noise(300_000)
    log = tmp_path / "log"
    log.write_bytes(_COMPRESS[form](text))
    assert _read(log) == text


@pytest.mark.parametrize("form", _FORMATS)
@pytest.mark.parametrize("text", [_LOG.encode(), _noise(2_000_000)], ids=["small", "large"])
def test_a_log_that_is_cut_off_is_read_up_to_there(form: str, text: bytes, tmp_path: Path) -> None:
    log = tmp_path / "cut"
    packed = _COMPRESS[form](text)
    log.write_bytes(packed[:-3])
    read, mistake = _mistake(log)
    assert text.startswith(read)
    assert f"cut: the {form} file is cut off at byte {len(packed) - 3:,}; copy it" in mistake
    if len(text) > 1_000_000 and form != "bzip2":
        assert read


@pytest.mark.parametrize("form", _FORMATS)
def test_a_log_of_which_only_the_first_bytes_are_left_is_cut_off(form: str, tmp_path: Path) -> None:
    log = tmp_path / "cut"
    log.write_bytes(_COMPRESS[form](_LOG.encode())[:10])
    assert "is cut off at byte 10" in _mistake(log)[1]


@pytest.mark.parametrize("form", _FORMATS)
def test_a_damaged_log_is_named_with_its_place(form: str, tmp_path: Path) -> None:
    text = _noise(1_000_000)
    packed = bytearray(_COMPRESS[form](text))
    middle = len(packed) // 2
    packed[middle : middle + 64] = bytes(reversed(range(64)))
    log = tmp_path / "bad"
    log.write_bytes(packed)
    read, mistake = _mistake(log)
    assert f"bad: the {form} file is damaged near byte" in mistake
    assert read[:100] == text[:100] or form == "bzip2"  # its checksum is that of 900 kB


def test_text_before_garbage_at_the_end_is_read(tmp_path: Path) -> None:
    packed = gzip.compress(_LOG.encode())
    log = tmp_path / "log"
    log.write_bytes(packed + b"and more")
    read, mistake = _mistake(log)
    assert read == _LOG.encode()
    assert f"damaged near byte {len(packed)}" in mistake


@pytest.mark.parametrize("form", _FORMATS)
def test_a_bomb_does_not_fill_memory(form: str, tmp_path: Path) -> None:
    log = tmp_path / "bomb"
    log.write_bytes(_bomb(form, 100))
    num_bytes = 0
    tracemalloc.start()
    with opened(str(log)) as text:
        for chunk in text:
            num_bytes += len(chunk)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert num_bytes == 100 << 20
    assert peak < 50 << 20


def _bomb(form: str, num_megabytes: int) -> bytes:
    packers: dict[str, Any] = {
        "gzip": zlib.compressobj(9, zlib.DEFLATED, 31),
        "bzip2": bz2.BZ2Compressor(),
        "xz": lzma.LZMACompressor(preset=1),
        "zstd": zstandard.ZstdCompressor().compressobj(),
    }
    packer = packers[form]
    megabyte = b"a" * (1 << 20)
    parts = [packer.compress(megabyte) for _ in range(num_megabytes)]
    return b"".join([*parts, packer.flush()])


def test_a_log_that_needs_too_much_memory_is_refused(tmp_path: Path) -> None:
    large = zstandard.ZstdCompressionParameters.from_level(1, window_log=30)
    packer = zstandard.ZstdCompressor(compression_params=large).compressobj()
    log = tmp_path / "log"
    log.write_bytes(packer.compress(_noise(2_000)) + packer.flush())
    assert "needs more memory than is allowed" in _mistake(log)[1]


def test_a_log_that_is_compressed_again_and_again_is_refused(tmp_path: Path) -> None:
    packed = _LOG.encode()
    for _ in range(5):
        packed = gzip.compress(packed)
    log = tmp_path / "log"
    log.write_bytes(packed)
    assert "compressed more than 3 times" in _mistake(log)[1]


@pytest.mark.parametrize(
    "encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"]
)
@pytest.mark.parametrize("num_lines", [1, 60_000])
def test_wide_encodings_are_decoded(encoding: str, num_lines: int, tmp_path: Path) -> None:
    text = _LOG * num_lines
    log = tmp_path / "log"
    mark = "\ufeff" if encoding == "utf-32-be" else ""
    log.write_bytes((mark + text).encode(encoding))
    assert _read(log).decode() == text


def test_utf_16_that_is_appended_to_other_text_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"job started\r\n" * 200 + f"{_XID}\r\n".encode("utf-16-le"))
    assert _read(log).endswith(f"{_XID}\r\n".encode())


def test_zeros_that_a_log_rotation_leaves_are_dropped(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(bytes(1_000_000) + _LOG.encode())
    assert _read(log) == _LOG.encode()


def test_a_log_of_zeros_is_an_error(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(bytes(5_000))
    assert "holds nothing but zero bytes" in _mistake(log)[1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (Path(sys.executable).resolve().read_bytes()[:100_000], "is a program or a core dump"),
        (random.Random(2).randbytes(2_000), "is binary"),
        (struct.pack("<500e", *[n / 9 for n in range(500)]), "is binary"),
        (gzip.compress(random.Random(3).randbytes(9_000)), "is binary"),
        (b"\x80\x04\x95" + b"text" * 99, "is a Python pickle"),
        (b"PK\x03\x04" + b"text" * 900, "is a zip archive"),
        (b"LPKSHHRH" + bytes(99), "journalctl"),
        (b"\x04\x22\x4d\x18" + _LOG.encode(), "lz4 -d"),
        (struct.pack("<Q", 40) + b'{"weight":{"dtype":"F32"}}', "is a safetensors file"),
    ],
    ids=[
        "program",
        "noise",
        "tensor",
        "packed noise",
        "pickle",
        "zip",
        "journal",
        "lz4",
        "safetensors",
    ],
)
def test_what_is_no_text_is_refused(
    content: bytes, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    log.write_bytes(content)
    assert main(["classify", str(log)]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize("rest", [b"\x00\x01", b"1AY&SX"])
def test_what_begins_like_bzip2_and_is_none_is_an_error(
    rest: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    log.write_bytes(b"BZh9" + rest + _LOG.encode())
    assert main(["classify", str(log)]) == 2
    assert "the bzip2 file is damaged near byte 0" in capsys.readouterr().err


def test_an_empty_bzip2_file_is_an_empty_log(tmp_path: Path) -> None:
    log = tmp_path / "train.log.bz2"
    log.write_bytes(bz2.compress(b""))
    assert _read(log) == b""


@pytest.mark.parametrize(
    "text",
    [
        _LOG.encode("latin-1", "replace") * 9,
        "GPU に障害が発生しました\n".encode("shift-jis") * 99,
        "训练已停止\n".encode("gb18030") * 99,
        "\x1b[31m 50%|█████     | 5/10\r".encode() * 99,
        b"step 1\x01\x02\n" + b"all is well\n" * 99,
        b"BZh is the beginning of a word\n",
        b"]\n",
    ],
    ids=["latin-1", "shift-jis", "gb18030", "progress bar", "stray bytes", "BZh", "bracket"],
)
def test_text_with_odd_bytes_is_read_as_it_is(text: bytes, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(text)
    assert _read(log) == text


def test_standard_input_is_unpacked_however_slowly_it_comes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as sink:
        sink.write(lzma.compress(_LOG.encode()))
    with io.TextIOWrapper(io.BufferedReader(_OneByOne(reader))) as source:
        monkeypatch.setattr(sys, "stdin", source)
        assert main(["classify"]) == 0
        monkeypatch.undo()
    assert "1 finding in 3 lines of standard input" in capsys.readouterr().out


class _OneByOne(io.FileIO):
    @override
    def readinto(self, buffer: Buffer) -> int | None:
        return super().readinto(memoryview(buffer)[:1])
