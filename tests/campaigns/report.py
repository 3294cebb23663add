"""What a campaign over the phases found, as text: a line per case, a table, a page for the docs."""

import datetime as dt
import platform
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

from tests.campaigns.matrix import NUM_ITERATIONS, NUM_MICRO_BATCHES, Case
from tests.campaigns.trial import Outcome

_PACKAGES = ("torch", "megatron-core", "numpy")

_COLUMNS = (
    *("layout", "cases", "failed", "two faults", "commit", "reuse", "re-run", "restore"),
    *("stuck", "largest difference", "median s"),
)

_PAGE = """\
# Faults in every phase of an iteration

Written by `{command}` on {today}; {versions}, Python {python}, gloo on CPUs.

A rank is lost at an exact point, the others park, the core decides, and the task goes on with a
replacement or with one replica less. A task has {num_iterations} iterations of {num_micro_batches}
micro-batches, several gradient buckets, dropout, tied embeddings and sequence parallelism. Each case is
compared with the run without a fault:

- losses of all iterations (relative difference 1e-5), and final parameters on disk (relative L2
  difference 1e-5 over all of them); both bit by bit where the sums are taken in the same order,
- every bucket of every iteration holds every micro-batch once,
- survivors go on in their processes, and the counters say what was saved and computed again.

{num_cases} cases, {num_failures} failed. The columns of rungs count regroups; a case with two faults has
two. A survivor is stuck if it has not parked after ten seconds: it waits in an operation that gloo has
forgotten to wake, which happens where more ranks run than the machine has cores, and is replaced.

{table}
"""


@dataclass(frozen=True)
class Failure:
    """A case in which something did not hold."""

    case: Case
    reason: str


@dataclass
class Findings:
    """What the cases run so far were like."""

    outcomes: list[tuple[Case, Outcome]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    @property
    def num_cases(self) -> int:
        return len(self.outcomes) + len(self.failures)


def line(number: int, total: int, case: Case, result: Outcome | str) -> str:
    """Return the progress line of a case."""
    if isinstance(result, str):
        return f"{number:5d}/{total} FAILED {case}\n{result}"
    rungs = ", then ".join(result.rungs)
    stuck = f", {result.num_stuck} stuck" if result.num_stuck else ""
    return (
        f"{number:5d}/{total} {case}: {rungs}, parameters differ by {result.difference:.1e},"
        f" {result.duration_s:.1f} s{stuck}"
    )


def table(findings: Findings) -> str:
    """Return a Markdown table: a row per layout."""
    rows = ["|" + "|".join(f" {column} " for column in _COLUMNS) + "|"]
    rows.append("|---" + "|--:" * (len(_COLUMNS) - 1) + "|")
    cases = [
        *(case for case, _ in findings.outcomes),
        *(failure.case for failure in findings.failures),
    ]
    for name in dict.fromkeys(case.layout_name for case in cases):
        here = [outcome for case, outcome in findings.outcomes if case.layout_name == name]
        num_failed = sum(failure.case.layout_name == name for failure in findings.failures)
        num_double = sum(len(case.faults) > 1 for case in cases if case.layout_name == name)
        rungs = [rung for outcome in here for rung in outcome.rungs]
        counts = [rungs.count(rung) for rung in ("commit", "reuse", "re-run", "restore")]
        largest = max((outcome.difference for outcome in here), default=0.0)
        times = sorted(outcome.duration_s for outcome in here)
        median = f"{times[len(times) // 2]:.1f}" if times else "-"
        num_stuck = sum(outcome.num_stuck for outcome in here)
        cells = [len(here) + num_failed, num_failed, num_double, *counts, num_stuck]
        rows.append(f"| {name} | {' | '.join(map(str, cells))} | {largest:.1e} | {median} |")
    return "\n".join(rows)


def page(findings: Findings, arguments: Sequence[str], today: dt.date) -> str:
    """Return the page for the docs."""
    text = _PAGE.format(
        command=shlex.join(["python", "-m", "tests.campaigns.phases", *arguments]),
        today=today,
        versions=", ".join(f"{name} {version(name)}" for name in _PACKAGES),
        python=platform.python_version(),
        num_iterations=NUM_ITERATIONS,
        num_micro_batches=NUM_MICRO_BATCHES,
        num_cases=findings.num_cases,
        num_failures=len(findings.failures),
        table=table(findings),
    )
    failed = [f"- {one.case}: {one.reason.splitlines()[0]}\n" for one in findings.failures]
    return text + "".join(["\n## Failures\n\n", *failed] if failed else [])
