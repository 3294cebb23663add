"""Bytes of a log become lines, however they arrive."""

from nodeagent.detect.log_lines import MAX_LINE_BYTES, LineCutter


def test_lines_do_not_depend_on_how_the_bytes_arrive() -> None:
    text = b"one\ntwo \xff\xfe\r\n\nlast"
    for size in (1, 2, 3, 100):
        lines = LineCutter()
        found: list[bytes] = []
        for start in range(0, len(text), size):
            found += lines.feed(text[start : start + size])
        assert found == [b"one", b"two \xff\xfe", b""]
        assert lines.flush() == [b"last"]
        assert lines.flush() == []


def test_long_line_loses_its_end_and_the_next_line_is_whole() -> None:
    lines = LineCutter()
    found: list[bytes] = []
    for _ in range(9):
        found += lines.feed(b"x" * 10_000)
    found += lines.feed(b"\nnext\n")
    assert found == [b"x" * MAX_LINE_BYTES, b"next"]
