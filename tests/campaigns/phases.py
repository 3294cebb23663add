"""The campaign over the phases of an iteration: every point, on every rank, with real ranks.

    python -m tests.campaigns.phases [--layout NAME ...] [--point POINT ...] [--seed N]
    [--write-docs] python -m tests.campaigns.phases --device cuda [--seed N]

All of it takes hours; ``--seed`` takes one case of each kind, which takes half an hour, and
``--part 1/4`` every fourth case, so that all can be run in parts. A line per case and a table go to
standard output. The exit code is 1 if anything did not hold, or was not run. Ctrl-C or SIGTERM ends
it with the table of the layouts and optimizers that were run to their end.
"""

import argparse
import contextlib
import datetime as dt
import itertools
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import get_args

from tests.campaigns.matrix import LAYOUTS, Case, all_cases, sample
from tests.campaigns.report import ALL, Failure, Findings, Record, Summary, line, table
from tests.campaigns.trial import Trials
from tests.fakes.directories import short_directory
from tests.fakes.fault_points import Point
from tests.fakes.rank_host import FAULTY_GPU_TEMPLATE, FAULTY_TEMPLATE, REPOSITORY, rank_host

_OPTIMIZERS = ("plain", "sharded")
_OPTIMIZERS_BF16 = ("plain-bf16", "sharded-bf16")
_REPLICAS_ALONE = [name for name, layout in LAYOUTS.items() if layout.dp == layout.num_workers]
_TEMPLATES = {"cpu": FAULTY_TEMPLATE, "cuda": FAULTY_GPU_TEMPLATE}
_USUAL = [name for name, layout in LAYOUTS.items() if layout.dp == 2 or name in _REPLICAS_ALONE]
"""Those that are run where none is named.

The others have the same kinds of cases with more ranks.
"""
_PAGE = REPOSITORY / "docs" / "campaigns" / "phases.md"


def main(arguments: Sequence[str]) -> int:
    """Run the campaign and return the exit code."""
    options = _parse(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        # Also where it was started in the background, with SIGINT ignored: its ranks are ended with
        # it.
        signal.signal(number, signal.default_int_handler)
    parts = [(part, cases) for part in _parts(options) if (cases := _cases(*part, options))]
    if not parts:
        sys.stderr.write("phases: no case is at such a point\n")
        return 2
    try:
        record = Record(_PAGE) if options.write_docs else None
    except ValueError as error:
        sys.stderr.write(f"phases: the results beside {_PAGE} can't be read: {error}\n")
        return 2
    summaries: list[Summary] = []
    commit = _commit()
    with contextlib.suppress(KeyboardInterrupt):
        for (layout, optimizer), cases in parts:
            findings = _run(cases, options)
            today = dt.datetime.now(dt.UTC).date()  # noqa: TID251 - of the page
            summary = findings.summary(layout, optimizer, _selection(options))
            when = {"date": today.isoformat(), "commit": commit}
            summaries.append(summary.model_copy(update=when))
            if record is not None:
                record.add(summaries[-1])
    failures = [failure for summary in summaries for failure in summary.failures]
    _tell(f"\n{table(summaries)}\n")
    _tell(f"{sum(one.num_cases for one in summaries)} cases, {len(failures)} failed")
    for failure in failures:
        _tell(f"FAILED {failure}")
    return 1 if failures or len(summaries) < len(parts) else 0


def _run(cases: Sequence[Case], options: argparse.Namespace) -> Findings:
    findings = Findings()
    with short_directory() as directory, rank_host(directory, _TEMPLATES[options.device]) as host:
        trials = Trials(host, directory, options.limit_s)
        for number, case in enumerate(cases, 1):
            try:
                outcome = trials.run(case, _tell)
            except AssertionError as error:
                reason = str(error) or "an assertion without words"
                findings.failures.append(Failure(case, reason))
                _tell(line(number, len(cases), case, reason))
            else:
                findings.outcomes.append((case, outcome))
                _tell(line(number, len(cases), case, outcome))
    return findings


def _selection(options: argparse.Namespace) -> str:
    if options.seed is not None:
        return f"seed {options.seed}"
    return ALL if options.part is None else "part {} of {}".format(*options.part)


def _commit() -> str:
    """Return the commit of what is run, with a mark where files differ that do not document it.

    Empty outside of a clone.
    """
    try:
        described = _git("describe", "--always")
        differs = _git("diff", "--quiet", "HEAD", "--", ".", ":!docs").returncode == 1
    except FileNotFoundError:
        return ""
    return described.stdout.strip() + "+" * differs


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-C", str(REPOSITORY), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _parts(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    return itertools.product(options.layout or _USUAL, options.optimizer)


def _cases(layout: str, optimizer: str, options: argparse.Namespace) -> list[Case]:
    cases = [
        case
        for case in all_cases(
            layout,
            is_sharded=optimizer.startswith("sharded"),
            bf16=optimizer.endswith("bf16"),
        )
        if not options.point or case.point in options.point
    ]
    if options.part is not None:
        number, num_parts = options.part
        return cases[number - 1 :: num_parts]
    return cases if options.seed is None else sample(cases, options.seed)


def _part(text: str) -> tuple[int, int]:
    number, _, num_parts = text.partition("/")
    if not (number.isdecimal() and num_parts.isdecimal() and 1 <= int(number) <= int(num_parts)):
        raise argparse.ArgumentTypeError(f"{text!r}: say which of how many, as in 1/4")
    return int(number), int(num_parts)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="phases", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--layout", nargs="+", choices=LAYOUTS, help=f"these layouts (default: {' '.join(_USUAL)})"
    )
    parser.add_argument(
        "--point", nargs="+", choices=get_args(Point), help="faults at these points only"
    )
    parser.add_argument(
        "--optimizer",
        nargs="+",
        choices=(*_OPTIMIZERS, *_OPTIMIZERS_BF16),
        default=_OPTIMIZERS,
        help="whether its state is sharded over the replicas, and the model in bfloat16"
        f" (default: {' and '.join(_OPTIMIZERS)})",
    )
    some = parser.add_mutually_exclusive_group()
    some.add_argument("--seed", type=int, help="one case of each kind, chosen by this seed")
    some.add_argument("--part", type=_part, metavar="K/N", help="every Nth case, from the Kth on")
    parser.add_argument(
        "--device",
        choices=list(_TEMPLATES),
        default="cpu",
        help="where tensors are; with cuda all on the first GPU, with gloo between the ranks, so only"
        f" for {', '.join(_REPLICAS_ALONE)}",
    )
    parser.add_argument("--limit-s", type=float, default=60.0, help="how long a case may wait")
    parser.add_argument(
        "--write-docs", action="store_true", help=f"add the results to docs/campaigns/{_PAGE.name}"
    )
    options = parser.parse_args(arguments)
    if options.write_docs and options.point:
        parser.error("--write-docs: results of some points only are not written")
    if options.device == "cuda":
        _check_for_gpu(parser, options)
    return options


def _check_for_gpu(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    options.layout = options.layout or _REPLICAS_ALONE
    if not set(options.layout) <= set(_REPLICAS_ALONE):
        parser.error(f"--device cuda: gloo can do it for {', '.join(_REPLICAS_ALONE)} only")
    if options.write_docs:
        parser.error("--write-docs: the page has results of CPUs only")
    import torch

    if not torch.cuda.is_available():
        parser.error("--device cuda: torch finds no GPU")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
