"""What a campaign over the phases found, as text: a line per case, a table, a page for the docs.

Results are kept by layout and optimizer beside the page, so that a campaign of hours can be run in
parts.
"""

import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Final, get_args

from pydantic import BaseModel, ConfigDict, TypeAdapter

from controller.core.rules.regroup.next_generation import Rung
from tests.campaigns.matrix import LAYOUTS, NUM_ITERATIONS, NUM_MICRO_BATCHES, Case
from tests.campaigns.trial import Outcome

ALL: Final = "all"
_PACKAGES: Final = ("unicron", "torch", "megatron-core")
_RUNGS: Final[tuple[Rung, ...]] = get_args(Rung)

_COLUMNS: Final = (
    *("layout", "optimizer", "cases", "failed", "two faults", *_RUNGS),
    *("stuck", "largest difference", "median s", "date", "commit"),
)

_PAGE: Final = """\
# Faults in every phase of an iteration

    make phases ARGS=--write-docs                   # every case of the layouts of up to 4 ranks and tp2-pp2-dp2; hours
    make phases ARGS="--seed 7 --write-docs"        # one case of each kind
    make phases ARGS="--layout dp2 --optimizer plain --write-docs"
    make phases ARGS="--part 1/8 --write-docs"      # all of it in eight parts, on eight evenings

A rank is lost at an exact point, the others park, the core decides, and the task goes on with a
replacement or with one replica less. A task has {num_iterations} iterations of {num_micro_batches}
micro-batches, several gradient buckets, dropout, tied embeddings and sequence parallelism. Each case is
compared with the run without a fault:

- losses of all iterations (relative difference 1e-5), and final parameters on disk (relative L2
  difference 1e-5 over all of them); both bit by bit where the sums are taken in the same order,
- every bucket of every iteration holds every micro-batch once,
- survivors go on in their processes, and the counters say what was saved and computed again.

In-memory checkpoints are complete before training goes on, so that a case is the same whenever it is run; faults while
they are on their way have tests of their own (`tests/ranks/test_memory.py`, `tests/property`).

{num_cases} cases, {num_failures} failed. Cases are *all* of a layout and optimizer, a part of them, or one of each kind, drawn by a
seed: cases of a kind differ in the rank that is lost and in what follows. The columns of rungs
count regroups; a case with two faults has two, and is run again where the second one comes to nothing,
since less was reduced when the first one struck. A survivor is *stuck* if it has not parked after ten
seconds: it waits in an operation that gloo has forgotten (`nodeagent/rank/groups/halting.py`), and is replaced.

{table}

{versions}; gloo on CPUs.
"""


class Summary(BaseModel):
    """The results of the cases of one layout and optimizer.

    Attributes:
        selection: ``all``, or the part that was run.
        failures: Case and reason of each failure.
        num_double: Cases with two faults.
        num_by_rung: Regroups by how they took up training.
        num_stuck: Survivors that did not park in time.
        difference: Largest relative L2 difference of the final parameters.
        median_s: Duration of a case.
        commit: The commit that was run; empty in results that do not record it.
        versions: Versions of the libraries.
    """

    model_config = ConfigDict(frozen=True)

    layout: str
    optimizer: str
    selection: str
    num_cases: int
    failures: tuple[str, ...]
    num_double: int
    num_by_rung: dict[Rung, int]
    num_stuck: int
    difference: float
    median_s: float
    versions: str
    date: str = ""
    commit: str = ""

    @property
    def row(self) -> str:
        """The row of the table."""
        cells = (
            *(self.layout, self.optimizer, f"{self.selection}: {self.num_cases}"),
            *(len(self.failures), self.num_double),
            *(self.num_by_rung.get(rung, 0) for rung in _RUNGS),
            *(self.num_stuck, f"{self.difference:.1e}", f"{self.median_s:.1f}"),
            *(self.date, self.commit or "-"),
        )
        return f"| {' | '.join(map(str, cells))} |"


@dataclass(frozen=True)
class Failure:
    """A case in which something did not hold."""

    case: Case
    reason: str


@dataclass
class Findings:
    """The results of the cases of one layout and optimizer."""

    outcomes: list[tuple[Case, Outcome]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def summary(self, layout: str, optimizer: str, selection: str) -> Summary:
        """Return the result, without its date."""
        cases = [*(case for case, _ in self.outcomes), *(one.case for one in self.failures)]
        outcomes = [outcome for _, outcome in self.outcomes]
        times = sorted(outcome.duration_s for outcome in outcomes)
        return Summary(
            layout=layout,
            optimizer=optimizer,
            selection=selection,
            num_cases=len(cases),
            failures=tuple(f"{one.case}: {one.reason.splitlines()[0]}" for one in self.failures),
            num_double=sum(len(case.faults) > 1 for case in cases),
            num_by_rung=Counter(rung for outcome in outcomes for rung in outcome.rungs),
            num_stuck=sum(outcome.num_stuck for outcome in outcomes),
            difference=max((outcome.difference for outcome in outcomes), default=0.0),
            median_s=times[len(times) // 2] if times else 0.0,
            versions=", ".join(
                [f"Python {platform.python_version()}", *(f"{n} {version(n)}" for n in _PACKAGES)]
            ),
        )


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


def table(summaries: Iterable[Summary]) -> str:
    """Return a Markdown table: a row per layout, optimizer and selection."""
    rows = [f"| {' | '.join(_COLUMNS)} |", "|---|---|--:" + "|--:" * (len(_COLUMNS) - 3) + "|"]
    return "\n".join([*rows, *(summary.row for summary in summaries)])


class Record:
    """Results so far, in a file beside the page.

    Args:
        page: The page; results are kept beside it as JSON.

    Raises:
        ValueError: The file holds something else.
    """

    def __init__(self, page: Path) -> None:
        self._page = page
        self._data = page.with_suffix(".json")
        self._type = TypeAdapter(list[Summary])
        text = self._data.read_bytes() if self._data.exists() else b"[]"
        self._summaries = self._type.validate_json(text)

    def add(self, new: Summary) -> None:
        """Add a result and write the page.

        It replaces those of the same cases, or of some of them.
        """
        kept = [old for old in self._summaries if not _replaces(new, old)]
        order = list(LAYOUTS)
        self._summaries = sorted(
            [*kept, new], key=lambda one: (order.index(one.layout), one.optimizer, one.selection)
        )
        self._page.parent.mkdir(exist_ok=True)
        self._data.write_bytes(self._type.dump_json(self._summaries, indent=1) + b"\n")
        self._page.write_text(_page(self._summaries))


def _replaces(new: Summary, old: Summary) -> bool:
    is_same = (new.layout, new.optimizer) == (old.layout, old.optimizer)
    return is_same and new.selection in {ALL, old.selection}


def _page(summaries: Sequence[Summary]) -> str:
    failures = [f"- {failure}\n" for one in summaries for failure in one.failures]
    text = _PAGE.format(
        num_iterations=NUM_ITERATIONS,
        num_micro_batches=NUM_MICRO_BATCHES,
        num_cases=sum(one.num_cases for one in summaries),
        num_failures=len(failures),
        table=table(summaries),
        versions="; ".join(sorted({one.versions for one in summaries})),
    )
    return text + "".join(["\n## Failures\n\n", *failures] if failures else [])
