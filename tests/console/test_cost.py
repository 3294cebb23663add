"""What a key and a tick cost: they follow what has changed, not the size of the cluster."""

import pytest
from textual._compositor import Compositor

from console.viewmodel.reducer import Received
from console.widgets.table_panels import TablePanel
from controller.api.views import ClusterView
from controller.api.wire import Snapshot
from tests.console.bench import console
from tests.fakes import cluster_views

SIZE = (200, 60)
NUM_NODES = 256


def large() -> ClusterView:
    """Return a calm cluster of 256 nodes."""
    calm = cluster_views.calm()
    nodes = [
        calm.nodes[number % len(calm.nodes)].model_copy(update={"node": f"n{number + 1}"})
        for number in range(NUM_NODES)
    ]
    return calm.model_copy(update={"nodes": nodes})


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


async def test_the_first_view_is_shown_as_it_comes() -> None:
    """The clock stands still, so no tick is due."""
    async with console(None, size=SIZE) as bench:
        bench.app.inbox.put(Received(bench.now, Snapshot(view=cluster_views.calm())))
        await bench.until(lambda: "gpt-a" in bench.screen)


async def test_a_key_acts_on_what_has_arrived_and_shows_it_first() -> None:
    async with console(cluster_views.calm(), size=SIZE, is_armed=True) as bench:
        assert "P-2" not in bench.screen
        bench.app.inbox.put(Received(bench.now, Snapshot(view=cluster_views.waiting())))
        await bench.press("A", opens_dialog=True)
        assert "Approve plan P-2" in bench.screen
        await bench.press("escape")
        await bench.until(lambda: "Approve plan" not in bench.screen)
        assert "P-2" in bench.screen
