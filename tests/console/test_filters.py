"""Lists filter by typing, and the row that is acted on is always the row that is shown."""

import random

from textual.widget import Widget

from console.dialogs.order import OrderDialog
from console.screens.overview import Overview
from console.viewmodel.drawing.text import Ground
from console.viewmodel.filtering import matches
from console.widgets.table_panels import TablePanel
from console.widgets.text_panels import EventPanel
from controller.api.views import ClusterView, LogLevel, LogLine
from controller.api.wire import RunDrill
from tests.console.bench import Bench, console
from tests.fakes import cluster_views


def test_a_pattern_is_words_that_are_there_and_words_that_are_not() -> None:
    assert matches("", "anything")
    assert matches("GPT lost", "n4 lost by gpt-a")
    assert not matches("gpt !lost", "n4 lost by gpt-a")
    assert matches("gpt !", "n4 lost by gpt-a")
    assert not matches("gpt-b", "n4 lost by gpt-a")


def nodes_of(bench: Bench) -> list[str]:
    """Return the names in the rows of the nodes' panel."""
    panel = bench.app.overview.query_one("#nodes", TablePanel)
    return [line.spans[1].text.strip() for line in panel.lines[1:]]


async def test_rows_are_filtered_while_typing_and_escape_shows_all() -> None:
    async with console(cluster_views.calm(), size=(120, 40), is_armed=True) as bench:
        await bench.press("slash", *"n2q")
        assert nodes_of(bench) == []
        assert "/n2q_" in bench.screen
        assert isinstance(bench.app.screen, Overview), "q is a letter here"
        await bench.press("backspace", "enter")
        assert nodes_of(bench) == ["n2"]
        await bench.press("down")
        subject = bench.app.subject
        assert subject is not None
        assert subject.name == "n2"
        await bench.press("escape")
        assert nodes_of(bench) == ["n1", "n2", "n3", "n4"]
        subject = bench.app.subject
        assert subject is not None
        assert subject.name == "n2", "the cursor stays on its row"


async def test_nothing_is_selected_where_no_row_is_left() -> None:
    async with console(cluster_views.calm(), size=(120, 40), is_armed=True) as bench:
        await bench.press("down", "slash", *"nothing", "enter")
        assert bench.app.subject is None
        await bench.press("C")
        assert "cordon: select a node first" in bench.last_line


async def test_events_are_filtered() -> None:
    lines = [
        LogLine(seq=1, at=1.0, level=LogLevel.INFO, source="n1", text="connecting"),
        LogLine(seq=2, at=2.0, level=LogLevel.ERROR, source="n2", text="lost"),
    ]
    async with console(cluster_views.calm(), *lines, size=(120, 40)) as bench:
        bench.app.overview.query_one("#events", EventPanel).focus()
        await bench.press("slash", *"error", "enter")
        assert "connecting" not in bench.screen
        assert "lost" in bench.screen
        await bench.press("escape", "slash", *"!error", "enter")
        assert "connecting" in bench.screen
        assert "n2       lost" not in bench.screen


async def test_the_drill_menu_is_filtered_in_both_steps() -> None:
    async with console(cluster_views.calm(), size=(120, 40), is_armed=True) as bench:
        await bench.press("I", opens_dialog=True)
        await bench.press(*"lose", "enter")
        assert "Drill lose-node: which node?" in bench.screen
        await bench.press(*"n3", "enter")
        assert "Inject lose-node into node n3 on demo?" in bench.screen
        await bench.press("y", "enter")
        await bench.settle()
        assert bench.source.sent == [
            RunDrill(request_id="r1", actor="alex", drill="lose-node", node="n3")
        ]


async def test_a_filter_without_a_drill_chooses_none() -> None:
    async with console(cluster_views.calm(), size=(120, 40), is_armed=True) as bench:
        await bench.press("I", opens_dialog=True)
        await bench.press(*"no such", "enter")
        assert "Run a drill: choose a fault" in bench.screen


def selected_row(bench: Bench) -> str | None:
    """Return the name in the row that is drawn as selected."""
    panel: Widget = bench.app.overview.query_one("#nodes")
    assert isinstance(panel, TablePanel)
    rows = [line for line in panel.lines if line.ground is Ground.SELECTED]
    return rows[0].spans[1].text.strip() if rows else None


def shuffled(view: ClusterView, source: random.Random) -> ClusterView:
    """Return a view in which nodes have come, gone and changed places."""
    node = view.nodes[0]
    names = source.sample([f"n{number}" for number in range(1, 30)], source.randint(0, 25))
    nodes = [node.model_copy(update={"node": name}) for name in names]
    return view.model_copy(update={"nodes": nodes})


async def test_the_row_acted_on_is_the_row_shown_in_a_storm_of_changes() -> None:
    """120 random moves, filters, orders and views; a verb must be about the row on the screen."""
    source = random.Random(7)
    calm = cluster_views.calm()
    num_orders = 0
    async with console(calm, size=(100, 30), is_armed=True) as bench:
        for _ in range(120):
            match source.randrange(5):
                case 0:
                    await bench.press(source.choice(("up", "down", "end", "home", "pagedown")))
                case 1:
                    await bench.press("slash", source.choice("123"), "enter")
                case 2:
                    await bench.press("escape")
                case 3:
                    await bench.press(source.choice(("greater_than_sign", "less_than_sign", "r")))
                case _:
                    await bench.show(shuffled(calm, source))
            shown, subject = selected_row(bench), bench.app.subject
            assert (subject.name if subject else None) == shown
            if shown is not None and source.random() < 0.2:
                await bench.press("C")
                dialog = bench.app.screen
                assert isinstance(dialog, OrderDialog)
                assert dialog.content().title.startswith(f"Cordon {shown}?")
                await bench.show(shuffled(calm, source))
                assert dialog.content().title.startswith(f"Cordon {shown}?"), "it stays its own"
                await bench.wait(1.0)
                await bench.press("escape")
                num_orders += 1
    assert num_orders >= 3
