"""Replay of a journal: the state and the facts that the next controller takes over.

The core is deterministic, so its state follows from the events alone. Instructions are not carried
out again. Three facts lived in the runtime alone, so the replay collects them. Timers that had not
fired are set again. Calls of generations that had ended stay refused. Reports in the journal are
not taken twice.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from controller.core.events import ControllerStarted, Event, Observed, TimerFired
from controller.core.instructions import DropRendezvous, Instruction, SetTimer
from controller.core.machine import Machine
from controller.core.timers import Timer
from controller.store.journal import JournalError
from nodeagent.protocol.ids import Generation, NodeId, TaskId

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReplayedRun:
    """The run so far, as the next controller takes it over.

    Attributes:
        started: The start of the newest controller; None if there was none.
        num_events: Number of events in the journal.
        at: Time of the newest event, seconds since the start of the run.
        timers: Timers that were set and have not fired, with their lengths in seconds.
        last_seqs: Number of the newest report of each node.
        ended: The newest generation of each task that has ended: its ranks may not meet any more.
    """

    started: ControllerStarted | None = None
    num_events: int = 0
    at: float = 0.0
    timers: Mapping[Timer, float] = field(default_factory=dict)
    last_seqs: Mapping[NodeId, int] = field(default_factory=dict)
    ended: Mapping[TaskId, Generation] = field(default_factory=dict)


def replay(
    machine: Machine,
    events: Iterable[Event],
    before: ReplayedRun | None = None,
    followed: Callable[[Event, list[Instruction]], None] | None = None,
) -> ReplayedRun:
    """Replay ``events`` through ``machine``; return the facts that are not in its state.

    A controller's journal also has its nodes, tasks and policy: its machine begins empty.

    Args:
        machine: A new one, or one that has handled all events before these.
        events: Those that follow.
        before: The facts of the events before.
        followed: Called with each event and its instructions.

    Raises:
        JournalError: The events do not begin with the start of a controller, or events are missing.
            The text says which.
    """
    begin_s = time.perf_counter()
    before = before or ReplayedRun()
    started, num_events, at = before.started, before.num_events, before.at
    timers, last_seqs, ended = dict(before.timers), dict(before.last_seqs), dict(before.ended)
    for event in events:
        if event.number != num_events + 1:
            raise JournalError(f"the journal has a gap: event {event.number} follows {num_events}")
        if started is None and not isinstance(event.body, ControllerStarted):
            raise JournalError("the journal does not begin with the start of a controller")
        num_events, at = event.number, event.at
        match event.body:
            case ControllerStarted():
                started = event.body
            case TimerFired(timer=timer):
                timers.pop(timer, None)
            case Observed(node=node, seq=seq):
                last_seqs[node] = seq
            case _:
                pass
        instructions = machine.handle(event)
        if followed is not None:
            followed(event, instructions)
        for instruction in instructions:
            if isinstance(instruction, SetTimer):
                timers[instruction.timer] = instruction.after_s
            elif isinstance(instruction, DropRendezvous):
                newest = ended.get(instruction.task, Generation(-1))
                ended[instruction.task] = max(newest, instruction.generation)
    took_s, num = time.perf_counter() - begin_s, num_events - before.num_events
    _LOG.info("journal replayed: events=%d duration_s=%.3f at_s=%.3f", num, took_s, at)
    return ReplayedRun(started, num_events, at, timers, last_seqs, ended)
