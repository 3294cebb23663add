"""Compares recovery from a fault: Unicron and what else there is, on the same training.

    python benchmarks/recovery_comparison.py [--runs N] [--quick] [--only NAME ...] [--scenario NAME
        ...]

Each contender trains the same GPT on the same data with the same seed; the same rank breaks at the
same iteration. Measured are the time from the fault to the next committed iteration, what is
computed again, and the whole run. A virtual environment of its own is made on the first call.
Results go to a JSON file after every run; a campaign that was interrupted, or ended by
``--minutes``, goes on where it stopped. At its end, and on Ctrl-C, the tables are printed on
standard output; ``--write-docs`` puts them and the plot into docs/benchmarks.md.

These are measurements of one machine at one time, not limits.
"""

import argparse
import dataclasses
import math
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from harness.result_pages import write_section
from peers.campaign_rounds import CampaignBounds, CampaignProgress, run_campaign
from peers.contenders.alternative_settings import ROOT, VARIANTS, environment
from peers.contenders.contender import AlternativeContender, CampaignContext, Contender
from peers.contenders.unicron_demo import Unicron
from peers.machine.peer_environment import prepare, versions
from peers.machine.process_herd import adopt_orphans
from peers.runs.fault_scenarios import SCENARIOS, FaultScenario, scenarios
from peers.runs.workload_plan import Workload
from peers.tables.recovery_summary import summary_of, write_summary
from peers.tables.recovery_tables import tables
from peers.tables.results_file import Results, ResultsError, open_results

_RUNS = ROOT / "benchmarks" / ".recovery-runs.json"
_SUMMARY = ROOT / "docs" / "benchmarks" / "recovery_comparison.json"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PAGE = ROOT / "docs" / "benchmarks.md"


def main() -> int:
    """Run the campaign; return the exit code."""
    contenders: list[Contender] = [
        *(AlternativeContender(variant) for variant in VARIANTS),
        Unicron(),
    ]
    arguments = _parse([contender.name for contender in contenders])
    workload = _workload(arguments)
    try:
        chosen_scenarios = _choose_scenarios(arguments, workload)
        programs = prepare(arguments.venv)
        results = open_results(
            arguments.output,
            workload,
            versions(programs),
            "python benchmarks/recovery_comparison.py",
            is_fresh=arguments.fresh,
        )
    except (ResultsError, ValueError) as error:
        sys.stderr.write(f"recovery_comparison.py: {error}\n")
        return 2
    chosen = [c for c in contenders if _is_chosen(c.name, arguments.only)]
    results.settings.update({contender.name: contender.what for contender in contenders})
    progress = CampaignProgress()
    context = CampaignContext(programs, workload, progress.show)
    adopt_orphans()
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    code = 0
    try:
        num_left = run_campaign(
            results,
            chosen,
            chosen_scenarios,
            CampaignBounds(arguments.runs, arguments.minutes),
            context,
            progress,
        )
        if num_left:
            sys.stderr.write(f"time is up, {num_left} runs are left; the same command goes on\n")
    except KeyboardInterrupt:
        progress.end("interrupted; the same command goes on from here")
        code = 130
    _tell(results, programs, into_docs=arguments.write_docs)
    return code


def _parse(names: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0] if __doc__ else None,
        epilog=f"contenders: {', '.join(names)}",
    )
    _add_campaign_arguments(parser)
    _add_place_arguments(parser)
    workload = parser.add_argument_group("training")
    for field in dataclasses.fields(Workload):
        workload.add_argument(
            f"--{field.name.removeprefix('num_').replace('_', '-')}",
            dest=field.name,
            type=type(field.default),
            default=field.default,
            metavar="N",
            help=f"(default {field.default})",
        )
    arguments = parser.parse_args()
    if mistake := _mistake(arguments, names):
        parser.error(mistake)
    if arguments.quick:
        arguments.runs = 1
    return arguments


