"""Tables for people: in the widest form that fits, never cut."""

import errno
import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from controller.printing import is_of_output, plain_console, print_table

EXAMPLE = Path(__file__).parents[2] / "examples" / "plan" / "128-gpus.json"
HEADS = ("task", "weighted FLOP/s", "layout")
ROWS = [("gpt-7b-pretraining", "1.125e+16", "tp1 pp1 dp16"), ("[/b] eval", "", "tp1 pp1 dp8")]


def printed(width: int) -> str:
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    print_table(console, HEADS, ROWS, numbers=(1,), title="all [of] it")
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [200, 54, 53, 50, 30])
def test_no_cell_is_cut_whatever_the_width(width: int) -> None:
    text = printed(width)
    assert max(map(len, text.splitlines())) <= width
    assert all(cell in text for row in ROWS for cell in row)
    assert "…" not in text
    assert "all [of] it" in text


def test_with_enough_room_a_head_is_one_line_and_with_less_its_words_are_below_each_other() -> None:
    assert " weighted FLOP/s " in printed(200)
    assert " weighted FLOP/s " not in printed(52)
    assert "━" in printed(52)


def test_a_row_that_fits_no_table_becomes_lines_without_those_that_are_empty() -> None:
    assert [line.rstrip() for line in printed(40).splitlines()] == [
        "all [of] it",
        "task gpt-7b-pretraining",
        "weighted FLOP/s  1.125e+16",
        "layout           tp1 pp1 dp16",
        "task [/b] eval",
        "layout  tp1 pp1 dp8",
    ]


def test_in_a_pipe_lines_are_as_long_as_they_want_to_be(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    plain_console().print("word " * 100 + "end")
    assert capsys.readouterr().out.count("\n") == 1
    monkeypatch.setenv("COLUMNS", "60")
    plain_console().print("word " * 100 + "end")
    assert capsys.readouterr().out.count("\n") > 5


def test_what_is_printed_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    console = plain_console()
    console.print("a\x1b[31m\nb :smile:")
    print_table(console, ("task",), [("a\x1b[31m\nb :smile:",)])
    assert capsys.readouterr().out.count("a\\x1b[31m\\nb :smile:") == 2


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_full_disk_behind_standard_output_is_one_line(form: list[str]) -> None:
    words = [sys.executable, "-m", "controller.cli", "plan", "solve", str(EXAMPLE), *form]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    told = "unicron plan: standard output: no space left on device\n"
    assert (done.returncode, done.stderr) == (2, told)


def test_an_error_about_a_file_is_not_one_of_standard_output() -> None:
    assert is_of_output(OSError(errno.ENOSPC, "no space left on device"))
    assert not is_of_output(OSError(errno.ENOSPC, "no space left on device", "report.html"))
    assert not is_of_output(OSError(errno.EACCES, "permission denied"))
