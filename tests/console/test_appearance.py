"""The console in other colours, and with an operator's own keys."""

from rich.color import Color

from console.configuration import key_map
from console.dialogs.order import OrderDialog
from console.themes.colours import THEMES
from console.viewmodel.drawing.text import Ground
from tests.console.bench import console
from tests.fakes import cluster_views


async def test_a_theme_colours_the_ground_and_the_text() -> None:
    async with console(cluster_views.calm(), theme="light") as bench:
        ground = THEMES["light"].grounds[Ground.PANEL]
        assert bench.app.screen.styles.background.hex.lower() == ground
        strips = bench.app.screen._compositor.render_strips()
        used = {each.style.bgcolor for strip in strips for each in strip if each.style}
        assert Color.parse(ground) in used
        assert Color.parse(THEMES["dark"].grounds[Ground.PANEL]) not in used


async def test_own_keys_run_commands_and_stand_on_bar_help_and_screens() -> None:
    keys = key_map("vim", {"node.drain": "V", "panel.filter": "f"})
    async with console(cluster_views.calm(), size=(160, 48), is_armed=True, keys=keys) as bench:
        await bench.press("down")
        await bench.settle()
        assert "<V>drain" in bench.screen
        assert "<f>filter" in bench.screen
        await bench.press("D")
        assert not isinstance(bench.app.screen, OrderDialog)
        await bench.press("enter")
        assert "<V>drain" in bench.screen
        await bench.press("V", opens_dialog=True)
        assert "Drain n1?" in bench.screen
        await bench.press("escape", "escape", "question_mark", opens_dialog=True)
        await bench.press("pagedown")
        assert "pgdn, ^d, ^f" in bench.screen
