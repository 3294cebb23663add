"""The controller's event log as records of a run."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from peers.machine.peer_nodes import stop_demo_node
from peers.runs.peer_rank_records import LineReader, RunRecord
from peers.runs.workload_plan import PlannedFault, now_s


class EventLogReader:
    """Reads committed iterations and drills as they come.

    The log counts seconds from the controller's start. That start is placed on the machine's clock
    when the first line is seen, so absolute times are late by up to the interval of the looks;
    differences are exact.

    An iteration that is known by its vote alone was agreed on before the rank broke; that the
    controller hears of it afterwards is no recovery.

    Args:
        path: The log.
        num_micro_batches: Micro-batches of the global batch.
        lost_nodes: Faults that no drill stages: once the iteration before is read as committed, the
            node of the rank is stopped.
        stop: Stops the node of a process.
    """

    def __init__(
        self,
        path: Path,
        num_micro_batches: int,
        lost_nodes: Sequence[PlannedFault] = (),
        stop: Callable[[int], object] = stop_demo_node,
    ) -> None:
        self._lines = LineReader(path)
        self._num_micro_batches = num_micro_batches
        self._lost_nodes = list(lost_nodes)
        self._stop = stop
        self._pid_by_rank: dict[int, int] = {}
        self._started_at: float | None = None
        self._newest = 0
        self._attempt = 1
        self._fault_at: float | None = None

    def read(self) -> list[RunRecord]:
        """Return the records since the last call."""
        found = []
        for line in self._lines.read():
            event: dict[str, Any] = json.loads(line)
            if self._started_at is None:
                self._started_at = now_s() - event["at"]
            at = self._started_at + event["at"]
            if event["kind"] == "rank_started":
                self._pid_by_rank[event["rank"]] = event["pid"]
            elif event["kind"] == "iteration":
                self._newest, self._attempt = event["iteration"], event["generation"]
                is_by_vote = event["duration_s"] is None
                found.append(
                    RunRecord(
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
                rank = event.get("rank")
                found.append(self._fault(at, -1 if rank is None else rank))
        # After all lines: what was committed before the fault must not count as its recovery.
        if self._lost_nodes and self._newest >= self._lost_nodes[0].iteration - 1:
            found.append(self._lose_node(self._lost_nodes.pop(0).global_rank))
        return found

    def _lose_node(self, global_rank: int) -> RunRecord:
        self._fault_at = now_s()
        self._stop(self._pid_by_rank[global_rank])
        return self._fault(self._fault_at, global_rank)

    def _fault(self, at: float, global_rank: int) -> RunRecord:
        return RunRecord("fault", at, self._attempt, global_rank, self._newest + 1)
