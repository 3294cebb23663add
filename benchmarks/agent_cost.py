"""Measures what the node agent and its detectors cost a training that has no fault.

    python benchmarks/agent_cost.py [--ranks N ...] [--rounds N] [--pairs N] [--block SECONDS]
        [--write-docs]

One node behind an SSH server, its agent with all probes on, a session with it through SSH, and
ranks that the agent has started and supervises: the built-in GPT's model and data in plain
Megatron's loop, a command with the two lines of ``attach()``. Blocks of iterations take turns in
the same processes:

- *on*: the agent runs, every rank tells it of every iteration, what it reports goes through SSH and
  is acknowledged, and its probes look at their intervals;
- *off*: the agent is stopped (SIGSTOP), and the ranks say nothing, so that nobody waits for it.

What came due while the agent was stopped is done at the beginning of the next block and counts, so
there is more of it per second than usual: the ratio is an upper bound in that. The kernel log is
the machine's own; the first line that it gets has the agent load the catalogue of faults, about a
quarter of a second of a core, once. So nothing else should run on the machine, and nothing write to
that log. In both blocks ranks are pinned to a core each. With fewer ranks than cores the agent has
one to spare, as on nodes whose GPUs train; with as many as there are cores it takes from training
all that it takes, and the ranks wait for each other: the worst case.

What counts: agent, SSH server, the ranks' own talk to the agent, all on the node. The other end of
the session, in this process, uses the same cores here, and in production a machine of its own. What
the controller makes of the reports, statistics over iteration times included, is done there, and
not here.

Figures, seconds unless said otherwise, clock of rank 0:

- ``iteration``, ``reference_iteration``: means, on and off;
- ``mean_ratio``: the mean on over the mean off, so that iterations in which a probe looks count,
  with a 95 % confidence interval (bootstrap over rounds and pairs); ``ratio``: median over pairs of
  neighbouring blocks;
- ``waited``, ``reference_waited``: share of the time that the ranks' training threads, taken
  together, were ready to run and had no core, by the scheduler's own count: what on exceeds off by
  was taken from training, if nothing else runs on the machine;
- ``processor_s_per_hour``: processor time by process, read over an uninterrupted stretch at the
  beginning of each round. Apart from effects on caches, training loses no more
  time to a process than the process takes.

These are measurements of one machine at one time, not limits.
"""

import argparse
import asyncio
import json
import statistics
import sys
from dataclasses import asdict
from typing import Any, Final

from harness.result_pages import (
    MEASUREMENTS,
    commands_of,
    machine,
    machine_line,
    origin,
    with_others,
    write_results,
    write_section,
)
from harness.termination import end_on_sigterm
from paired.ratio import Ratio, ratio_of_means, ratio_of_pairs
from paired.watched import Stretch, run_round
from paired.workload import SIZES, add_model_arguments, training_spec

from profiles.layout import Layout

_NAME: Final = "agent_cost"
_PARTS: Final = {
    "agent": "agent",
    "ssh_server": "SSH server",
    "link": "talk of one rank to the agent",
    "controller_end": "other end of the session",
}


def main() -> None:
    """Measure every size and print what was measured."""
    end_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    for name, kind, default, text in (
        ("rounds", int, 4, "of fresh processes"),
        ("pairs", int, 120, "of blocks, per round"),
        ("block", float, 2.0, "seconds of a block, about; an iteration at least"),
        ("steady", float, 60.0, "seconds at the beginning of a round, for the processor time"),
    ):
        parser.add_argument(
            f"--{name}", type=kind, default=default, metavar="N", help=f"{text} (default {default})"
        )
    add_model_arguments(parser)
    parser.set_defaults(tokens=[4096])
    parser.add_argument(
        "--ranks",
        type=int,
        nargs="+",
        default=[1, 2],
        metavar="N",
        help="on the node, each with a core of its own (default 1 2)",
    )
    parser.add_argument("--write-docs", action="store_true", help=f"update {MEASUREMENTS.name}")
    arguments = parser.parse_args()
    cases = []
    for tokens in arguments.tokens:
        for num_ranks in arguments.ranks:
            figures = _measure(tokens, Layout(dp=num_ranks), arguments)
            size = {"num_tokens": tokens, "num_ranks": num_ranks}
            steady = {"steady_s": arguments.rounds * arguments.steady}
            cases.append({**size, **origin(arguments), **steady, **figures})
            sys.stderr.write(f"{_row(cases[-1])}\n")
    report = {
        **machine(),
        "cases": cases,
    }
    json.dump(report, sys.stdout, indent=1)
    sys.stdout.write("\n")
    if arguments.write_docs:
        report["cases"] = with_others(_NAME, cases, "num_ranks", "num_tokens")
        write_results(_NAME, report)
        write_section(MEASUREMENTS, _NAME, _section(report))


