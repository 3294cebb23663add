"""Serves the past over the API: consoles and commands see it as they see a living cluster."""

import asyncio
import logging
from pathlib import Path
from typing import Any, Final

from controller.api.server import ApiServer
from controller.api.views import ClusterView, PlaybackView
from controller.api.wire import (
    AskWhatIf,
    Command,
    DescribeCluster,
    MovePlayback,
    Question,
    ReadEvidence,
    ReadHistory,
    Reply,
    Shutdown,
)
from controller.clock import Clock
from controller.plan.questions import answer
from controller.playback.past import Past, PastError, lines_between, num_lines_until
from controller.playback.playback_cursor import PlaybackCursor, instant
from controller.store.history import HistoryError, read_rows

_LOG: Final = logging.getLogger(__name__)
_TICK_S: Final = 0.1
_MOST_LINES: Final = 2000
_LARGEST_SHARE: Final = 0.5
"""Share of the processor's time that views may take: a playback has nothing else to do."""
_THE_PAST: Final = "this is a playback of the past, which nothing changes"
_VIEWS_ONLY: Final = (
    "a recording has what was shown, and not what a planner needs: play the journal"
)


class PlaybackServer:
    """The past, at the instant that its clients have chosen. They share one instant.

    Args:
        past: What is played back.
        cursor: The instant to begin at.
        clock: Time passes by it.
    """

    def __init__(self, past: Past, cursor: PlaybackCursor, clock: Clock) -> None:
        self._past, self._cursor, self._clock = past, cursor, clock
        self._api = ApiServer(
            past.facts.cluster, self._view, self._take, largest_share=_LARGEST_SHARE
        )
        self._num_lines = 0
        self._playback = self._described()
        self._ended = asyncio.Event()
        self._questions: asyncio.Queue[Question] = asyncio.Queue()
        self._show_lines()

    @property
    def is_listening(self) -> asyncio.Event:
        """Set while clients can connect."""
        return self._api.is_listening

    def end(self) -> None:
        """Have ``run`` return soon."""
        self._ended.set()

    async def run(self, socket: Path) -> None:
        """Serve until a client asks for the end.

        Raises:
            ApiSocketError: The socket can't be made.
        """
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._api.run(socket)),
                group.create_task(self._let_time_pass()),
                group.create_task(self._answer_questions()),
            ]
            await self._ended.wait()
            # The reply has to leave first.
            await asyncio.sleep(_TICK_S)
            for task in tasks:
                task.cancel()

    async def _let_time_pass(self) -> None:
        then = self._clock.now()
        while True:
            await asyncio.sleep(_TICK_S)
            now = self._clock.now()
            self._go_to(self._cursor.after(now - then, self._past.facts.end))
            then = now

    async def _answer_questions(self) -> None:
        """Answer each question for the instant that is shown when its turn comes."""
        while True:
            question, at = await self._questions.get(), self._cursor.at
            try:
                known = self._past.core_at(at)
            except PastError as error:
                self._answer(question.request_id, "failed", str(error))
                continue
            if known is None:
                self._answer(question.request_id, "unsupported", _VIEWS_ONLY)
            else:
                self._api.answer(await answer(question, *known, at))

    def _view(self) -> ClusterView:
        view = self._past.view_at(self._cursor.at)
        return view.model_copy(update={"playback": self._playback})

    def _take(self, command: Command) -> None:
        match command:
            case MovePlayback():
                self._move(command)
            case ReadHistory():
                self._read_history(command)
            case ReadEvidence():
                self._api.answer(self._past.evidence(command, self._cursor.at))
            case AskWhatIf() | DescribeCluster():
                self._questions.put_nowait(command)
            case Shutdown():
                self._answer(command.request_id, "ok", "ending")
                self.end()
            case _:
                self._answer(command.request_id, "unsupported", _THE_PAST)

    def _move(self, command: MovePlayback) -> None:
        facts = self._past.facts
        try:
            cursor = self._cursor.moved(command, facts)
        except PastError as error:
            self._answer(command.request_id, "invalid", str(error))
            return
        self._go_to(cursor)
        self._answer(command.request_id, "ok", instant(facts.started_wall_s + cursor.at))

    def _read_history(self, command: ReadHistory) -> None:
        """Answer from the history of the run, if it is there, until the instant that is shown."""
        history = self._past.facts.history
        if history is None or not history.is_file():
            self._answer(command.request_id, "failed", "the run's history is not there")
            return
        until = self._cursor.at if command.until is None else min(command.until, self._cursor.at)
        try:
            rows: Any = list(
                read_rows(
                    history, command.table, since=command.since, until=until, name=command.name,
                    limit=command.limit,
                )
            )  # fmt: skip
        except HistoryError as error:
            self._answer(command.request_id, "failed", str(error))
            return
        self._api.answer(Reply(request_id=command.request_id, is_ok=True, data={"rows": rows}))

    def _answer(self, request_id: str, code: str, message: str) -> None:
        is_ok = code == "ok"
        self._api.answer(Reply(request_id=request_id, is_ok=is_ok, code=code, message=message))

    def _go_to(self, cursor: PlaybackCursor) -> None:
        if cursor == self._cursor:
            return
        _LOG.debug("playback moved: at_s=%.3f speed=%g", cursor.at, cursor.speed)
        self._cursor = cursor
        self._playback = self._described()
        self._show_lines()
        self._api.state_changed()

    def _described(self) -> PlaybackView:
        facts, cursor = self._past.facts, self._cursor
        # Marks and shares are the same lists in all views, which the API then sends only once.
        return PlaybackView.model_construct(
            source=facts.source,
            begin=facts.begin,
            end=facts.end,
            unknown=facts.unknown,
            is_playing=cursor.is_playing,
            speed=cursor.speed,
            marks=facts.marks,
            wafs=facts.wafs,
        )

    def _show_lines(self) -> None:
        """Send the lines that have come; after a jump, those that are there now."""
        lines, before = self._past.facts.lines, self._num_lines
        self._num_lines = num_lines_until(lines, self._cursor.at)
        if self._num_lines < before or self._num_lines - before > _MOST_LINES:
            first = max(0, self._num_lines - _MOST_LINES)
            self._api.replace_lines(lines_between(lines, first, self._num_lines))
            return
        for line in lines_between(lines, before, self._num_lines):
            self._api.add_line(line)
