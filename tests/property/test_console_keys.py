"""The console under random keys, clicks, sizes, views and connections: it goes on, and shows text.

A key may come before Textual has laid out what it is for, a view while a dialog is open, a size
that is too small while a list is filtered: nobody writes all of these down one by one.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from string import ascii_letters, digits
from typing import Final

import pytest
from hypothesis import given, note, strategies as st
from pydantic import JsonValue
from textual.errors import NoWidget
from textual.pilot import OutOfBounds

from console.command_registry import COMMANDS
from console.viewmodel.console_state import LinkPhase
from console.viewmodel.drawing.glyphs import ASCII, UNICODE
from controller.api.views import ClusterView
from controller.api.wire import Command, ReadEvidence, Reply
from tests.console.bench import Bench, console
from tests.console.test_hostile_strings import HOSTILE, filled, is_printable, seen, told
from tests.console.test_playback import past
from tests.fakes import cluster_views
from tests.fakes.examples import examples

NUM_STEPS: Final = 60
MOVES: Final = [
    "up",
    "down",
    "left",
    "right",
    "enter",
    "escape",
    "tab",
    "shift+tab",
    "home",
    "end",
    "pageup",
    "pagedown",
    "space",
    "backspace",
    "slash",
]
OTHERS: Final = sorted(
    {key for command in COMMANDS for key in command.key.split(",")}
    | {*ascii_letters, *digits, "ctrl+a", "ctrl+u", "ctrl+w", "delete", "plus", "minus"}
)
WIDTHS: Final = (10, 20, 60, 79, 80, 120, 200)
HEIGHTS: Final = (3, 5, 16, 24, 60)
VIEWS: Final[tuple[Callable[[], ClusterView], ...]] = (
    cluster_views.calm,
    cluster_views.waiting,
    cluster_views.asking,
    cluster_views.healed,
    cluster_views.parking_task,
)


def some_view(source: random.Random) -> ClusterView:
    """Return a view: of a fault or none, with rows missing, hostile words, or of the past."""
    view = source.choice(VIEWS)()
    if source.random() < 0.25:
        hostile = filled(view, HOSTILE[source.choice(sorted(HOSTILE))])
        assert isinstance(hostile, ClusterView)
        view = hostile
    for rows in ("nodes", "tasks", "incidents", "plans"):
        if source.random() < 0.2:
            kept = [row for row in getattr(view, rows) if source.random() < 0.5]
            view = view.model_copy(update={rows: kept})
    if source.random() < 0.2:
        view = view.model_copy(update={"automation_stopped": "9 nodes lost"})
    return past(view) if source.random() < 0.15 else view


def some_answer(source: random.Random, command: Command) -> Reply | None:
    """Return the controller's answer to an order or a question; it may be late or a refusal."""
    words = told(HOSTILE[source.choice(sorted(HOSTILE))]) if source.random() < 0.3 else "done"
    if source.random() < 0.1:
        return None
    is_ok = source.random() < 0.8
    is_asked = is_ok and isinstance(command, ReadEvidence)
    evidence: list[JsonValue] = [seen(words) for _ in range(source.randrange(3))]
    data: dict[str, JsonValue] = {"evidence": evidence} if is_asked else {}
    return Reply(request_id=command.request_id, is_ok=is_ok, message=words, data=data)


async def step(bench: Bench, source: random.Random) -> None:
    """Do one thing to the console."""
    match source.random():
        case chance if chance < 0.72:
            key = source.choice(MOVES if source.random() < 0.4 else OTHERS)
            note(f"key {key}")
            await bench.pilot.press(key)
        case chance if chance < 0.80:
            note("view")
            bench.receive(some_view(source))
        case chance if chance < 0.86:
            note("time")
            bench.now += source.choice((0.1, 0.5, 30.0, 1000.0))
        case chance if chance < 0.90:
            phase = source.choice(list(LinkPhase))
            note(f"connection {phase}")
            bench.change_link(phase, told(HOSTILE[source.choice(sorted(HOSTILE))]))
        case chance if chance < 0.94:
            size = source.choice(WIDTHS), source.choice(HEIGHTS)
            note(f"size {size}")
            await bench.pilot.resize_terminal(*size)
        case _:
            width, height = bench.app.size
            at = source.randrange(width), source.randrange(height)
            note(f"click {at}")
            with suppress(OutOfBounds, NoWidget):
                await bench.pilot.click(offset=at, times=source.choice((1, 2)))


async def walk(seed: int) -> None:
    """Run a console through ``NUM_STEPS`` things that ``seed`` draws."""
    source = random.Random(seed)
    async with console(
        some_view(source),
        *cluster_views.log(),
        size=(source.choice((60, 80, 120, 200)), source.choice((16, 24, 60))),
        is_armed=source.random() < 0.7,
        owns_demo=source.random() < 0.3,
        glyphs=source.choice((ASCII, UNICODE)),
    ) as bench:
        bench.source.answer = lambda command: some_answer(source, command)
        with pytest.MonkeyPatch.context() as patch:
            for leaves in ("end", "suspend_console", "export"):
                patch.setattr(bench.app, leaves, lambda *_: None)
            for _ in range(NUM_STEPS):
                await step(bench, source)
                bench.app.tick(is_forced=True)
                await bench.pilot.pause()
                assert is_printable(bench.screen)
                assert bench.app.is_running
            await go_back(bench)
        assert bench.app.screen_stack == [bench.app.overview]


async def go_back(bench: Bench) -> None:
    """Leave all that is open, in a terminal that has room."""
    await bench.pilot.resize_terminal(80, 24)
    bench.change_link(LinkPhase.LIVE)
    bench.receive(cluster_views.calm())
    for _ in range(10):
        bench.now += 1.0  # a dialog takes no key at first
        bench.app.tick(is_forced=True)
        await bench.press("escape")


@given(st.integers(0, 2**32))
@examples(48)
def test_no_keys_clicks_sizes_and_views_end_the_console(seed: int) -> None:
    asyncio.run(walk(seed))
