"""Recordings of a terminal: the frames come back from them."""

import json
import re
from xml.etree import ElementTree as ET

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tools.moving_picture import Frame, Run, asciicast, moving_svg, rows_of, without_pauses

HEAD = (Run("UNICRON ", "#ffffff", "#000000", True), Run("live <&>", "#00ff00"))
CALM = Frame(0.0, (HEAD, (Run("n1 ok"),)))
LOST = Frame(1.0, (HEAD, (Run("n1 lost", "#ff0000"),)))
HEALED = Frame(9.0, (HEAD, (Run("n1 out"),)))
FRAMES = [CALM, LOST, Frame(1.5, LOST.rows), HEALED]
SIZE = (16, 2)
SVG = "{http://www.w3.org/2000/svg}"


def test_frames_that_change_nothing_and_long_pauses_are_left_out() -> None:
    kept = without_pauses(FRAMES, 2.0)
    assert [(frame.at, frame.rows) for frame in kept] == [
        (0.0, CALM.rows), (1.0, LOST.rows), (3.5, HEALED.rows),
    ]  # fmt: skip


def test_an_asciicast_has_each_change_and_no_more() -> None:
    head, *events = [json.loads(line) for line in asciicast(FRAMES[:2], SIZE, "t")]
    assert (head["version"], head["width"], head["height"]) == (2, 16, 2)
    first, second, last = events
    assert "UNICRON" in first[2]
    assert second[:2] == [1.0, "o"]
    assert second[2] == "\x1b[2;1H\x1b[0;38;2;255;0;0mn1 lost"
    assert last[0] > 1.0


def test_an_svg_has_each_row_once_and_each_frame_in_its_time() -> None:
    text = moving_svg(without_pauses(FRAMES, 2.0), SIZE, "a node <lost>", "#101010")
    root = ET.fromstring(text)
    rows = root.findall(f"{SVG}defs/{SVG}g")
    assert ["".join(row.itertext()) for row in rows] == [
        "UNICRON live <&>", "n1 ok", "n1 lost", "n1 out",
    ]  # fmt: skip
    frames = root.findall(f"{SVG}g")
    assert [[use.get("href") for use in frame] for frame in frames] == [
        ["#r0", "#r1"], ["#r0", "#r2"], ["#r0", "#r3"],
    ]  # fmt: skip
    begins = re.findall(r"([\d.]+)%{visibility:visible}", text)
    assert [float(each) for each in begins[:2]] == [0.0, 13.333]
    assert root.findtext(f"{SVG}title") == "a node <lost>"


def test_what_textual_has_drawn_becomes_runs() -> None:
    style = Style(color="#ff0000", bgcolor="#000000", bold=True)
    strip = Strip([Segment("a", style), Segment("b", Style(reverse=True) + style), Segment("c")])
    assert rows_of([strip]) == (
        (
            Run("a", "#ff0000", "#000000", True),
            Run("b", "#000000", "#ff0000", True),
            Run("c"),
        ),
    )
