"""One run: start the processes, watch what they write, end them, and measure."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from peers.contenders.alternative_settings import Command, environment
from peers.machine.process_herd import Herd
from peers.runs.peer_rank_records import RunRecord
from peers.runs.run_figures import Figures, measure, next_commit
from peers.runs.workload_plan import Workload, now_s

_LOOK_EVERY_S = 0.05


class RecordSource(Protocol):
    """Where the records of a run come from."""

    def read(self) -> list[RunRecord]:
        """Return the records since the last call."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """When a run is given up.

    Attributes:
        start_s: Without a first committed iteration.
        recovery_s: After a fault, or at any time, without another committed iteration.
        end_s: For the processes to end by themselves after the last iteration.
    """

    start_s: float = 90.0
    recovery_s: float = 60.0
    end_s: float = 10.0


@dataclass(slots=True)
class RunOutcome:
    """How a run ended: with figures, or with the reason why there are none.

    Attributes:
        num_failures: Faults that training did not recover from: 0 or 1, since it ends the run.
        log_tail: The last the processes said, where something failed.
    """

    figures: Figures | None
    reason: str = ""
    num_failures: int = 0
    log_tail: str = ""


class RunWatch:
    """Follows the records of a run and knows when it is over."""

    def __init__(self, source: RecordSource, num_iterations: int, limits: Limits) -> None:
        self._source = source
        self._num_iterations = num_iterations
        self._limits = limits
        self.began_at = now_s()
        self.records: list[RunRecord] = []

    def look(self) -> None:
        """Take in what is new."""
        self.records.extend(self._source.read())
        self.records.sort(key=lambda record: record.at)

    @property
    def is_complete(self) -> bool:
        """Whether the last iteration is committed."""
        return any(
            record.kind == "committed" and record.iteration >= self._num_iterations
            for record in self.records
        )

    @property
    def is_recovering(self) -> bool:
        """Whether the newest fault is not followed by a committed iteration yet."""
        faults = [record for record in self.records if record.kind == "fault"]
        return bool(faults) and next_commit(faults[-1], self.records) is None

    def why_hopeless(self) -> str | None:
        """Return why the run is given up, or None."""
        newest = [record.at for record in self.records if record.kind in {"committed", "fault"}]
        if not newest and now_s() - self.began_at > self._limits.start_s:
            return f"no iteration within {self._limits.start_s:g} s of the start"
        if newest and now_s() - max(newest) > self._limits.recovery_s:
            after = "the fault" if self.is_recovering else "the one before"
            return f"no iteration within {self._limits.recovery_s:g} s of {after}"
        return None


@dataclass(frozen=True, slots=True)
class Run:
    """One training from its start to its end.

    Attributes:
        directory: Where its processes write.
        show: Told the records again and again.
    """

    workload: Workload
    limits: Limits
    directory: Path
    show: Callable[[Sequence[RunRecord]], None]

    def make(
        self,
        commands: Sequence[Command],
        source: RecordSource,
        *,
        num_servers: int = 0,
        stdout: Path | None = None,
    ) -> RunOutcome:
        """Start ``commands``, see the training through, end all processes, and measure.

        Args:
            commands: The first ``num_servers`` of them don't end by themselves.
            source: Where the records come from.
            num_servers: As above.
            stdout: Where standard output goes; by default to the log, with standard error.
        """
        log = self.directory / "log.txt"
        watch = RunWatch(source, self.workload.num_iterations, self.limits)
        with Herd(log) as herd:
            for command in commands:
                herd.start(command.words, environment(command.environment), stdout)
            reason = self._follow(watch, herd, num_servers)
            # Read before the clean-up, which makes ranks say more.
            last_words = tail(log)
        if reason is not None:
            return RunOutcome(None, reason, int(watch.is_recovering), last_words)
        return RunOutcome(measure(watch.records, watch.began_at, self.workload.num_micro_batches))

    def _follow(self, watch: RunWatch, herd: Herd, num_servers: int) -> str | None:
        """Watch a run to its end; return why it failed, or None."""
        while True:
            codes = herd.exit_codes()[num_servers:]
            watch.look()
            self.show(watch.records)
            if watch.is_complete:
                # Servers don't end by themselves, and a rank that hangs at its exit has trained.
                _wait_for_end(herd, num_servers, self.limits.end_s)
                watch.look()
                return None
            if None not in codes:
                return f"all processes ended (exit codes {', '.join(map(str, codes))})"
            if reason := watch.why_hopeless():
                return reason
            time.sleep(_LOOK_EVERY_S)


def _wait_for_end(herd: Herd, num_servers: int, limit_s: float) -> None:
    until = now_s() + limit_s
    while None in herd.exit_codes()[num_servers:] and now_s() < until:
        time.sleep(_LOOK_EVERY_S)


def tail(log: Path, num_chars: int = 3000) -> str:
    """Return the end of a log; empty if there is none."""
    try:
        return log.read_text(errors="replace")[-num_chars:]
    except FileNotFoundError:
        return ""
