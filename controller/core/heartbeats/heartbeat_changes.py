"""Takes in what heartbeats have shown."""

from typing import assert_never

from controller.core.events import (
    ClockMeasured,
    HeartbeatChange,
    NodeAnswered,
    NodeFellSilent,
    RanksListed,
    RankVanished,
    StragglerFound,
    StragglerOver,
    TaskAdvanced,
    WaitingChanged,
)
from controller.core.monitoring.slowness import take_straggler, take_straggler_over, take_waiting
from controller.core.nodes.contact import fall_silent, hear, take_listing, take_vanished
from controller.core.nodes.node_clocks import take_clock
from controller.core.state.turn import Turn


def take_heartbeat_change(turn: Turn, event: HeartbeatChange) -> None:
    """Take in a change that a heartbeat, or its absence, has shown."""
    match event:
        case RanksListed():
            take_listing(turn, event)
        case NodeFellSilent():
            fall_silent(turn, event)
        case NodeAnswered():
            hear(turn, event)
        case RankVanished():
            take_vanished(turn, event)
        case TaskAdvanced():
            _advance(turn, event)
        case ClockMeasured():
            take_clock(turn, event)
        case StragglerFound():
            take_straggler(turn, event)
        case StragglerOver():
            take_straggler_over(turn, event)
        case WaitingChanged():
            take_waiting(turn, event)
        case _:
            assert_never(event)


def _advance(turn: Turn, event: TaskAdvanced) -> None:
    task = turn.state.tasks.get(event.task)
    if task is None or task.generation != event.generation:
        return
    if event.global_rank in task.ranks:
        task.note_advance(turn.at, event.global_rank, event.iteration)
