"""Prefixes and times of lines."""

import pytest

from profiles.faults.lines import body_of, moment_of, without_colours


@pytest.mark.parametrize(
    "prefix",
    [
        "[rank3]: ", "[default5]:", "3: ", "node-1: ", "2025-12-09T18:44:10.771020933Z ",
        "2025-02-22 05:12:09.664 [run-88/train/4 (pid 3171)] ", "(train_step pid=4471) ",
        "Aug 05 23:31:48 sw-node-42 python3[77]: ", "[1,5]<stderr>:", "[ 12.33] ",
        "ERROR 09-18 00:55:15 [v1/engine/core.py:718] ", "E1119 03:08:57.692256 77 a.cpp:15] ",
        "kern  :warn  : 2025-03-09T13:20:51,448102+00:00 ", "stderr F ",
    ],
)  # fmt: skip
def test_prefixes_are_left_out_of_the_body(prefix: str) -> None:
    assert body_of(f"{prefix}KeyError: 'x'") == "KeyError: 'x'"


@pytest.mark.parametrize(
    "text", ["KeyError: 'x'", "jinja2.exceptions.UndefinedError: x", "[Errno 28] No space left"]
)
def test_what_is_no_prefix_stays(text: str) -> None:
    assert body_of(text) == text


def test_moments_of_one_clock_can_be_compared() -> None:
    early = moment_of("[rank5]:[E505 02:20:33.234601070 ProcessGroupNCCL.cpp:632] x")
    late = moment_of("2025-05-05 02:20:34,100 x")
    assert early
    assert late
    assert early.clock == late.clock == "calendar"
    assert early.at_s < late.at_s


def test_times_since_boot_are_another_clock() -> None:
    moment = moment_of("[12077.338191] pcieport 0000:80:03.1: x")
    assert moment
    assert (moment.clock, moment.at_s) == ("uptime", 12077.338191)


def test_a_line_without_a_time_has_none() -> None:
    assert moment_of("RuntimeError: x") is None


def test_colours_are_left_out() -> None:
    assert without_colours("\x1b[31mred\x1b[0m text") == "red text"
