"""Unicron as a contender: its demo with one task, broken by its drills, and what it reports."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from peers.contenders.alternative_settings import Command
from peers.contenders.contender import CampaignContext
from peers.runs.event_log_records import EventLogReader
from peers.runs.fault_scenarios import FaultScenario
from peers.runs.peer_run import Limits, Run, RunOutcome
from peers.runs.run_figures import Figures
from peers.runs.workload_plan import NUM_NODES, FaultKind, PlannedFault, Workload

_DRILLS: Final[dict[FaultKind, str]] = {
    "kill": "kill-rank@{after}:rank={rank}",
    "exception": "exception@{after}:rank={rank}",
    "hang": "freeze-rank@{after}:rank={rank}",
    "killed-node": "lose-node@{after}:node=n{node}",
}


@dataclass(frozen=True, slots=True)
class Unicron:
    """The real thing: a controller, agents on nodes behind SSH, ranks, and drills that break them.

    A drill is carried out when the controller knows the iteration before as committed, and its time
    is when the order is given, so a fault comes a little after it is counted from. A node is lost
    by this process and not by a drill, which would let it go on after a while.
    """

    name: str = "unicron/default"
    what: str = (
        "`unicron demo --headless --auto-heal` with this one task on two nodes behind SSH; faults by"
        " its drills, but for a lost node, which the drill would let go on"
    )

    def run(self, scenario: FaultScenario, directory: Path, context: CampaignContext) -> RunOutcome:
        """Train once in the empty ``directory``, breaking as ``scenario`` says."""
        workload = context.workload
        event_log, report = directory / "events.jsonl", directory / "report.json"
        words = [
            *(str(context.programs / "python"), "-m", "controller.cli", "demo"),
            *("--tasks", str(_write_task(workload, directory))),
            *("--nodes", str(NUM_NODES)),
            *("--workers-per-node", str(workload.num_ranks_per_node)),
            *("--seed", str(workload.seed), "--iterations", str(workload.num_iterations)),
            *("--headless", "--auto-heal", "--json", "--event-log", str(event_log)),
        ]
        drilled = [fault for fault in scenario.faults if fault.kind in _DRILLS]
        for fault in drilled:
            words += ["--drill", _drill(fault, workload)]
        outside = [fault for fault in scenario.faults if fault not in drilled]
        source = EventLogReader(event_log, workload.num_micro_batches, outside)
        run = Run(workload, Limits(recovery_s=scenario.recovery_limit_s), directory, context.show)
        outcome = run.make([Command(words)], source, stdout=report)
        if outcome.figures and report.exists():
            _add_reported(outcome.figures, json.loads(report.read_text() or "{}"))
        return outcome


def _drill(fault: PlannedFault, workload: Workload) -> str:
    return _DRILLS[fault.kind].format(
        after=fault.iteration - 1,
        rank=fault.global_rank,
        node=fault.global_rank // workload.num_ranks_per_node + 1,
    )


def _add_reported(figures: Figures, report: dict[str, Any]) -> None:
    """Add what only the controller knows."""
    incidents = report.get("incidents", [])
    figures.num_recomputed_micro_batches = _sum_of(incidents, "recomputed_micro_batches")
    figures.num_saved_micro_batches = _sum_of(incidents, "saved_micro_batches")
    figures.state_sources = [
        str(incident["state_source"]) for incident in incidents if "state_source" in incident
    ]
    figures.num_ranks_at_end = sum(task["workers"] for task in report.get("tasks", [])) or None


def _sum_of(incidents: Sequence[dict[str, Any]], key: str) -> int | None:
    """Return the sum over all incidents, or None if one does not tell."""
    if any(incident.get(key) is None for incident in incidents):
        return None
    return sum(int(incident[key]) for incident in incidents)


def _write_task(workload: Workload, directory: Path) -> Path:
    """Write the task profile of the workload. Its throughput is a guess; only plans use it."""
    least = min(workload.num_ranks_per_node, max(1, workload.num_ranks - 1))
    sizes = [n for n in range(least, workload.num_ranks + 1) if workload.num_micro_batches % n == 0]
    points = ",\n".join(
        f"    {{ workers = {n}, flops_per_s = {3e9 * n:g},"
        f" layout = {{ tp = 1, pp = 1, dp = {n} }} }}"
        for n in sizes
    )
    path = directory / "tasks.toml"
    path.write_text(f"""\
[[task]]
name = "gpt"
weight = 1.0
workers = {workload.num_ranks}
min_workers = {sizes[0]}
num_micro_batches = {workload.num_micro_batches}
micro_batch_size = {workload.micro_batch_size}
learning_rate = {workload.learning_rate!r}
checkpoint_interval = {workload.checkpoint_interval}

[task.model]
num_layers = {workload.num_layers}
hidden_size = {workload.hidden_size}
num_attention_heads = {workload.num_attention_heads}
seq_length = {workload.seq_length}
vocab_size = {workload.vocab_size}

[task.throughput]
points = [
{points},
]
""")
    return path
