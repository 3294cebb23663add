"""Training text as bytes, and which bytes a sample of the global batch is.

A sample is a window of the text whose place is a pure function of (seed, iteration, micro-batch,
sample): nothing is shuffled or consumed. So every rank computes the same micro-batch, and a restart
needs no position in the data. The text is one file, or the reference text that CPython ships.
Nothing here turns bytes into tensors; ``nodeagent.rank.program.micro_batches`` does.
"""

import hashlib
from pathlib import Path
from typing import Final

NUM_BYTE_VALUES: Final = 256
_REFERENCE_NAME: Final = "the reference text of CPython (pydoc_data.topics)"


class DataError(Exception):
    """The training text can't be used. The text names the file and what mends it."""


def read_corpus(path: str) -> bytes:
    """Return the text at ``path``; an empty path means CPython's reference text.

    Raises:
        DataError: The file is missing or can't be read.
    """
    if not path:
        return _reference_text()
    try:
        return Path(path).read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise DataError(
            f"data_path {path}: {reason}; name a readable text file, or leave data_path empty for"
            " CPython's own reference text"
        ) from error


def check_corpus(corpus: bytes, path: str, *, seq_length: int, vocab_size: int) -> None:
    """Check that samples of ``seq_length`` tokens can be taken and that every byte is a token.

    Raises:
        DataError: The text is empty or too short, or the vocabulary has no room for a byte of it.
    """
    name = f"data_path {path}" if path else _REFERENCE_NAME
    # A sample needs one byte more than its tokens: the target of the last one.
    if len(corpus) < seq_length + 1:
        size = "is empty" if not corpus else f"has {len(corpus)} bytes"
        raise DataError(
            f"{name} {size}, but a sample of seq_length {seq_length} needs {seq_length + 1};"
            " use a longer file or a shorter seq_length"
        )
    if vocab_size < NUM_BYTE_VALUES and max(corpus) >= vocab_size:
        raise DataError(
            f"{name} holds the byte {max(corpus)}, but vocab_size is {vocab_size};"
            f" set vocab_size to {NUM_BYTE_VALUES}"
        )


def load_corpus(path: str, *, seq_length: int, vocab_size: int) -> bytes:
    """Read and check the text in one go. Raises ``DataError`` like both of them."""
    corpus = read_corpus(path)
    check_corpus(corpus, path, seq_length=seq_length, vocab_size=vocab_size)
    return corpus


def sample_offset(
    num_offsets: int, *, seed: int, iteration: int, micro_batch: int, sample: int
) -> int:
    """Return where a sample begins, in ``range(num_offsets)``.

    Args:
        num_offsets: Places a sample can begin at: bytes of the text minus ``seq_length``.
        seed: Seed of the task.
        iteration: Counted from 1.
        micro_batch: Index in the global batch, over all replicas.
        sample: Index in the micro-batch.
    """
    # A digest rather than Python's hash or a generator: equal on every machine and version.
    place = f"{seed}/{iteration}/{micro_batch}/{sample}".encode()
    digest = hashlib.blake2b(place, digest_size=8).digest()
    return int.from_bytes(digest, "big") % num_offsets


def _reference_text() -> bytes:
    try:
        from pydoc_data.topics import topics  # noqa: PLC0415 - 700 kB that few callers need
    except ImportError as error:
        raise DataError(
            f"{_REFERENCE_NAME} is not part of this Python installation; set data_path to a text"
            " file"
        ) from error
    # By name, so that the order of the text does not hang on the order in CPython's file.
    return "\n".join(topics[name] for name in sorted(topics)).encode()
