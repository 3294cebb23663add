"""``unicron demo`` with one task, watched through its event log."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final, Self

from killing.commit_recovery import CommitRecovery, Line, RankKill, is_run, recovery_from
from profiles.layout import Layout

_LOOK_EVERY_S: Final = 0.02
_START_LIMIT_S: Final = 120.0
_END_LIMIT_S: Final = 30.0
_NUM_NODES: Final = 2
_TASK: Final = "gpt"
_SETTINGS: Final = "[policy]\nrestarts = 1000000  # no node is isolated for the kills\n"


class SessionOverError(Exception):
    """Training does not go on."""


class Cluster:
    """A running demo. Use as a context manager; leaving it ends everything.

    Attributes:
        num_ranks: Ranks of its task.
        num_faults: Kills so far.
    """

    def __init__(
        self, layout: Layout, directory: Path, *, num_layers: int, hidden_size: int, seq_length: int
    ) -> None:
        self.num_ranks = layout.num_workers
        self.num_faults = 0
        self._directory = directory
        self._log = directory / "events.jsonl"
        self._offset = 0
        self._lines: list[Line] = []
        self._started_s = float("inf")
        self._settled_from = 0
        self._intervals: list[float] = []
        self._tasks = directory / "tasks.toml"
        self._tasks.write_text(_task(layout, num_layers, hidden_size, seq_length))
        self._settings = directory / "settings.toml"
        self._settings.write_text(_SETTINGS)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        words = ["demo", "--headless", "--auto-heal", "--tasks", str(self._tasks)]
        words += ["--settings", str(self._settings), "--nodes", str(_NUM_NODES)]
        words += ["--workers-per-node", str(-(-self.num_ranks // _NUM_NODES))]
        words += ["--iterations", str(10**6), "--event-log", str(self._log)]
        with (self._directory / "log.txt").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "controller.cli", *words], stdout=log, stderr=log
            )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(_END_LIMIT_S)

    def wait_for_iterations(self, count: int) -> float:
        """Wait until ``count`` iterations followed the last recovery; return their median time."""
        self._wait_until(lambda: len(self._settled()) > count, _START_LIMIT_S)
        return median(self._settled_intervals())

    def fault_on(self, global_rank: int) -> RankKill:
        """Return the kill of ``global_rank``, which the caller carries out at once.

        Raises:
            SessionOverError: Its process is gone.
        """
        self._read()
        started = [
            line
            for line in self._lines
            if line["kind"] == "rank_started" and line["rank"] == global_rank
        ]
        generation = self._settled()[-1]["generation"]
        self._intervals += self._settled_intervals()
        self._settled_from = len(self._lines)
        pid = started[-1]["pid"]
        # The kernel's name of a rank's process says which rank it is.
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        if name != f"ur:{_TASK}/{global_rank}":
            raise SessionOverError(f"process {pid} is {name!r}, not rank {global_rank}")
        self.num_faults += 1
        return RankKill(time.monotonic() - self._started_s, global_rank, pid, generation)  # noqa: TID251

    def wait_for_recovery(self, fault: RankKill, limit_s: float) -> CommitRecovery:
        """Wait for the next iteration that is committed after ``fault``.

        Raises:
            SessionOverError: There is none within ``limit_s``.
            UnreadRecoveryError: The log does not say how it was reached. Training goes on.
        """
        begin = self._settled_from
        try:
            self._wait_until(lambda: recovery_from(fault, self._lines[begin:]) is not None, limit_s)
            recovery = recovery_from(fault, self._lines[begin:])
        finally:
            # The commit that ended the recovery begins the first interval after it.
            while self._settled_from < len(self._lines) and not is_run(
                self._lines[self._settled_from]
            ):
                self._settled_from += 1
        assert recovery is not None
        return recovery

    def usual_intervals(self) -> list[float]:
        """Return the times between two commits without a fault in between, seconds."""
        return self._intervals

    def _settled(self) -> list[Line]:
        return [line for line in self._lines[self._settled_from :] if is_run(line)]

    def _settled_intervals(self) -> list[float]:
        # The first one after a start or a recovery warms up.
        return [b["at"] - a["at"] for a, b in pairwise(self._settled()[1:])]

    def _wait_until(self, is_so: Callable[[], bool], limit_s: float) -> None:
        assert self._process is not None
        until = time.monotonic() + limit_s  # noqa: TID251 - a benchmark
        self._read()
        while not is_so():
            if self._process.poll() is not None:
                raise SessionOverError(f"the demo ended: {self._last_words()}")
            if time.monotonic() > until:  # noqa: TID251
                raise SessionOverError(f"not within {limit_s:g} s: {self._last_words()}")
            time.sleep(_LOOK_EVERY_S)
            self._read()

    def _read(self) -> None:
        if not self._log.exists():
            return
        with self._log.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        now_s = time.monotonic()  # noqa: TID251
        complete = data[: data.rfind(b"\n") + 1]
        self._offset += len(complete)
        for text in complete.splitlines():
            line: dict[str, Any] = json.loads(text)
            # The controller's clock began no later than this; over many lines that becomes exact.
            self._started_s = min(self._started_s, now_s - line["at"])
            self._lines.append(line)

    def _last_words(self) -> str:
        told = [line for line in self._lines if line["level"] != "trace"]
        return "; ".join(str(line["text"]) for line in told[-3:])


def _task(layout: Layout, num_layers: int, hidden_size: int, seq_length: int) -> str:
    """Return the task's profile. Its throughput is a guess that only a plan would use."""
    whole = layout.num_workers
    half = Layout(tp=layout.tp, pp=layout.pp, dp=layout.dp // 2)
    points = ",\n".join(
        f"    {{ workers = {one.num_workers}, flops_per_s = {1e9 * one.num_workers:g},"
        f" layout = {{ tp = {one.tp}, pp = {one.pp}, dp = {one.dp} }} }}"
        for one in (half, layout)
    )
    return f"""\
[[task]]
name = "{_TASK}"
weight = 1.0
workers = {whole}
min_workers = {half.num_workers}
num_micro_batches = 12
checkpoint_interval = 1000

[task.model]
num_layers = {num_layers}
hidden_size = {hidden_size}
num_attention_heads = 4
seq_length = {seq_length}

[task.throughput]
points = [
{points},
]
"""
