"""The controller's event log as records of a run."""

import json
from pathlib import Path
from typing import Any

from peers.journal import LineReader, Record
from peers.plan import now_s


class EventLogReader:
    """Reads committed iterations and drills as they come.

    The log counts seconds from the controller's start. That start is placed on the machine's clock
    when the first line is seen, so absolute times are late by up to the interval of the looks;
    differences are exact.

    An iteration that is known by its vote alone was agreed on before the rank broke; that the controller
    hears of it afterwards is no recovery.
    """

    def __init__(self, path: Path, num_micro_batches: int) -> None:
        self._lines = LineReader(path)
        self._num_micro_batches = num_micro_batches
        self._started_at: float | None = None
        self._newest = 0
        self._attempt = 1
        self._fault_at: float | None = None

    def read(self) -> list[Record]:
        """Return the records since the last call."""
        found = []
        for line in self._lines.read():
            event: dict[str, Any] = json.loads(line)
            if self._started_at is None:
                self._started_at = now_s() - event["at"]
            at = self._started_at + event["at"]
            if event["kind"] == "iteration":
                self._newest, self._attempt = event["iteration"], event["generation"]
                is_by_vote = event["duration_s"] is None
                found.append(
                    Record(
                        "committed",
                        self._fault_at if is_by_vote and self._fault_at is not None else at,
                        self._attempt,
                        0,
                        self._newest,
                        loss=float(event["loss"]),
                        num_contributed=self._num_micro_batches,
                    )
                )
            elif event["kind"] == "drill":
                self._fault_at = at
                found.append(
                    Record("fault", at, self._attempt, event.get("rank", -1), self._newest + 1)
                )
        return found
