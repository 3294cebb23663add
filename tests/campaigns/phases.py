"""The campaign over the phases of an iteration: every point, on every rank, with real ranks.

    python -m tests.campaigns.phases [--layout NAME ...] [--point POINT ...] [--seed N] [--write-docs]

All of it takes hours; ``--seed`` takes one case of each kind, which takes a quarter of an hour. A line
per case and a table go to standard output. The exit code is 1 if anything did not hold. Ctrl-C ends
it with the table of what was run.
"""

import argparse
import contextlib
import datetime as dt
import itertools
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

from tests.campaigns.matrix import LAYOUTS, Case, all_cases, sample
from tests.campaigns.report import Failure, Findings, line, page, table
from tests.campaigns.trial import Trials
from tests.fakes.fault_points import Point
from tests.fakes.rank_host import FAULTY_TEMPLATE, REPOSITORY, rank_host

_OPTIMIZERS = ("plain", "sharded")
_PAGE = REPOSITORY / "docs" / "campaigns" / "phases.md"


def main(arguments: Sequence[str]) -> int:
    """Run the campaign and return the exit code."""
    options = _parse(arguments)
    cases = list(_chosen(options))
    if not cases:
        sys.stderr.write("phases: no case is at such a point\n")
        return 2
    findings = Findings()
    with contextlib.suppress(KeyboardInterrupt):
        _run(cases, findings, options.limit_s)
    _tell(f"\n{table(findings)}\n\n{findings.num_cases} cases, {len(findings.failures)} failed")
    for failure in findings.failures:
        _tell(f"FAILED {failure.case}: {failure.reason.splitlines()[0]}")
    if options.write_docs:
        _PAGE.parent.mkdir(exist_ok=True)
        today = dt.datetime.now(dt.UTC).date()  # noqa: TID251 - of the page
        _PAGE.write_text(page(findings, arguments, today))
    return 1 if findings.failures else 0


def _run(cases: Sequence[Case], findings: Findings, limit_s: float) -> None:
    with _directory() as directory, rank_host(directory, FAULTY_TEMPLATE) as host:
        trials = Trials(host, directory, limit_s)
        for number, case in enumerate(cases, 1):
            try:
                outcome = trials.run(case)
            except AssertionError as error:
                reason = str(error) or "an assertion without words"
                findings.failures.append(Failure(case, reason))
                _tell(line(number, len(cases), case, reason))
            else:
                findings.outcomes.append((case, outcome))
                _tell(line(number, len(cases), case, outcome))


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    # A short path: the name of a unix socket has at most 107 bytes.
    directory = Path(tempfile.mkdtemp(prefix="up-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def _chosen(options: argparse.Namespace) -> Iterator[Case]:
    for name, optimizer in itertools.product(options.layout or LAYOUTS, options.optimizer):
        cases = [
            case
            for case in all_cases(name, is_sharded=optimizer == "sharded")
            if not options.point or case.point in options.point
        ]
        yield from cases if options.seed is None else sample(cases, options.seed)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="phases", description=__doc__.splitlines()[0])
    parser.add_argument("--layout", nargs="+", choices=LAYOUTS, help="these layouts only")
    parser.add_argument(
        "--point", nargs="+", choices=get_args(Point), help="faults at these points only"
    )
    parser.add_argument(
        "--optimizer",
        nargs="+",
        choices=_OPTIMIZERS,
        default=_OPTIMIZERS,
        help="whether its state is sharded over the replicas (default: both)",
    )
    parser.add_argument("--seed", type=int, help="one case of each kind, chosen by this seed")
    parser.add_argument("--limit-s", type=float, default=60.0, help="how long a case may wait")
    parser.add_argument("--write-docs", action="store_true", help=f"write {_PAGE.name}")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
