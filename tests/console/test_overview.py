"""The overview as text, compared with golden files in ``golden/``.

``UNICRON_REWRITE_GOLDEN=1 pytest tests/console/test_overview.py`` writes them anew; look at the
difference before committing it.
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from console.viewmodel.console_state import LinkPhase
from console.viewmodel.drawing.glyphs import ASCII
from controller.api.views import ClusterView
from tests.console.bench import Bench, console
from tests.fakes import cluster_views

GOLDEN = Path(__file__).parent / "golden"
SIZES = [(60, 16), (80, 24), (160, 48)]
SCENES = {
    "calm": cluster_views.calm(),
    "waiting": cluster_views.waiting(),
    "healed": cluster_views.healed(),
}


def check(name: str, screen: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UNICRON_REWRITE_GOLDEN"):
        path.write_text(screen + "\n")
    assert screen + "\n" == path.read_text()


def assert_fits(screen: str, size: tuple[int, int]) -> None:
    lines = screen.splitlines()
    assert len(lines) == size[1]
    assert max(len(line) for line in lines) <= size[0]


CASES = [(scene, size) for scene in SCENES for size in SIZES]
CASES += [("waiting", (120, 40)), ("waiting", (200, 60))]


@pytest.mark.parametrize(("scene", "size"), CASES, ids=str)
async def test_overview_looks_as_agreed(scene: str, size: tuple[int, int]) -> None:
    async with console(SCENES[scene], *cluster_views.log(40), size=size) as bench:
        assert_fits(bench.screen, size)
        check(f"{scene}-{size[0]}x{size[1]}", bench.screen)


async def test_ascii_overview_is_ascii() -> None:
    async with console(SCENES["waiting"], *cluster_views.log(), glyphs=ASCII) as bench:
        assert bench.screen.isascii()
        check("waiting-80x24-ascii", bench.screen)


async def test_disconnected_overview_keeps_the_last_state_with_its_age() -> None:
    async with console(SCENES["waiting"], *cluster_views.log(), is_armed=True) as bench:
        await bench.link(LinkPhase.LOST, "the controller closed the connection")
        await bench.wait(12)
        assert "data 12 s old" in bench.screen.splitlines()[0]
        check("disconnected-80x24", bench.screen)


async def test_every_panel_is_faded_while_disconnected() -> None:
    async with console(SCENES["calm"]) as bench:
        panel = bench.app.overview.query_one("#tasks")
        before = panel.render_line(1)
        await bench.link(LinkPhase.LOST)
        after = panel.render_line(1)
        assert before.text == after.text
        assert all(part.style is not None and part.style.dim for part in after)


async def test_a_tick_without_change_repaints_nothing() -> None:
    async with console(SCENES["calm"], *cluster_views.log()) as bench:
        painted = _count_refreshes(bench)
        bench.app.tick(is_forced=True)
        assert painted == []


async def test_a_changed_task_repaints_its_row_only() -> None:
    async with console(SCENES["calm"], *cluster_views.log()) as bench:
        painted = _count_refreshes(bench)
        tasks = [SCENES["calm"].tasks[0], cluster_views.task("gpt-b", 75)]
        view = SCENES["calm"].model_copy(update={"tasks": tasks})
        await bench.show(view)
        assert painted == [("tasks", 2)]


def _count_refreshes(bench: Bench) -> list[tuple[str | None, int]]:
    """Return a list that grows by (panel, row) with every row that is painted again."""
    painted: list[tuple[str | None, int]] = []
    for widget in bench.app.overview.children:
        original = widget.refresh

        def refresh(*regions, _original=original, _id=widget.id, **options):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN002, ANN003, ANN202
            painted.extend((_id, region.y) for region in regions)
            if not regions:
                painted.append((_id, -1))
            return _original(*regions, **options)

        widget.refresh = refresh  # type: ignore[method-assign]
    return painted


async def test_waiting_screen_shows_progress_until_the_first_view() -> None:
    async with console(None, owns_demo=True, is_armed=True) as bench:
        assert "starting the demo cluster" in bench.screen
        await bench.show(SCENES["calm"])
        assert "NODES 4" in bench.screen


@pytest.mark.parametrize("field", ["[/]", "[b", "\x1b[31mred\x1b[0m", "日本語のノード", "a\u202eb"])
@pytest.mark.parametrize(
    "size", [(60, 16), pytest.param((160, 48), marks=pytest.mark.thorough)], ids=str
)
async def test_hostile_text_in_every_field_is_shown_as_text(
    field: str, size: tuple[int, int]
) -> None:
    async with console(hostile(field), *hostile_log(field), size=size, is_armed=True) as bench:
        for key in ("A", "X", "I", "question_mark"):
            await bench.press(key, opens_dialog=True)
            assert "\x1b" not in bench.screen
            assert "\u202e" not in bench.screen
            await bench.press("escape")
        assert "[b" not in field or "[b" in bench.screen


def hostile(text: str) -> ClusterView:
    """Return a cluster in which every name and every sentence is ``text``."""
    view = cluster_views.waiting()
    spoilt = view.model_dump()

    def spoil(value: object, key: str = "") -> object:
        match value:
            case dict():
                return {name: spoil(part, name) for name, part in value.items()}
            case list():
                return [spoil(part, key) for part in value]
            case str() if key not in ("condition", "phase", "state", "target"):
                return text
            case _:
                return value

    return ClusterView.model_validate(spoil(spoilt))


def hostile_log(text: str) -> list:  # type: ignore[type-arg]
    return [replace(line, source=text, text=text * 50) for line in cluster_views.log()]