def _add_campaign_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options that say what is run."""
    parser.add_argument("--runs", type=int, default=10, metavar="N", help="of each (default 10)")
    parser.add_argument(
        "--minutes",
        type=float,
        default=math.inf,
        metavar="N",
        help="end after about N minutes; the same command goes on later (default: no limit)",
    )
    parser.add_argument("--quick", action="store_true", help="one run of each, one fault at most")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="these contenders (or PEER/SETTING)"
    )
    parser.add_argument(
        "--scenario",
        nargs="+",
        default=[],
        metavar="NAME",
        help=f"of {', '.join(SCENARIOS)} (default: all)",
    )
    parser.add_argument("--rank", type=int, default=2, help="the rank that breaks (default 2)")
    parser.add_argument(
        "--recovery-limit",
        type=float,
        metavar="SECONDS",
        help="not recovered after this (default 60; 120 for a hang and a node)",
    )


def _add_place_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options that say where things are."""
    parser.add_argument(
        "--output", type=Path, default=_RUNS, metavar="FILE", help="every run, JSON"
    )
    parser.add_argument("--fresh", action="store_true", help="replace results that are there")
    parser.add_argument(
        "--write-docs", action="store_true", help=f"update {_PAGE.name}, its summary and its plot"
    )
    parser.add_argument(
        "--venv",
        type=Path,
        default=ROOT / "benchmarks" / ".venv-peers",
        metavar="DIR",
        help="virtual environment of the alternatives",
    )


def _mistake(arguments: argparse.Namespace, names: Sequence[str]) -> str | None:
    """Return what is wrong with the options, or None."""
    for name in arguments.only:
        if not any(_is_chosen(known, [name]) for known in names):
            return f"--only {name}: there are {', '.join(names)}"
    for name in arguments.scenario:
        if name not in SCENARIOS:
            return f"--scenario {name}: there are {', '.join(SCENARIOS)}"
    if arguments.num_micro_batches % arguments.num_ranks:
        return (
            f"--micro-batches {arguments.num_micro_batches}: must be a multiple of"
            f" --ranks {arguments.num_ranks}"
        )
    if not 0 < arguments.rank < arguments.num_ranks:
        return (
            f"--rank {arguments.rank}: must be 1 to {arguments.num_ranks - 1} (rank 0 writes the"
            " checkpoints, and in-process restart can't do without it)"
        )
    if arguments.runs < 1:
        return f"--runs {arguments.runs}: must be at least 1"
    return None


def _workload(arguments: argparse.Namespace) -> Workload:
    return Workload(**{f.name: getattr(arguments, f.name) for f in dataclasses.fields(Workload)})


def _choose_scenarios(arguments: argparse.Namespace, workload: Workload) -> list[FaultScenario]:
    chosen = [
        each
        for each in scenarios(workload, arguments.rank)
        if each.name in (arguments.scenario or SCENARIOS)
        and (arguments.scenario or not arguments.quick or len(each.faults) <= 1)
    ]
    if arguments.recovery_limit is None:
        return chosen
    return [dataclasses.replace(s, recovery_limit_s=arguments.recovery_limit) for s in chosen]


def _is_chosen(name: str, wanted: Sequence[str]) -> bool:
    return not wanted or name in wanted or name.partition("/")[0] in wanted


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    # Once: a second one must not interrupt the clean-up.
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _tell(results: Results, programs: Path, *, into_docs: bool) -> None:
    """Print the tables and, if wanted, put them and the plot into the documentation."""
    if not results.runs:
        return
    summary = summary_of(results)
    text = tables(summary)
    sys.stdout.write(f"{text}\n")
    if into_docs:
        write_summary(summary, _SUMMARY)
        plot = _SUMMARY.with_suffix(".svg")
        draw = [
            str(programs / "python"),
            "-m",
            "peers.tables.recovery_plot",
            str(_SUMMARY),
            str(plot),
        ]
        subprocess.run(draw, check=True, env=environment({}), stdout=2)
        write_section(
            _PAGE, "recovery_comparison", f"![Recovery times](benchmarks/{plot.name})\n\n{text}"
        )


if __name__ == "__main__":
    sys.exit(main())
