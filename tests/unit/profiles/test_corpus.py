"""Which text is trained on, and where a sample of it begins."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from profiles.corpus import DataError, check_corpus, load_corpus, read_corpus, sample_offset


def test_empty_path_is_the_reference_text_of_cpython() -> None:
    corpus = load_corpus("", seq_length=1024, vocab_size=256)
    assert b"statement" in corpus
    assert len(corpus) > 100_000


def test_file_is_read_as_bytes(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"\xff\x00any bytes")
    assert load_corpus(str(path), seq_length=8, vocab_size=256) == b"\xff\x00any bytes"


def test_missing_file_is_named_with_its_mend(tmp_path: Path) -> None:
    path = str(tmp_path / "absent")
    with pytest.raises(DataError, match=f"data_path {path}: No such file.*leave data_path empty"):
        read_corpus(path)
    with pytest.raises(DataError, match="Is a directory"):
        read_corpus(str(tmp_path))


@pytest.mark.parametrize(("text", "words"), [(b"", "is empty"), (b"12345678", "has 8 bytes")])
def test_text_shorter_than_a_sample_is_refused(text: bytes, words: str) -> None:
    with pytest.raises(DataError, match=f"data_path f {words}, but .* seq_length 8 needs 9"):
        check_corpus(text, "f", seq_length=8, vocab_size=256)


def test_text_of_exactly_one_sample_is_enough() -> None:
    check_corpus(b"123456789", "f", seq_length=8, vocab_size=256)


def test_byte_outside_the_vocabulary_is_refused() -> None:
    check_corpus(b"\x7f" * 9, "f", seq_length=8, vocab_size=128)
    with pytest.raises(DataError, match="holds the byte 128, but vocab_size is 128"):
        check_corpus(b"\x80" * 9, "f", seq_length=8, vocab_size=128)


def test_offsets_never_change() -> None:
    """Pinned: another formula would silently change every task's data after an update."""
    offsets = [
        sample_offset(1_000_000, seed=1, iteration=iteration, micro_batch=0, sample=0)
        for iteration in (1, 2, 3)
    ]
    assert offsets == [846093, 362658, 438769]


@given(st.integers(1, 10**9), st.integers(), st.integers(1), st.integers(0, 99), st.integers(0, 9))
def test_offset_lies_in_range(n: int, seed: int, iteration: int, index: int, sample: int) -> None:
    offset = sample_offset(n, seed=seed, iteration=iteration, micro_batch=index, sample=sample)
    assert 0 <= offset < n


def test_places_differ_in_every_coordinate() -> None:
    offsets = {
        sample_offset(10**12, seed=s, iteration=i, micro_batch=m, sample=k)
        for s in (1, 2)
        for i in (1, 11)
        for m in (0, 1)
        for k in (0, 1)
    }
    assert len(offsets) == 16
