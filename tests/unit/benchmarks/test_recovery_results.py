"""The recovery benchmark computes its figures from run records and from earlier results."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.result_pages import ROOT
from peers.contenders.alternative_settings import VARIANTS
from peers.runs.event_log_records import EventLogReader
from peers.runs.fault_scenarios import SCENARIOS, scenarios
from peers.runs.run_figures import measure
from peers.runs.workload_plan import PlannedFault, Workload
from peers.tables.recovery_summary import read_summary, summary_of, write_summary
from peers.tables.recovery_tables import tables
from peers.tables.results_file import Results

LOST = PlannedFault(3, 2, 1, "lost-node")


def write(path: Path, *events: dict[str, object]) -> None:
    with path.open("a") as log:
        log.writelines(json.dumps(event) + "\n" for event in events)


def started(rank: int, pid: int) -> dict[str, object]:
    return {"at": 0.0, "kind": "rank_started", "rank": rank, "pid": pid}


def committed(number: int, at: float, duration_s: float | None = 0.5) -> dict[str, object]:
    told = {"iteration": number, "generation": 1, "duration_s": duration_s, "loss": 2.0}
    return {"at": at, "kind": "iteration", **told}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def reader_of(log: Path, stop: Callable[[int], object]) -> EventLogReader:
    return EventLogReader(log, 12, [LOST], stop)


def test_a_node_is_stopped_once_the_iteration_before_is_committed(log: Path) -> None:
    stopped: list[int] = []
    reader = reader_of(log, stopped.append)
    write(log, started(2, 71), committed(1, 1.0))
    reader.read()
    assert stopped == []

    write(log, started(2, 72), committed(2, 2.0))
    records = reader.read()

    assert stopped == [72]  # the rank's newest process
    assert [(record.kind, record.iteration) for record in records] == [
        ("committed", 2),
        ("fault", 3),
    ]
    assert reader.read() == []


def test_what_is_known_by_its_vote_after_the_loss_is_no_recovery(log: Path) -> None:
    reader = reader_of(log, lambda _pid: None)
    write(log, started(2, 71), committed(1, 1.0), committed(2, 2.0))
    records = reader.read()
    write(log, committed(3, 9.0, duration_s=None), committed(4, 10.0))
    records += reader.read()

    fault = next(record for record in records if record.kind == "fault")
    (recovery,) = measure(records, 0.0, 12).recoveries
    assert recovery.next_commit_s == pytest.approx(records[-1].at - fault.at)


def test_every_scenario_is_made_and_a_node_is_lost_with_its_first_rank() -> None:
    made = {scenario.name: scenario for scenario in scenarios(Workload(), 1)}

    assert tuple(made) == SCENARIOS
    assert [fault.global_rank for fault in made["hang-1"].faults] == [1]
    assert [fault.global_rank for fault in made["lost-node-1"].faults] == [2]
    assert made["lost-node-1"].recovery_limit_s > made["kill-1"].recovery_limit_s


def test_a_batch_that_the_surviving_node_cant_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="--micro-batches 15"):
        scenarios(Workload(num_ranks=3, num_micro_batches=15), 1)


def test_timeouts_are_short_only_where_nothing_else_tells_of_the_fault() -> None:
    (tuned,) = [variant for variant in VARIANTS if variant.name == "torchrun/tuned"]

    assert "collective_timeout" not in tuned.settings_for(is_silent=False)
    assert "collective_timeout" in tuned.settings_for(is_silent=True)


def run(contender: str, number: int, next_commit_s: float | None) -> dict[str, object]:
    """Return a run as the results file has it; without a commit it did not recover."""
    recovery = {"next_commit_s": next_commit_s, "caught_up_s": next_commit_s}
    figures = {
        "total_s": 20.0,
        "iteration_s": 0.5,
        "num_recomputed_iterations": 0,
        "num_recomputed_micro_batches": number,
        "num_missing_micro_batches": 0,
        "recoveries": [recovery],
        "max_loss_deviation": 0.0,
    }
    return {
        "contender": contender,
        "scenario": "kill-1",
        "number": number,
        "figures": figures if next_commit_s else None,
        "reason": "" if next_commit_s else "no iteration within 60 s",
        "log_tail": "" if next_commit_s else "first line\n\nlast line\n",
    }


def test_a_summary_has_medians_ranges_and_failures_and_survives_its_file(tmp_path: Path) -> None:
    machine = {"cores": 2, "system": "Linux"}
    results = Results(tmp_path / "runs.json", Workload(), {"torch": "2.9"}, machine, "the command")
    results.runs = [
        run("unicron/default", 1, 0.5),
        run("unicron/default", 2, 1.0),
        run("torchrun/tuned", 1, 5.0),
        run("torchrun/tuned", 2, None),
    ]
    write_summary(summary_of(results), tmp_path / "summary.json")
    summary = read_summary(tmp_path / "summary.json")
    assert summary == summary_of(results)

    text = tables(summary)
    # Runs of an older benchmark do not say how many ranks there are at the end.
    assert (
        "| unicron/default | **0.75** (0.50-1.00) | 1 | **0.75** (0.50-1.00) | 0 | 1.5 (1-2) | 0"
        " | 2 of 2 | - | 0 of 2 |" in text
    )
    assert "| torchrun/tuned | 5.00 | 10.0 | 5.00 | 0 | 1 | 0 | 1 of 1 | - | 1 of 2 |" in text
    assert (
        "torchrun/tuned, kill-1, 1 run: no iteration within 60 s. The end of its log:\n\n"
        "    first line\n    last line" in text
    )


def test_the_page_shows_the_tables_of_the_kept_summary() -> None:
    summary = read_summary(ROOT / "docs" / "benchmarks" / "recovery_comparison.json")
    assert summary.workload == Workload()
    assert tables(summary) in (ROOT / "docs" / "benchmarks.md").read_text()
