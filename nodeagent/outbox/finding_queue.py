"""Findings on their way into the outbox: kept in order while it can't be written.

Another run of the controller begins with an empty outbox. Conditions that still hold, such as a
full disk or a lost GPU, are reported to it again. Events that happened once are not.
"""

import logging
from collections import deque
from typing import Final

from nodeagent.outbox.outbox_file import OutboxFile
from nodeagent.process_tools.node_clock import NodeClock
from nodeagent.protocol.findings import FindingSign, NodeFinding

_LOG = logging.getLogger(__name__)

MAX_WAITING: Final = 200
"""Findings kept while the disk is full; beyond that the oldest go."""


class FindingStore:
    """Stores what the probes find."""

    def __init__(self, outbox: OutboxFile, clock: NodeClock) -> None:
        self._outbox = outbox
        self._clock = clock
        self._waiting: deque[tuple[NodeFinding, float]] = deque(maxlen=MAX_WAITING)
        self._holding: dict[tuple[FindingSign, str], NodeFinding] = {}
        self._is_failing = False

    def report(self, finding: NodeFinding) -> None:
        """Store a finding, now or as soon as the outbox can be written again."""
        _LOG.warning(
            "finding: probe=%s sign=%s subject=%s text=%s",
            finding.probe,
            finding.sign,
            finding.subject,
            finding.text,
        )
        if finding.is_over:
            self._holding.pop((finding.sign, finding.subject), None)
        elif not finding.is_event and finding.sign != "link_changed":
            self._holding[finding.sign, finding.subject] = finding
        self._store(finding)

    def report_again(self) -> None:
        """Store what holds now once more: another run of the controller took over."""
        for finding in self._holding.values():
            self._store(finding)

    def _store(self, finding: NodeFinding) -> None:
        self._waiting.append((finding, self._clock.wall_s()))
        self.flush()

    def flush(self) -> None:
        """Try again to store what could not be stored."""
        while self._waiting:
            finding, wall_s = self._waiting[0]
            try:
                self._outbox.store(finding, wall_s)
            except OSError as error:
                if not self._is_failing:
                    _LOG.error("cannot store findings, will retry: reason=%s", error)
                self._is_failing = True
                return
            self._waiting.popleft()
            self._is_failing = False
