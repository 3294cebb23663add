"""Writes the history of a run beside its controller, and never delays it."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

from controller.api.projection import incident_view, plan_view
from controller.core.state.cluster import ClusterState
from controller.server.compactor import Retention
from controller.store.history import (
    HISTORY_NAME,
    History,
    HistoryEntry,
    HistoryError,
    HistoryLine,
    HistoryView,
    read_rows,
)

_LOG: Final = logging.getLogger(__name__)
_INTERVAL_S: Final = 1.0
_PRUNE_EVERY: Final = 600
"""Writes between two looks at what is too old."""
_MOST_WAITING: Final = 100_000
_DAY_S: Final = 86_400.0


class HistoryWriter:
    """The history of one controller's run. ``run`` serves it until cancelled, ``close`` ends it.

    If it can't be written, that is announced once, and nothing else depends on it.

    Args:
        directory: The run's directory.
        state: Where incidents and plans are.
        retention: How much is kept.
        now: Returns the seconds since the start of the run.
        note: Called with the reason if it can't be written.
    """

    def __init__(
        self,
        directory: Path,
        state: ClusterState,
        retention: Retention,
        now: Callable[[], float],
        note: Callable[[str], None],
    ) -> None:
        self._path, self._state, self._retention = directory / HISTORY_NAME, state, retention
        self._now, self._note = now, note
        self._waiting: list[HistoryEntry] = []
        self._written: dict[tuple[str, int], str] = {}
        """By name and revision, the view of an incident or plan that was written last."""
        self._history: History | None = None
        self._writing = asyncio.Lock()
        self._has_failed = False
        self._num_writes = 0

    def add(self, entries: Iterable[HistoryEntry]) -> None:
        """Have announcements and requests written soon."""
        if len(self._waiting) < _MOST_WAITING:
            self._waiting += entries

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL_S)
            await self.write()

    async def write(self) -> None:
        """Write what waits. When this returns it is in the file, unless that can't be written.

        Also when cancelled it returns after its thread: no other one may use the file meanwhile.
        """
        async with self._writing:
            work = self._taken()
            if any(work):
                loop = asyncio.get_running_loop()
                thread = loop.run_in_executor(None, self._write_at_once, *work)
                try:
                    await asyncio.shield(thread)
                finally:
                    await thread

    def close(self) -> None:
        """Write what waits and close the file, after all that uses it has ended.

        Whatever a kill prevents here, the next controller finds in the journal.
        """
        self._write_at_once(*self._taken())
        if self._history is not None:
            self._history.close()

    async def read(
        self, table: str, *, since: float, until: float | None, name: str | None, limit: int
    ) -> list[dict[str, Any]]:
        """Return the newest rows of a table, oldest first, with what has just happened.

        Raises:
            HistoryError: It can't be read.
        """
        await self.write()
        if not self._path.exists():
            return []
        rows = partial(
            read_rows, self._path, table, since=since, until=until, name=name, limit=limit
        )
        return await asyncio.to_thread(lambda: list(rows()))

    def _taken(self) -> tuple[list[HistoryEntry], list[HistoryView], list[HistoryView]]:
        """Return what is to be written now."""
        entries, self._waiting = self._waiting, []
        if all(isinstance(e, HistoryLine) and e.line.kind == "iteration" for e in entries):
            return entries, [], []  # iterations change no incident and no plan
        incidents = [
            HistoryView(each.name, 0, each.detected_at, incident_view(each).model_dump_json())
            for each in self._state.incidents.all
        ]
        plans = [
            HistoryView(
                each.name, each.revision, each.created_at, plan_view(each).model_dump_json()
            )
            for each in self._state.plans.all
        ]
        new_incidents, new_plans = self._new_of(incidents), self._new_of(plans)
        self._written = {each[:2]: each.view for each in (*incidents, *plans)}
        return entries, new_incidents, new_plans

    def _new_of(self, views: list[HistoryView]) -> list[HistoryView]:
        return [each for each in views if self._written.get(each[:2]) != each.view]

    def _write_at_once(
        self, entries: list[HistoryEntry], incidents: list[HistoryView], plans: list[HistoryView]
    ) -> None:
        try:
            if self._history is None:
                self._history = History(self._path)
            self._history.write(entries, incidents, plans)
            self._num_writes += 1
            if self._num_writes % _PRUNE_EVERY == 0:
                keep_s, keep_mb = self._retention.keep_days * _DAY_S, self._retention.keep_mb
                self._history.prune(self._now(), keep_s, int(keep_mb * 1e6))
        except HistoryError as error:
            if not self._has_failed:
                self._has_failed = True
                _LOG.warning("history is not written: reason=%s", error)
                self._note(f"is not written: {error}")
        else:
            self._has_failed = False
