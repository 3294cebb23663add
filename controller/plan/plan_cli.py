"""``unicron plan``: prints the best division of workers for a problem in a file.

``controller.plan.cluster_what_if`` has what-if on a cluster.
"""

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import asdict
from typing import Any

from controller.arguments import HelpText, count_of, decimal_of, file_path, num_workers
from controller.core.rules.planner.cost import Problem
from controller.core.rules.planner.explanation import terms
from controller.core.rules.planner.solver import Division, solve
from controller.plan.cluster_what_if import run_on_cluster
from controller.plan.plan_text import explanation_of, print_answer
from controller.plan.problem_change import Change, apply_change
from controller.plan.problem_file import MAX_NUMBER, load_problem
from controller.printing import refuse
from profiles.records import RecordError

_EPILOG = """\
PROBLEM.json (times are seconds, unless the key says hours):

  {"workers": 128, "worker_mtbf_hours": 2000, "running_s": null,
   "tasks": [{"name": "gpt3-7b", "weight": 1.0, "workers": 32, "faulted": false,
              "min_workers": 8, "transition_s": 45,
              "throughput": {"8": 1.1e15, "16": 2.1e15, "32": 4.0e15}}]}

A task's "workers" is its size before the event, also while it runs on fewer. A task can have the sizes in
"throughput", or 0 (stopped). A task that is faulted or changes its size loses the work of "transition_s".
A task that did not run before starts at no cost, as in the paper. A task with "keeps_running": true is never
below "min_workers" while they have room; if not all such tasks have room, the heaviest come first.

examples:
  unicron plan solve problem.json --explain
  unicron plan what-if problem.json --lose 8 --fault gpt3-7b
  unicron plan what-if problem.json --add 16 --weight gpt3-7b=2 --json
  unicron plan what-if --cluster cluster.toml --lose-node n3 --lose-node n4
  unicron plan what-if --state /var/lib/unicron/run --add 8 --weight gpt3-7b=2
"""

