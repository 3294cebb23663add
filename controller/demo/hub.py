"""Fans out what the controller says: to the event log, to consoles, and to the terminal."""

import asyncio
import itertools
from typing import Protocol

from controller.api.server import ApiServer
from controller.api.views import LogLevel, LogLine
from controller.api.wire import Reply
from controller.clock import Clock
from controller.core.instructions import Announce, AnswerRequest, Level
from controller.drills.drill_schedule import DrillSchedule
from controller.store.event_log import EventLog


class TerminalOutput(Protocol):
    """Shows announcements where the demo was started."""

    def hear(self, at: float, announcement: Announce) -> None:
        """Take an announcement."""
        ...


class Hub:
    """The runtime's audience. ``changed`` is set whenever the state may have changed."""

    def __init__(
        self,
        server: ApiServer,
        screen: TerminalOutput,
        event_log: EventLog | None,
        clock: Clock,
        schedule: DrillSchedule,
        changed: asyncio.Event,
    ) -> None:
        self._server = server
        self._screen = screen
        self._event_log = event_log
        self._clock = clock
        self._schedule = schedule
        self._changed = changed
        self._numbers = itertools.count(1)

    def hear(self, at: float, announcement: Announce) -> None:
        """Take an announcement of the core."""
        if self._event_log:
            self._event_log.append(at, announcement)
        self._screen.hear(at, announcement)
        if announcement.level != "trace":
            self._add_line(at, announcement.level, announcement.source, announcement.text)

    def say(self, source: str, text: str, level: Level = "warning") -> None:
        """Take a line from outside the core, for instance why a node can't be reached."""
        line = Announce(cause=0, level=level, kind="note", source=source, text=text)
        at = self._clock.now()
        if self._event_log:
            self._event_log.append(at, line)
        self._screen.hear(at, line)
        self._add_line(at, level, source, text)

    def _add_line(self, at: float, level: str, source: str, text: str) -> None:
        self._server.add_line(
            LogLine(seq=next(self._numbers), at=at, level=LogLevel(level), source=source, text=text)
        )

    def answer(self, answer: AnswerRequest) -> None:
        """Pass an answer to whoever asked."""
        self._schedule.note_answer(answer)
        self._server.answer(
            Reply(
                request_id=answer.request_id,
                is_ok=answer.is_ok,
                code=answer.code,
                message=answer.message,
            )
        )

    def state_changed(self) -> None:
        """Have consoles sent a new snapshot, and wake whoever waits for a change."""
        self._changed.set()
        self._server.state_changed()