def _measure(tokens: int, layout: Layout, arguments: argparse.Namespace) -> dict[str, Any]:
    stretch = Stretch(arguments.steady, arguments.pairs, arguments.block)
    rounds = []
    for number in range(arguments.rounds):
        sys.stderr.write(
            f"{tokens} tokens, {layout.num_workers} rank(s), round {number + 1} of"
            f" {arguments.rounds}\n"
        )
        made = run_round(
            layout, lambda path: training_spec(arguments, SIZES[tokens], layout, path), stretch
        )
        rounds.append(asyncio.run(made))
    pairs = [one.pairs for one in rounds]
    times_on = [seconds for one in rounds for pair in one.pairs for seconds in pair.measured]
    times_off = [seconds for one in rounds for pair in one.pairs for seconds in pair.reference]
    return {
        "num_iterations": len(times_on),
        "iteration": round(statistics.fmean(times_on), 5),
        "reference_iteration": round(statistics.fmean(times_off), 5),
        "mean_ratio": asdict(ratio_of_means(pairs)),
        "ratio": asdict(ratio_of_pairs(pairs)),
        "waited": statistics.fmean(one.waited[0] for one in rounds),
        "reference_waited": statistics.fmean(one.waited[1] for one in rounds),
        "processor_s_per_hour": {
            part: round(statistics.fmean(one.per_hour[part] for one in rounds), 2)
            for part in _PARTS
        },
        "agent_rss_mb": round(max(one.agent_rss_mb for one in rounds), 1),
    }


def _row(case: dict[str, Any]) -> str:
    return (
        f"| {case['num_ranks']} | {case['num_tokens']} | {1000 * case['reference_iteration']:.1f}"
        f" | {1000 * case['iteration']:.1f} | {Ratio(**case['mean_ratio']).percent_to(2)}"
        f" | {Ratio(**case['ratio']).percent_to(2)}"
        f" | {100 * (case['waited'] - case['reference_waited']):+.2f} % | {case['num_iterations']}"
        f" | {case['date']} |"
    )


def _section(report: dict[str, Any]) -> str:
    rows = "\n".join(map(_row, report["cases"]))
    newest = report["cases"][-1]
    model = newest["model"]
    return f"""\
{machine_line(report)} {model["num_layers"]} layers, hidden size {model["hidden_size"]}.

{commands_of(report["cases"])}

| ranks | tokens per rank and iteration | off, ms | on, ms | ratio of means (95 %) | of neighbouring blocks, median | more waiting for a core | iterations of each | date |
|---|---|---|---|---|---|---|---|---|
{rows}

With {newest["num_ranks"]} rank(s), over {newest["steady_s"]:g} s without interruption; the agent holds
{newest["agent_rss_mb"]} MB.

| | processor time, s per hour | of one core |
|---|---|---|
{_processor_rows(newest)}"""


def _processor_rows(case: dict[str, Any]) -> str:
    per_hour = case["processor_s_per_hour"]
    return "\n".join(
        f"| {title} | {per_hour[part]:.1f} | {per_hour[part] / 36:.2f} % |"
        for part, title in _PARTS.items()
    )


if __name__ == "__main__":
    main()
