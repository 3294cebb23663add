"""Lines of ranks and controller in one list: their times, their order, and each of them once."""

from typing import Any

from hypothesis import given, strategies as st

from console.viewmodel.drawing.glyphs import ASCII
from console.viewmodel.drawing.text import cells_wide
from console.viewmodel.log_book import (
    MOST_ENTRIES,
    LogBook,
    by_source,
    moment_in,
    without_time,
)
from console.viewmodel.log_picture import LogWindow, log_rows, moved, wanted
from controller.api.views import LogLevel, LogLine
from tests.fakes.cluster_views import STARTED_WALL_S

NOW = STARTED_WALL_S + 500


def part(rank: int, text: str, end: int, *, name: str = "f", begin: int = 0) -> dict[str, Any]:
    return {
        "rank": rank,
        "node": f"n{rank}",
        "name": name,
        "begin": begin,
        "end": end,
        "text": text,
    }


def texts(book: LogBook) -> list[str]:
    return [f"{entry.source} {entry.text}" for entry in book.entries]


def test_a_time_at_the_begin_of_a_line_is_read_in_many_forms() -> None:
    at = STARTED_WALL_S + 100.25
    for text in (
        "2025-12-31T14:01:40.250Z INFO x", "2025-12-31 14:01:40,250 x", "[2025-12-31 14:01:40.25] x",
        "2025-12-31T15:01:40.250+01:00 x", "2025-12-31 14:01:40.250000 x",
    ):  # fmt: skip
        assert moment_in(text) == at, text
    assert without_time("2025-12-31T14:01:40.250Z INFO x") == "INFO x"
    for text in ("", "loss 2.5", "2025-13-31T14:01:40Z x", "14:01:40 x", "2025-12-31"):
        assert moment_in(text) is None


def test_sources_are_merged_by_time_and_a_traceback_stays_together() -> None:
    book = LogBook()
    book.add_part(
        part(
            0,
            "2025-12-31T14:00:02Z ERROR boom\nTraceback:\n  ValueError\n2025-12-31T14:00:09Z end\n",
            90,
        ),
        NOW,
    )
    book.add_part(part(1, "2025-12-31T14:00:05Z fine\n", 30), NOW)
    line = LogLine(seq=1, at=3.0, level=LogLevel.ERROR, source="gpt-a", text="rank 0 raised")
    book.add_events([line], STARTED_WALL_S)
    book.add_events([line], STARTED_WALL_S)
    assert texts(book) == [
        "0 2025-12-31T14:00:02Z ERROR boom",
        "0 Traceback:",
        "0   ValueError",
        "events gpt-a: rank 0 raised",
        "1 2025-12-31T14:00:05Z fine",
        "0 2025-12-31T14:00:09Z end",
    ]
    assert [len(lines) for lines in by_source(book.entries).values()] == [4, 1]


@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=9)), st.data()
)
def test_however_output_is_cut_each_line_comes_once(lines: list[str], data: st.DataObject) -> None:
    text, book, begin = "".join(f"{line}\n" for line in lines), LogBook(), 0
    while begin < len(text):
        end = data.draw(st.integers(begin + 1, len(text)))
        book.add_part(part(0, text[begin:end], end, begin=begin), NOW)
        begin = end
    assert [entry.text for entry in book.entries] == lines
    assert not lines or book.after[0].end == len(text)


def test_the_first_line_of_a_part_from_the_middle_of_a_file_is_left_out() -> None:
    book = LogBook()
    book.add_part(part(0, "half of a line\nwhole\n", 900, begin=880), NOW)
    assert texts(book) == ["0 whole"]


def test_a_new_process_has_a_new_file_and_the_rest_of_the_old_line_is_gone() -> None:
    book = LogBook()
    book.add_part(part(0, "one\nunfini", 10), NOW)
    book.add_part(part(0, "two\n", 4, name="g"), NOW)
    assert texts(book) == ["0 one", "0 two"]


def test_why_a_rank_can_t_be_read_is_shown_until_it_can() -> None:
    book = LogBook()
    book.add_part({"rank": 3, "node": "n3", "error": "its node does not answer"}, NOW)
    head = "".join(
        each.text for each in log_rows(book, LogWindow(), "gpt-a", (100, 5), ASCII)[0].spans
    )
    assert "rank 3: its node does not answer" in head
    book.add_part(part(3, "back\n", 5), NOW)
    assert book.errors == {}


def test_old_lines_go_and_are_counted() -> None:
    book = LogBook()
    text = "".join(f"{n}\n" for n in range(MOST_ENTRIES + 5000))
    book.add_part(part(0, text, len(text)), NOW)
    assert book.num_dropped + len(book.entries) == MOST_ENTRIES + 5000
    assert book.entries[-1].text == str(MOST_ENTRIES + 4999)
    assert book.num_dropped > 0


def test_the_window_stays_on_its_line_while_others_come() -> None:
    book = LogBook()
    book.add_part(part(0, "".join(f"line {n}\n" for n in range(50)), 1), NOW)
    anchor = moved(wanted(book, ""), None, -10, 5)
    assert anchor is not None
    assert anchor.text == "line 39"
    book.add_part(part(1, "2025-12-31T14:00:00Z much earlier\nx\n", 1), NOW + 9)
    rows = log_rows(book, LogWindow(anchor=anchor), "t", (100, 6), ASCII)
    assert "line 39" in "".join(each.text for each in rows[-1].spans)
    assert moved(wanted(book, ""), anchor, 1000, 5) is None
    top = moved(wanted(book, ""), anchor, -1000, 5)
    assert top is not None
    assert wanted(book, "")[4] == top
    assert [each.text for each in wanted(book, "r0 line !4 !3 !2 !1")] == [
        f"line {n}" for n in (0, 5, 6, 7, 8, 9)
    ]


@given(st.integers(30, 200), st.integers(2, 30), st.text(max_size=300))
def test_rows_fit_whatever_ranks_write(width: int, height: int, text: str) -> None:
    book = LogBook()
    book.add_part(part(0, text + "\n", 1), NOW)
    rows = log_rows(book, LogWindow(), text, (width, height), ASCII)
    assert len(rows) <= height
    assert all(cells_wide(row.spans) <= width for row in rows)
    assert "\x1b" not in "".join(each.text for row in rows for each in row.spans)
