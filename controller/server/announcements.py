"""Publishes announcements: to the event log, to observers, and to the clients of the API."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from typing_extensions import override

from controller.api.server import ApiServer
from controller.api.views import LogLevel, LogLine
from controller.api.wire import Reply
from controller.clock import Clock
from controller.core.instructions import Announce, AnswerRequest, Fact, Level
from controller.ports import Publisher
from controller.store.event_log import EventLog

_LOG: Final = logging.getLogger(__name__)
_LEVELS: Final[dict[Level, int]] = {
    "trace": logging.DEBUG,
    "info": logging.INFO,
    "good": logging.INFO,
    "drill": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


class AnnouncementObserver(Protocol):
    """Gets every announcement, in order, traces included."""

    def observe(self, at: float, announcement: Announce) -> None:
        """Take ``announcement``, made ``at`` seconds after the start of the run."""
        ...


class AnnouncementPublisher(Publisher):
    """The publisher of one server, over all its controllers.

    Args:
        api: Its clients get the announcements, except traces, and the answers to their commands.
        observers: Get every announcement, after the event log.
        answered: Called with each answer of the core, before the API's client gets it.
        clock: The clock of the run.
    """

    def __init__(
        self,
        api: ApiServer,
        observers: Sequence[AnnouncementObserver],
        answered: Callable[[AnswerRequest], None],
        clock: Clock,
    ) -> None:
        self.changed = asyncio.Event()
        """Set when the state may have changed. The task that waits for it clears it."""
        self._api = api
        self._event_log: EventLog | None = None
        self._observers = observers
        self._answered = answered
        self._clock = clock
        self._numbers = itertools.count(1)

    def log_to(self, event_log: EventLog) -> None:
        """Write every announcement from now on to ``event_log``, too."""
        self._event_log = event_log

    @override
    def publish(self, at: float, announcement: Announce) -> None:
        level, kind, source = _LEVELS[announcement.level], announcement.kind, announcement.source
        cause = announcement.cause
        _LOG.log(level, "%s: kind=%s source=%s cause=%d", announcement.text, kind, source, cause)
        if self._event_log:
            self._event_log.append(at, announcement)
        for observer in self._observers:
            observer.observe(at, announcement)
        if announcement.level != "trace":
            line = LogLine(
                seq=next(self._numbers),
                at=at,
                level=LogLevel(announcement.level),
                source=announcement.source,
                text=announcement.text,
            )
            self._api.add_line(line)

    def note(self, source: str, text: str, level: Level = "warning", **facts: Fact) -> None:
        """Publish a line from outside the core, for instance why a node is unreachable."""
        line = Announce(0, level, "note", source, text, tuple(facts.items()))
        self.publish(self._clock.now(), line)

    @override
    def answer(self, answer: AnswerRequest) -> None:
        self._answered(answer)
        self._api.answer(
            Reply(
                request_id=answer.request_id,
                is_ok=answer.is_ok,
                code=answer.code,
                message=answer.message,
            )
        )

    @override
    def state_changed(self) -> None:
        self.changed.set()
        self._api.state_changed()
