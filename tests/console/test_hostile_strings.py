"""Hostile words of nodes, ranks and tasks: no crash, no markup, no escape on the screen."""

from enum import Enum

import pytest
from pydantic import BaseModel, JsonValue
from textual.command import CommandList

from console.screens.detail_screen import DetailScreen
from controller.api.views import ClusterView, LogLevel, LogLine
from controller.api.wire import Reply
from tests.console.bench import console
from tests.fakes import cluster_views

HOSTILE = {
    "escapes": "\x1b[31mred\x1b[0m \x1b]0;owned\x07 \x1b]52;c;aGk=\x1b\\",
    "markup": "[b]bold[/b] [/] [@click=app.quit]x[/] gpu[",
    "long": "x" * 90_000,
    "odd": "half \ud800 pair \u202etxt.exe\u202c a\u200bb\u2060c\ufeffd",
    "lines": "one\ntwo\r\nthree\tfour\x00five",
    "wide": "節點" * 40,
    "empty": "",
}


def filled(value: object, text: str) -> object:
    """Return a view with ``text`` in every field that holds text."""
    if isinstance(value, BaseModel):
        changes = {name: filled(getattr(value, name), text) for name in type(value).model_fields}
        return value.model_copy(update=changes)
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return text
    if isinstance(value, list):
        return [filled(each, text) for each in value]
    if isinstance(value, dict):
        return {
            (text if isinstance(key, str) else key): filled(each, text)
            for key, each in value.items()
        }
    return value


def is_printable(screen: str) -> bool:
    return all(
        line.isprintable() and not any(0x202A <= ord(sign) <= 0x2069 for sign in line)
        for line in screen.splitlines()
    )


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_text_in_every_field_is_shown_and_does_nothing(name: str) -> None:
    text = HOSTILE[name]
    view = filled(cluster_views.waiting(), text)
    assert isinstance(view, ClusterView)
    lines = [
        LogLine(seq=number, at=1.0, level=level, source=text, text=text)
        for number, level in enumerate(LogLevel, 1)
    ]
    async with console(view, *lines, size=(160, 40), is_armed=True) as bench:
        bench.source.answer = lambda command: Reply(
            request_id=command.request_id,
            is_ok=True,
            message=told(text),
            data={"evidence": [seen(text)]},
        )
        assert is_printable(bench.screen)
        for panel in ("nodes", "tasks", "incidents"):
            bench.app.overview.query_one(f"#{panel}").focus()
            await bench.press("down", "enter")
            await bench.settle()
            assert is_printable(bench.screen)
            if isinstance(bench.app.screen, DetailScreen):
                await bench.press("escape")
        bench.app.overview.query_one("#nodes").focus()
        await bench.press("down")
        for key in ("A", "C", "D", "I", "t", "w", "colon", "a", "i", "l"):
            await bench.press(key, opens_dialog=True)
            assert is_printable(bench.screen)
            if key == "w":
                await bench.press("enter")
                await bench.settle()
                assert is_printable(bench.screen)
            await bench.press("escape")
            await bench.settle()
        assert bench.source.sent == []


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_reasons_do_nothing_in_the_palette(name: str) -> None:
    view = filled(cluster_views.waiting(), HOSTILE[name])
    assert isinstance(view, ClusterView)
    async with console(view, size=(200, 60)) as bench:
        await bench.press("ctrl+p")
        found = bench.app.screen.query_one(CommandList)
        await bench.until(lambda: found.option_count > 20)
        await bench.pilot.pause(0.05)
        assert "not now" in bench.screen
        assert is_printable(bench.screen)


def told(text: str) -> str:
    """Return a text as a message can hold it: without a surrogate."""
    return text.encode(errors="replace").decode()


def seen(text: str) -> dict[str, JsonValue]:
    """Return a piece of evidence as the controller sends it."""
    words = dict.fromkeys(("kind", "node", "summary", "detail", "log"), told(text))
    return {**words, "at": 1.0, "observed_at": 1.0}


def test_the_check_finds_an_escape() -> None:
    assert not is_printable("a\x1b[31mb")
    assert not is_printable("a\u202eb")
    assert is_printable("節點 ▲ ok")
