"""Follows the kernel log: lines for kill causes, faults and lost lines for findings.

The catalogue of faults is loaded when the first line comes, beside the agent's work, since that
takes about a quarter of a second; lines that come meanwhile wait. A poll costs some microseconds
where nothing was written.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from nodeagent.detect.kernel_lines import KernelLogDetector
from nodeagent.detect.lost_lines import Lost, LostLines
from nodeagent.detect.memory_kills import MemoryKills
from nodeagent.probes.kernel_log import KernelLog
from nodeagent.process_tools.beat import next_beat
from nodeagent.process_tools.blocking import Blocking
from nodeagent.process_tools.node_clock import NodeClock
from nodeagent.protocol.findings import NodeFinding
from profiles.faults.catalogue import Catalogue, default_catalogue
from profiles.faults.table_rows import CatalogueError

_LOG = logging.getLogger(__name__)

POLL_S: Final = 0.5
_MAX_WAITING: Final = 10_000
_LOAD_LIMIT_S: Final = 60.0
_PROBE: Final = "kernel log"

Load = Callable[[], Catalogue | None]
"""Returns the catalogue of faults, None where it can't be used. May take long; does not raise."""


class KernelWatch:
    """The kernel log of the node, as long as the agent lives."""

    def __init__(
        self,
        log: KernelLog,
        clock: NodeClock,
        report: Callable[[NodeFinding], None],
        load: Load | None = None,
        load_limit_s: float = _LOAD_LIMIT_S,
    ) -> None:
        self._log = log
        self._clock = clock
        self._report = report
        self._load = load or _load
        self._load_limit_s = load_limit_s
        self._loading: Blocking[Catalogue | None] = Blocking("catalogue of faults")
        self._kills: MemoryKills | None = None
        self._lost = LostLines()
        self._waiting: deque[bytes] = deque(maxlen=_MAX_WAITING)
        self._is_useless = False

    @property
    def state(self) -> str:
        """Where lines come from, in words for an operator."""
        return "the catalogue of faults can't be used" if self._is_useless else self._log.state

    def pass_lines_to(self, kills: MemoryKills) -> None:
        """Hand every line to ``kills`` as soon as it is read."""
        self._kills = kills

    def read(self) -> None:
        """Read what is new now; it is judged at the next poll."""
        now_s = self._clock.monotonic_s()
        lines = self._log.read(now_s)
        if lines and self._kills is not None:
            self._kills.take_lines(lines, now_s)
        num_over = max(0, len(self._waiting) + len(lines) - _MAX_WAITING)
        self._waiting.extend(lines)
        lost = self._log.take_lost().plus(Lost(num_lines=num_over))
        if (finding := self._lost.take(lost, lines, now_s)) is not None:
            self._report(finding)

    async def run(self) -> None:
        """Follow the log until it is cancelled."""
        detector: KernelLogDetector | None = None
        try:
            self.read()
            _LOG.info("probe started: probe=%s source=%s interval_s=%g", _PROBE, self.state, POLL_S)
            while True:
                if self._waiting and detector is None:
                    detector = await self._load_detector()
                    if self._is_useless:
                        return
                if self._waiting and detector is not None:
                    lines = list(self._waiting)
                    self._waiting.clear()
                    for finding in detector.take(lines, self._clock.monotonic_s()):
                        self._report(finding)
                await next_beat(POLL_S)
                self.read()
        finally:
            self._log.close()

    async def _load_detector(self) -> KernelLogDetector | None:
        """Return what judges lines; None where it can't be had now, and lines wait."""
        try:
            catalogue = await self._loading.call(self._load, self._load_limit_s)
        except TimeoutError:
            _LOG.warning(
                "fault catalogue still loading, kernel lines wait: limit_s=%g", self._load_limit_s
            )
            return None
        self._is_useless = catalogue is None
        return None if catalogue is None else KernelLogDetector(catalogue)


def _load() -> Catalogue | None:
    try:
        return default_catalogue()
    except CatalogueError as error:
        _LOG.error("kernel log is not reported: reason=%s", error)
        return None
