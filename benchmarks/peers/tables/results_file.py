"""The results file: setup, machine, and every run.

Written after every run, so that a campaign can be interrupted at any time and continued later.
"""

import json
import os
import platform
import statistics
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from peers.runs.peer_run import RunOutcome
from peers.runs.workload_plan import Workload

_FIRST_RUN_S: Final = 60.0


class ResultsError(Exception):
    """An existing results file can't be continued; the text says what to do."""


@dataclass(slots=True)
class Results:
    """One campaign. ``runs`` are plain, as in the file."""

    path: Path
    workload: Workload
    versions: dict[str, str]
    machine: dict[str, Any]
    command: str
    dates: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    reference_losses: dict[str, float] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)

    def has(self, name: str, scenario: str, number: int) -> bool:
        """Return whether this run was made before."""
        return any(
            (run["contender"], run["scenario"], run["number"]) == (name, scenario, number)
            for run in self.runs
        )

    def is_hopeless(self, name: str, scenario: str, num_failures: int) -> bool:
        """Whether a contender failed a scenario every time, ``num_failures`` times or more."""
        made = [run for run in self.runs if (run["contender"], run["scenario"]) == (name, scenario)]
        return len(made) >= num_failures and not any(run["figures"] for run in made)

    def usual_s(self, name: str, scenario: str) -> float:
        """Return how long a run lasts: as the ones before, or as any run where there is none."""
        alike = [
            run["took_s"]
            for run in self.runs
            if (run["contender"], run["scenario"]) == (name, scenario)
        ]
        known = alike or [run["took_s"] for run in self.runs]
        return statistics.median(known) if known else _FIRST_RUN_S

    def add(
        self, name: str, scenario: str, number: int, outcome: RunOutcome, took_s: float
    ) -> dict[str, Any]:
        """Add a run, write the file, and return the run as added.

        The losses of the first fault-free run are the reference that all others are compared with.
        """
        figures = asdict(outcome.figures) if outcome.figures else None
        if figures:
            losses = {str(iteration): loss for iteration, loss in figures.pop("losses").items()}
            if scenario == "none" and not self.reference_losses:
                self.reference_losses = losses
            figures["max_loss_deviation"] = _deviation(losses, self.reference_losses)
        run = {
            "contender": name,
            "scenario": scenario,
            "number": number,
            "took_s": round(took_s, 1),
            "figures": figures,
            "reason": outcome.reason,
            "num_failures": outcome.num_failures,
            "log_tail": outcome.log_tail,
        }
        self.runs.append(run)
        today = time.strftime("%Y-%m-%d", time.gmtime())
        if today not in self.dates:
            self.dates.append(today)
        self._write()
        return run

    def _write(self) -> None:
        data = asdict(self)
        del data["path"]
        incomplete = self.path.with_suffix(".tmp")
        incomplete.write_text(json.dumps(data, indent=1) + "\n")
        incomplete.rename(self.path)


def open_results(
    path: Path, workload: Workload, versions: dict[str, str], command: str, *, is_fresh: bool
) -> Results:
    """Return the results to add to: those of an interrupted campaign, or new ones.

    Raises:
        ResultsError: The file holds results of another workload or of other versions.
    """
    machine = {"cores": len(os.sched_getaffinity(0)), "system": platform.platform()}
    if is_fresh or not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        return Results(path, workload, versions, machine, command)
    found = read_results(path)
    if (found.workload, found.versions) != (workload, versions):
        raise ResultsError(
            f"{path} holds results of another workload or of other versions: add --fresh to"
            " replace it, or choose another --output"
        )
    return found


def read_results(path: Path) -> Results:
    """Read a results file."""
    data: dict[str, Any] = json.loads(path.read_text())
    data["workload"] = Workload(**data["workload"])
    return Results(path=path, **data)


def _deviation(losses: dict[str, float], reference: dict[str, float]) -> float | None:
    """Return the largest relative deviation over all iterations; None without a reference."""
    if not reference or losses.keys() != reference.keys():
        return None
    return max(abs(loss / reference[iteration] - 1) for iteration, loss in losses.items())
