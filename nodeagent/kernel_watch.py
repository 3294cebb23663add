"""Follows the kernel log: lines to who asks about killed processes, faults into findings.

The catalogue of faults is loaded in the background, while the agent already serves; lines that come
meanwhile wait. A poll costs some microseconds where nothing was written.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from nodeagent.blocking import Blocking
from nodeagent.clock import Clock
from nodeagent.detect.kernel_log import KernelLogDetector
from nodeagent.detect.memory_kills import MemoryKills
from nodeagent.probes.kernel_log import KernelLog
from nodeagent.protocol.findings import NodeFinding
from profiles.faults.catalogue import Catalogue, CatalogueError, default_catalogue

_LOG = logging.getLogger(__name__)

POLL_S: Final = 0.5
_MAX_WAITING: Final = 10_000
_LOAD_LIMIT_S: Final = 60.0


class KernelWatch:
    """The kernel log of the node, as long as the agent lives."""

    def __init__(self, log: KernelLog, clock: Clock, report: Callable[[NodeFinding], None]) -> None:
        self._log = log
        self._clock = clock
        self._report = report
        self._kills: MemoryKills | None = None
        self._waiting: deque[bytes] = deque(maxlen=_MAX_WAITING)

    @property
    def state(self) -> str:
        """Where lines come from, in words for an operator."""
        return self._log.state

    def tell(self, kills: MemoryKills) -> None:
        """Hand every line to ``kills`` as soon as it is read."""
        self._kills = kills

    def read(self) -> None:
        """Read what is new now; it is judged at the next poll."""
        now_s = self._clock.monotonic_s()
        lines = self._log.read(now_s)
        if lines and self._kills is not None:
            self._kills.take_lines(lines, now_s)
        self._waiting.extend(lines)

    async def run(self) -> None:
        """Follow the log for good."""
        self.read()
        _LOG.info("kernel log: %s, every %g s", self.state, POLL_S)
        catalogue = await Blocking[Catalogue | None]("catalogue of faults").call(
            _load, _LOAD_LIMIT_S
        )
        if catalogue is None:
            _LOG.error("kernel log: nothing is reported, the catalogue of faults can't be used")
            return
        detector = KernelLogDetector(catalogue)
        try:
            while True:
                self.read()
                lines = list(self._waiting)
                self._waiting.clear()
                for finding in detector.take(lines, self._clock.monotonic_s()):
                    self._report(finding)
                await asyncio.sleep(POLL_S)
        finally:
            self._log.close()


def _load() -> Catalogue | None:
    try:
        return default_catalogue()
    except CatalogueError as error:
        _LOG.error("%s", error)
        return None
