"""Has closed segments of the journal compacted, in a process of its own."""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controller.store.journal import SEGMENT_EVENTS
from controller.store.segments import closed_segments
from profiles.records import on_one_line

_LOG: Final = logging.getLogger(__name__)
_PROGRAM: Final = "controller.store.compaction"


@dataclass(frozen=True, slots=True)
class Retention:
    """How much of the journal is kept that only people may want.

    Attributes:
        keep_mb: Size of the closed segments, compressed, in MB.
        keep_days: Their age.
        segment_events: How many events a segment has.
    """

    keep_mb: float = 500.0
    keep_days: float = 30.0
    segment_events: int = SEGMENT_EVENTS


class Compactor:
    """Compacts the journal of one controller. ``run`` serves it until cancelled.

    Args:
        journal: The segment in use.
        retention: How much is kept.
        prepare: Called before. After a snapshot the next controller does not see again what was
            announced before it, so the history is written first.
        done: Called afterwards.
        note: Called with the reason if it fails; the next closed segment is another try.
    """

    def __init__(
        self,
        journal: Path,
        retention: Retention,
        prepare: Callable[[], Awaitable[None]],
        done: Callable[[], None],
        note: Callable[[str], None],
    ) -> None:
        self._journal, self._retention = journal, retention
        self._prepare, self._done, self._note = prepare, done, note
        self._has_work = asyncio.Event()
        if any(not segment.is_compressed for segment in closed_segments(journal)):
            self._has_work.set()  # the former controller was killed before this was done

    def wake(self) -> None:
        """A segment was closed."""
        self._has_work.set()

    async def run(self) -> None:
        """Serve until cancelled. What is under way then is killed, and done again some time."""
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            await self._prepare()
            reason = await self._compact()
            self._done()
            if reason:
                _LOG.warning("compaction failed: reason=%s", reason)
                self._note(f"can't be compacted, and grows meanwhile: {reason}")

    async def _compact(self) -> str:
        """Compact; return why that failed, or nothing."""
        retention = self._retention
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", _PROGRAM, str(self._journal),
            f"--keep-mb={retention.keep_mb}", f"--keep-days={retention.keep_days}",
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        try:
            _, errors = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        if process.returncode == 0:
            return ""
        last = errors.decode(errors="replace").strip().rpartition("\n")[2]
        return on_one_line(last) or f"it ended with {process.returncode}"
