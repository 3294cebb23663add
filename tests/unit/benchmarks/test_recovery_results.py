"""What the recovery benchmark makes of what its runs write, and of results that it has."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
from harness.result_pages import ROOT
from peers.contenders.alternative_settings import VARIANTS
from peers.runs.event_log_records import EventLogReader
from peers.runs.fault_scenarios import SCENARIOS, scenarios
from peers.runs.run_figures import measure
from peers.runs.workload_plan import Fault, Workload
from peers.tables.recovery_tables import tables
from peers.tables.results_file import read_results

LOST = Fault(3, 2, 1, "lost-node")


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


def test_results_of_an_older_benchmark_are_told_as_they_were() -> None:
    results = read_results(ROOT / "docs" / "benchmarks" / "recovery_comparison.json")
    results.runs = [
        {**run, "figures": run["figures"] and {**run["figures"], "num_ranks_at_end": None}}
        for run in results.runs
    ]
    for run in results.runs:
        if run["figures"]:
            del run["figures"]["num_ranks_at_end"]

    text = tables(results)

    for run in results.runs:
        assert f"| {run['contender']} |" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert any(row.startswith("| unicron/default | **") for row in rows)
    assert asdict(results.workload) == asdict(Workload())
