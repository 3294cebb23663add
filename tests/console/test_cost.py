"""What a key and a tick cost: they follow what has changed, not the size of the cluster."""

import time

import pytest
from textual._compositor import Compositor

from console.widgets.table_panels import TablePanel
from controller.api.views import ClusterView
from tests.console.bench import Bench, console
from tests.fakes import cluster_views

SIZE = (200, 60)
NUM_NODES = 256
NUM_KEYS = 24


def large() -> ClusterView:
    """Return a calm cluster of 256 nodes."""
    calm = cluster_views.calm()
    nodes = [
        calm.nodes[number % len(calm.nodes)].model_copy(update={"node": f"n{number + 1}"})
        for number in range(NUM_NODES)
    ]
    return calm.model_copy(update={"nodes": nodes})


async def cost_of_keys(bench: Bench) -> float:
    """Return the processor's seconds of moving the focus through all panels, a few times."""
    began_s = time.process_time()
    for _ in range(NUM_KEYS):
        await bench.press("tab")
    return time.process_time() - began_s


async def test_moving_the_focus_paints_headings_and_not_the_screen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with console(large(), size=SIZE) as bench:
        await bench.press("tab")
        num_whole = num_rows = 0
        paint_whole, paint_rows = Compositor.render_full_update, Compositor.render_partial_update

        def whole(compositor: Compositor, simplify: bool = False) -> object:
            nonlocal num_whole
            num_whole += 1
            return paint_whole(compositor, simplify=simplify)

        def rows(compositor: Compositor) -> object:
            nonlocal num_rows
            num_rows += 1
            return paint_rows(compositor)

        monkeypatch.setattr(Compositor, "render_full_update", whole)
        monkeypatch.setattr(Compositor, "render_partial_update", rows)
        for _ in range(4):
            await bench.press("tab")
        await bench.until(lambda: num_rows >= 4)
        assert num_whole == 0


async def test_a_table_is_made_once_for_each_view(monkeypatch: pytest.MonkeyPatch) -> None:
    async with console(large(), size=SIZE) as bench:
        panel = bench.app.overview.query_one("#nodes", TablePanel)
        draw, num_made = panel._draw_table, 0

        def counted(*arguments: object) -> object:
            nonlocal num_made
            num_made += 1
            return draw(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(panel, "_draw_table", counted)
        panel.focus()
        await bench.press("down", "down", "tab", "shift+tab", "up")
        assert num_made == 0
        await bench.show(large().model_copy(update={"now": 101.0}))
        assert num_made >= 1
        num_made = 0
        await bench.press("/", "n", "7", "enter")
        assert 1 <= num_made <= 4
        assert "n7 " in bench.screen
        assert "n8 " not in bench.screen


async def test_a_key_costs_about_as_much_in_a_cluster_64_times_as_large() -> None:
    async with (
        console(cluster_views.calm(), size=SIZE) as small,
        console(large(), size=SIZE) as many,
    ):
        await cost_of_keys(small)
        await cost_of_keys(many)
        pairs = [(await cost_of_keys(small), await cost_of_keys(many)) for _ in range(3)]
    assert min(large_s / small_s for small_s, large_s in pairs) < 2.0, pairs
