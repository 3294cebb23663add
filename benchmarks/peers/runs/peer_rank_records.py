"""What the ranks of a run write down, one JSON object a line, and reading it while they write.

Each line is one ``write`` to a file opened for appending, so lines of several processes never mix
and a line that was written survives the death of its writer.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from peers.runs.workload_plan import now_s


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One thing that happened.

    Attributes:
        kind: ``computed``: a micro-batch, forward and backward. ``committed``: all ranks applied
            the update of the iteration. ``fault``: written right before the rank breaks.
        at: Seconds on the machine's monotonic clock.
        attempt: Number of resumptions of the training that the rank knows of.
        global_rank: The rank that wrote it.
        iteration: Counted from 1.
        index: The micro-batch, in the global batch.
        loss: Mean loss of the global batch.
        num_contributed: Micro-batches whose gradients are in the update.
    """

    kind: Literal["computed", "committed", "fault"]
    at: float
    attempt: int
    global_rank: int
    iteration: int
    index: int = -1
    loss: float = 0.0
    num_contributed: int = 0


class JournalWriter:
    """Appends the records of one rank."""

    def __init__(self, path: Path, global_rank: int, attempt: int) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._global_rank = global_rank
        self._attempt = attempt

    def computed(self, iteration: int, index: int) -> None:
        """A micro-batch went forward and backward."""
        self._append(self._record("computed", iteration, index=index))

    def committed(self, iteration: int, loss: float, num_contributed: int) -> None:
        """The update of ``iteration`` is applied."""
        self._append(
            self._record("committed", iteration, loss=loss, num_contributed=num_contributed)
        )

    def fault(self, iteration: int, index: int) -> None:
        """This rank breaks now."""
        self._append(self._record("fault", iteration, index=index))

    def _record(
        self,
        kind: Literal["computed", "committed", "fault"],
        iteration: int,
        *,
        index: int = -1,
        loss: float = 0.0,
        num_contributed: int = 0,
    ) -> RunRecord:
        return RunRecord(
            kind, now_s(), self._attempt, self._global_rank, iteration, index, loss, num_contributed
        )

    def _append(self, record: RunRecord) -> None:
        os.write(self._descriptor, json.dumps(asdict(record)).encode() + b"\n")


class LineReader:
    """Returns the new lines of a growing file since the last call; a missing file is empty."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> list[str]:
        """Return the new complete lines."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        complete = data[: data.rfind(b"\n") + 1]
        self._offset += len(complete)
        return complete.decode().splitlines()


class JournalReader:
    """The records of all ranks of a run, as they come."""

    def __init__(self, path: Path) -> None:
        self._lines = LineReader(path)

    def read(self) -> list[RunRecord]:
        """Return the records since the last call."""
        return [RunRecord(**json.loads(line)) for line in self._lines.read()]
