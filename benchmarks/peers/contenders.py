"""One contender's run: what is started, where its records come from, and what else it tells."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from peers.eventlog import EventLogReader
from peers.journal import JournalReader, Record
from peers.measurement import measure
from peers.plan import Fault, Plan, Workload
from peers.processes import Herd
from peers.run import Limits, Outcome, Source, Watch, follow, tail
from peers.variants import Command, Variant, environment


@dataclass(frozen=True, slots=True)
class Context:
    """What all runs of a campaign share.

    Attributes:
        programs: Where the virtual environment has its programs.
        show: Told the records of the run again and again.
    """

    programs: Path
    workload: Workload
    limits: Limits
    show: Callable[[Sequence[Record]], None]


class Contender(Protocol):
    """A way to survive faults."""

    @property
    def name(self) -> str:
        """Name on the command line and in the results."""
        ...

    @property
    def what(self) -> str:
        """Its settings in words."""
        ...

    def run(self, faults: Sequence[Fault], directory: Path, context: Context) -> Outcome:
        """Train once in the empty ``directory``, breaking as ``faults`` say."""
        ...


@dataclass(frozen=True, slots=True)
class Alternative:
    """Anything that runs the benchmark's own training."""

    variant: Variant

    @property
    def name(self) -> str:
        """Name on the command line and in the results."""
        return self.variant.name

    @property
    def what(self) -> str:
        """Its settings in words."""
        return self.variant.what

    def run(self, faults: Sequence[Fault], directory: Path, context: Context) -> Outcome:
        """Train once in the empty ``directory``, breaking as ``faults`` say."""
        variant = self.variant
        plan = Plan(context.workload, tuple(faults), str(directory), dict(variant.settings))
        plan.write()
        commands = variant.commands(context.programs, plan)
        source = JournalReader(plan.journal)
        return _run(commands, source, directory, context, num_servers=variant.num_servers)


@dataclass(frozen=True, slots=True)
class Unicron:
    """The real thing: a controller, agents on nodes behind SSH, ranks, and drills that break them.

    A drill is carried out when the controller knows the iteration before as committed, and its time
    is when the order is given, so a fault comes a little after it is counted from.
    """

    num_nodes: int = 2
    name: str = "unicron/default"
    what: str = (
        "`unicron demo --headless --auto-heal` with this one task on two nodes behind SSH; faults by"
        " its drills"
    )

    def run(self, faults: Sequence[Fault], directory: Path, context: Context) -> Outcome:
        """Train once in the empty ``directory``, breaking as ``faults`` say."""
        workload = context.workload
        event_log, report = directory / "events.jsonl", directory / "report.json"
        words = [
            *(str(context.programs / "python"), "-m", "controller.cli", "demo"),
            *("--tasks", str(_write_task(workload, directory))),
            *("--nodes", str(self.num_nodes)),
            *("--workers-per-node", str(math.ceil(workload.num_ranks / self.num_nodes))),
            *("--seed", str(workload.seed), "--iterations", str(workload.num_iterations)),
            *("--headless", "--auto-heal", "--json", "--event-log", str(event_log)),
        ]
        kinds = {"kill": "kill-rank", "exception": "exception"}
        for fault in faults:
            drill = f"{kinds[fault.kind]}@{fault.iteration - 1}:rank={fault.global_rank}"
            words += ["--drill", drill]
        source = EventLogReader(event_log, workload.num_micro_batches)
        outcome = _run([Command(words)], source, directory, context, stdout=report)
        if outcome.figures and report.exists():
            incidents = json.loads(report.read_text() or "{}").get("incidents", [])
            outcome.figures.num_recomputed_micro_batches = _sum_of(
                incidents, "recomputed_micro_batches"
            )
            outcome.figures.num_saved_micro_batches = _sum_of(incidents, "saved_micro_batches")
            outcome.figures.state_sources = [
                str(incident["state_source"])
                for incident in incidents
                if "state_source" in incident
            ]
        return outcome


def _run(
    commands: Sequence[Command],
    source: Source,
    directory: Path,
    context: Context,
    *,
    num_servers: int = 0,
    stdout: Path | None = None,
) -> Outcome:
    log = directory / "log.txt"
    watch = Watch(source, context.workload.num_iterations, context.limits)
    with Herd(log) as herd:
        for command in commands:
            herd.start(command.words, environment(command.environment), stdout)
        reason = follow(
            watch, herd, num_servers=num_servers, limits=context.limits, show=context.show
        )
        # Read before the clean-up, which makes ranks say more.
        last_words = tail(log)
    if reason is not None:
        return Outcome(None, reason, int(watch.is_recovering), last_words)
    return Outcome(measure(watch.records, watch.began_at, context.workload.num_micro_batches))


def _sum_of(incidents: Sequence[dict[str, Any]], key: str) -> int | None:
    """Return the sum over all incidents, or None if one does not tell."""
    if any(incident.get(key) is None for incident in incidents):
        return None
    return sum(int(incident[key]) for incident in incidents)


def _write_task(workload: Workload, directory: Path) -> Path:
    """Write the task profile of the workload. Its throughput is a guess that only a plan would use."""
    sizes = [n for n in (workload.num_ranks - 1, workload.num_ranks) if n > 0]
    sizes = [n for n in sizes if workload.num_micro_batches % n == 0]
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