_MAX_WORKERS = 10**6
"""The most workers of one node, and the most that one ``--add`` may add."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron plan``."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="{solve,what-if}")
    solving = _add_command(
        actions,
        "solve",
        "print the best division of workers over tasks",
        "Print the division of workers over tasks with the most weighted FLOP until the next fault, minus"
        " the work lost in transitions. The answer is exact, for any number of workers.",
    )
    solving.add_argument(
        "problem", type=file_path, metavar="PROBLEM.json", help="problem file (see below)"
    )
    changing = _add_command(
        actions,
        "what-if",
        "print the best division after a supposed change",
        "Print the best division after a supposed change: workers lost or added, tasks faulted or finished,"
        " weights changed. Ask it of a problem in a file (whose sizes are those before the change), of a"
        " running controller, or of a saved run. For a cluster the answer is the plan that the controller"
        " would propose now, with the place of every rank. Nothing is changed there.",
    )
    _add_source(changing)
    _add_changed_workers(changing)
    _add_changed_tasks(changing)


def _add_source(changing: argparse.ArgumentParser) -> None:
    source = changing.add_argument_group("source (give one of them)")
    source.add_argument(
        "problem",
        type=file_path,
        nargs="?",
        metavar="PROBLEM.json",
        help="problem file (see below)",
    )
    source.add_argument(
        "--cluster", type=file_path, metavar="FILE", help="the cluster file of a running controller"
    )
    source.add_argument(
        "--connect", type=file_path, metavar="SOCKET", help="a running controller's API socket"
    )
    source.add_argument(
        "--state", type=file_path, metavar="DIR", help="a saved run: the directory with its journal"
    )
    changing.add_argument(
        "--save-problem",
        type=file_path,
        metavar="FILE",
        help="write the cluster's problem to FILE, for `unicron plan solve`",
    )


def _add_changed_workers(changing: argparse.ArgumentParser) -> None:
    workers = changing.add_argument_group("workers lost and added")
    workers.add_argument(
        "--lose",
        type=num_workers,
        default=0,
        metavar="N",
        help="lose N workers (for a problem file)",
    )
    workers.add_argument(
        "--lose-node",
        action="append",
        default=[],
        metavar="NODE",
        help="lose this node (for a cluster); may be repeated",
    )
    workers.add_argument(
        "--add",
        type=num_workers,
        default=0,
        metavar="N",
        help="add N workers; on a cluster they come in nodes of the usual size",
    )
    workers.add_argument(
        "--add-node",
        action="append",
        default=[],
        type=_node,
        metavar="NODE[=N]",
        help="add a node with N workers (for a cluster), or return an isolated or lost node to service;"
        " may be repeated",
    )


def _add_changed_tasks(changing: argparse.ArgumentParser) -> None:
    tasks = changing.add_argument_group("tasks changed (each option may be repeated)")
    tasks.add_argument(
        "--fault", action="append", default=[], metavar="TASK", help="TASK lost a worker"
    )
    tasks.add_argument(
        "--finish", action="append", default=[], metavar="TASK", help="TASK has finished"
    )
    tasks.add_argument(
        "--weight",
        action="append",
        default=[],
        type=_weight,
        metavar="TASK=W",
        help="TASK gets the weight W",
    )
    tasks.add_argument(
        "--keeps-running",
        action="append",
        default=[],
        type=_mark,
        metavar="TASK[=no]",
        help="TASK is never below min_workers while they have room; with =no it may be stopped",
    )


def _add_command(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    help_text: str,
    description: str,
) -> argparse.ArgumentParser:
    command = actions.add_parser(
        name,
        help=help_text,
        description=description,
        formatter_class=HelpText,
        epilog=_EPILOG,
    )
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.add_argument(
        "--explain",
        action="store_true",
        help="also print the closest other plans, the effect of other estimates, and the cost of waiting",
    )
    return command


def _node(text: str) -> tuple[str, int]:
    """Return a node and its number of workers; 0 if the number is not given."""
    name, equals, written = text.partition("=")
    count = (count_of(written) or -1) if equals else 0
    if not name or not 0 <= count <= _MAX_WORKERS:
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not NODE or NODE=WORKERS")
    return name, count


def _weight(text: str) -> tuple[str, float]:
    name, _, written = text.rpartition("=")
    weight = decimal_of(written)
    if not name or weight is None or weight > MAX_NUMBER:
        must = f"TASK=WEIGHT with a weight from 0 to {MAX_NUMBER:g}"
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not {must}")
    return name, weight


def _mark(text: str) -> tuple[str, bool]:
    name, equals, written = text.partition("=")
    if not name or (equals and written not in {"yes", "no"}):
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not TASK, TASK=yes or TASK=no")
    return name, written != "no"


def run(arguments: argparse.Namespace) -> int:
    """Solve and print; return 0, or 2 if the problem or an option is wrong."""
    if arguments.action == "what-if":
        if mistake := _option_conflict(arguments):
            return refuse("unicron plan", mistake)
        if arguments.problem is None:
            return run_on_cluster(arguments)
    try:
        problem = load_problem(arguments.problem)
        if arguments.action == "what-if":
            problem = apply_change(problem, _change(arguments))
    except RecordError as error:
        return refuse("unicron plan", str(error))
    planner_problem = problem.planner_problem
    begin_s = time.perf_counter()
    decision = solve(
        planner_problem.tasks,
        num_workers=planner_problem.num_workers,
        running_s=planner_problem.running_s,
    )
    answer = as_json(planner_problem, decision, time.perf_counter() - begin_s)
    if arguments.explain:
        answer |= explanation_of(planner_problem, decision.assignments)
    if arguments.json:
        sys.stdout.write(f"{json.dumps(answer)}\n")
    else:
        print_answer(answer)
    return 0


def _option_conflict(arguments: argparse.Namespace) -> str:
    """Return in one line which options conflict; empty if none do."""
    if mistake := _contradiction(arguments):
        return mistake
    places = [arguments.problem, arguments.cluster, arguments.connect, arguments.state]
    if sum(place is not None for place in places) != 1:
        return "give one of PROBLEM.json, --cluster FILE, --connect SOCKET and --state DIR"
    if arguments.problem is None:
        if arguments.add > _MAX_WORKERS:
            return f"--add {arguments.add}: must be {_MAX_WORKERS} at most"
        return "--lose is for problem files; name nodes with --lose-node" if arguments.lose else ""
    if arguments.lose_node or arguments.add_node:
        return (
            "--lose-node and --add-node are for clusters; a problem file has no nodes:"
            " use --lose and --add"
        )
    return "--save-problem is for clusters; leave it out" if arguments.save_problem else ""


def _contradiction(arguments: argparse.Namespace) -> str:
    """Return which node or task is given twice, or both finishes and changes; empty if none is."""
    weights = [name for name, _ in arguments.weight]
    marks = [name for name, _ in arguments.keeps_running]
    for option, names in (
        ("--lose-node", arguments.lose_node),
        ("--add-node", [name for name, _ in arguments.add_node]),
        ("--weight", weights),
        ("--keeps-running", marks),
        ("--fault", arguments.fault),
        ("--finish", arguments.finish),
    ):
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            return f"{option}: {twice[0]} is given twice"
    for option, names in (
        ("--fault", arguments.fault),
        ("--weight", weights),
        ("--keeps-running", marks),
    ):
        if both := [name for name in names if name in arguments.finish]:
            return f"{option}: {both[0]} finishes too; leave out {option} or --finish for it"
    return ""


def _change(arguments: argparse.Namespace) -> Change:
    return Change(
        num_lost=arguments.lose,
        num_added=arguments.add,
        faulted=arguments.fault,
        finished=arguments.finish,
        weights=arguments.weight,
        keeps_running=arguments.keeps_running,
    )


def as_json(planner_problem: Problem, decision: Division, solve_s: float) -> dict[str, Any]:
    """Return the answer as JSON; quantities are FLOP/s, FLOP and seconds."""
    return {
        "objective": decision.objective,
        "waf_before": decision.waf_before,
        "waf_after": decision.waf_after,
        "workers": planner_problem.num_workers,
        "running_s": planner_problem.running_s,
        "assignments": dict(decision.assignments),
        "tasks": [asdict(each) for each in terms(planner_problem, decision.assignments)],
        "why": decision.why,
        "solve_s": solve_s,
    }
