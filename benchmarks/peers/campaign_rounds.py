"""All runs of a campaign, in rounds: each contender and scenario once per round.

Rounds spread whatever drifts on the machine over all contenders alike, and an interrupted campaign
has as many runs of each, give or take one. A campaign can be run in slices of a few minutes: each
goes on where the one before ended. A contender that has failed a scenario each time, three times
over, is not asked again.
"""

import math
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from peers.contenders.contender import CampaignContext, Contender
from peers.runs.fault_scenarios import FaultScenario
from peers.runs.peer_rank_records import RunRecord
from peers.runs.workload_plan import now_s
from peers.tables.results_file import Results

_NUM_FAILURES: Final = 3


@dataclass(frozen=True, slots=True)
class CampaignBounds:
    """How much is run.

    Attributes:
        num_runs: Runs of each contender in each scenario.
        minutes: No run is begun that would probably last beyond this.
    """

    num_runs: int
    minutes: float = math.inf


class CampaignProgress:
    """Says on standard error what runs and how it went."""

    def __init__(self) -> None:
        self._title = ""
        self._shown = ""
        self._is_terminal = sys.stderr.isatty()

    def begin(self, title: str) -> None:
        """A run begins."""
        self._title, self._shown = title, ""

    def show(self, records: Sequence[RunRecord]) -> None:
        """Show how far the run is; on a terminal only."""
        committed = [record.iteration for record in records if record.kind == "committed"]
        num_faults = sum(record.kind == "fault" for record in records)
        text = (
            f"{self._title}: iteration {committed[-1] if committed else '-'}, {num_faults} faults"
        )
        if self._is_terminal and text != self._shown:
            self._shown = text
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    def end(self, text: str) -> None:
        """The run is over."""
        start = "\r\x1b[K" if self._is_terminal else ""
        sys.stderr.write(f"{start}{self._title}: {text}\n")
        sys.stderr.flush()


def run_campaign(
    results: Results,
    contenders: Sequence[Contender],
    scenarios: Sequence[FaultScenario],
    bounds: CampaignBounds,
    context: CampaignContext,
    progress: CampaignProgress,
) -> int:
    """Make the runs that ``results`` doesn't have yet; runs that failed are not made again.

    Args:
        results: Takes the runs.
        contenders: The programs to run.
        scenarios: The faults to run them with.
        bounds: Numbers of runs and minutes.
        context: Shared by all runs.
        progress: Shows the state of the campaign.

    Returns:
        How many runs are left.
    """
    work = [
        (number, scenario, contender)
        for number in range(1, bounds.num_runs + 1)
        for scenario in scenarios
        for contender in contenders
    ]
    todo = [w for w in work if not results.has(w[2].name, w[1].name, w[0])]
    began_at = now_s()
    for position, (number, scenario, contender) in enumerate(todo):
        if results.is_hopeless(contender.name, scenario.name, _NUM_FAILURES):
            continue
        expected_s = results.usual_s(contender.name, scenario.name)
        if now_s() - began_at + expected_s > 60 * bounds.minutes:
            return _num_left(results, todo[position:])
        left = sum(results.usual_s(c.name, s.name) for _, s, c in todo[position:])
        progress.begin(
            f"[{position + 1}/{len(todo)}, about {left / 60:.0f} min left]"
            f" {contender.name} {scenario.name} #{number}"
        )
        run_began_at = now_s()
        directory = Path(tempfile.mkdtemp(prefix="recovery-"))
        try:
            outcome = contender.run(scenario, directory, context)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        run = results.add(contender.name, scenario.name, number, outcome, now_s() - run_began_at)
        progress.end(_describe(run))
    return 0


def _num_left(results: Results, todo: Sequence[tuple[int, FaultScenario, Contender]]) -> int:
    return sum(
        not results.is_hopeless(contender.name, scenario.name, _NUM_FAILURES)
        for _, scenario, contender in todo
    )


def _describe(run: dict[str, object]) -> str:
    figures = run["figures"]
    if not isinstance(figures, dict):
        return f"FAILED: {run['reason']}"
    times = ", ".join(f"{recovery['next_commit_s']:.2f} s" for recovery in figures["recoveries"])
    recovered = f"; fault to next iteration {times}" if times else ""
    return f"{figures['total_s']:.1f} s for all iterations{recovered}"
