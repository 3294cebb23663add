"""A console that is view only: no key and no command of it changes a cluster."""

import pytest

from console.client.source import Inbox, NoReplyError, ViewOnlySource
from console.command_registry import COMMANDS, can_suspend
from console.viewmodel.console_state import State
from controller.api.wire import Command
from tests.console.bench import FakeSource, console
from tests.fakes import cluster_views
from tests.unit.api.test_wire import COMMANDS as WIRE_COMMANDS

QUESTIONS = {
    "ask_what_if",
    "describe_cluster",
    "move_playback",
    "read_evidence",
    "read_history",
    "read_logs",
}


async def test_no_key_sends_anything_and_armed_mode_is_refused() -> None:
    keys = [
        each.key.split(",")[0]
        for each in COMMANDS
        if each.id not in ("app.quit", "app.suspend") and each.id != "panel.filter"
    ]
    async with console(cluster_views.waiting(), size=(160, 48), is_view_only=True) as bench:
        await bench.press("ctrl+t")
        assert "this console is view only" in bench.last_line
        assert "VIEW ONLY" in bench.screen
        assert "ctrl+t, then" not in bench.screen
        for key in keys:
            await bench.press(key, opens_dialog=True)
            await bench.press("enter", "escape", "escape")
        assert not bench.app.state.is_armed
        assert bench.source.sent == []


async def test_a_console_that_starts_armed_is_not_if_it_is_view_only() -> None:
    async with console(cluster_views.calm(), is_armed=True, is_view_only=True) as bench:
        assert not bench.app.state.is_armed


@pytest.mark.parametrize("command", WIRE_COMMANDS, ids=lambda command: command.kind)
async def test_only_questions_leave_it(command: Command) -> None:
    source = FakeSource()
    guarded = ViewOnlySource(source)
    if command.kind in QUESTIONS:
        assert (await guarded.send(command)).is_ok
        assert [*source.sent, *source.asked] == [command]
        return
    with pytest.raises(NoReplyError, match="view only: nothing was sent"):
        await guarded.send(command)
    assert [*source.sent, *source.asked] == []
    await guarded.run(Inbox())


def test_a_browser_has_no_shell_to_go_back_to() -> None:
    assert can_suspend(State(is_in_browser=True)) == "there is no shell in a browser"
    assert can_suspend(State()) is True
