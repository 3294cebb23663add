"""The command line of ``unicron demo``. All options are checked before anything starts."""

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from controller.arguments import HelpText
from controller.core.rules.placement import Unplaceable, place
from controller.core.rules.policy import Policy
from controller.demo.kept_files import why_unusable
from controller.drills.drill_arguments import ScheduledDrill, parse_drill
from controller.localcluster.local_node import NetworkChoice, ServerChoice
from controller.logs.log_options import add_logging_arguments
from controller.settings.domain_file import load_failure_domains
from controller.settings.policy_file import load_policy
from nodeagent.protocol.ids import NodeId, TaskId
from profiles.corpus import load_corpus
from profiles.task_profiles import (
    ProfileError,
    TaskProfile,
    default_task_profiles,
    load_task_profiles,
)

_DEFAULT_ITERATIONS = 30
_EPILOG = """\
drills:
  KIND@ITERATION[:key=value,...] runs the drill after the task has committed that iteration.
  `unicron drill list` explains every kind, its keys, and the expected diagnosis.

examples:
  unicron demo --headless --auto-heal --drill kill-rank@8 --drill lose-node@16 --iterations 30 --json
  unicron demo --headless --auto-heal --drill exception@10:task=gpt-b,rank=2 --iterations 20
  unicron demo --headless --auto-heal --drill exception@10:status=ecc_error --iterations 20
  unicron demo --nodes 6 --auto-heal     and, in another terminal: unicron-console --connect SOCKET

exit codes:
  0  a headless run reached its last iteration with every drill run; an interactive run ended
  1  a task did not reach its last iteration, a drill did not run, or the cluster did not start
  2  wrong options: nothing was started; or a drill that the task's program can't stage ended the run
  128+N  ended by signal N
"""


class OptionError(Exception):
    """An option is wrong. The text names the option and the allowed values."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of one demo. Every field has been checked."""

    num_nodes: int
    workers_per_node: int
    profiles: list[TaskProfile]
    data_path: str
    seed: int
    num_iterations: int | None
    is_headless: bool
    policy: Policy
    is_json: bool
    drills: list[ScheduledDrill]
    base_port: int | None
    sshd: ServerChoice
    network: NetworkChoice
    event_log: Path | None
    tables: Path | None
    serve: Path | None
    time_limit_s: float | None
    failure_domains: Mapping[NodeId, str] = field(default_factory=dict)
    keep: Path | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron demo``."""
    parser.formatter_class = HelpText
    parser.epilog = _EPILOG
    _add_cluster(parser)
    _add_training(parser)
    _add_healing(parser)
    _add_output(parser)
    add_logging_arguments(parser)


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    cluster = parser.add_argument_group("cluster")
    cluster.add_argument(
        "--nodes", type=int, default=4, metavar="N", help="number of nodes (default 4)"
    )
    cluster.add_argument(
        "--workers-per-node",
        type=int,
        default=2,
        metavar="K",
        help="workers on each node (default 2)",
    )
    cluster.add_argument(
        "--base-port",
        type=int,
        metavar="PORT",
        help="node n1 listens on PORT, n2 on PORT+1, and so on (default: free ports)",
    )
    cluster.add_argument(
        "--sshd",
        choices=["auto", "openssh", "asyncssh"],
        default="auto",
        help="SSH server of the nodes; auto is OpenSSH if it is installed and works, else asyncssh"
        " (default auto)",
    )
    cluster.add_argument(
        "--namespaces",
        action="store_true",
        help="give each node its own network namespace; the drill partition needs it. Requires root"
        " and iproute2 (default: all nodes share the loopback network)",
    )


def _add_training(parser: argparse.ArgumentParser) -> None:
    training = parser.add_argument_group("training")
    training.add_argument(
        "--tasks",
        type=Path,
        metavar="FILE",
        help="TOML file of task profiles (default: gpt-a and gpt-b)",
    )
    training.add_argument(
        "--data",
        default="",
        metavar="FILE",
        help="text file to train on (default: text from Python's documentation)",
    )
    training.add_argument(
        "--seed", type=int, default=1, help="seed of the weights and the data order (default 1)"
    )
    training.add_argument(
        "--iterations",
        type=int,
        metavar="N",
        help="end when every task has committed N iterations (default:"
        f" {_DEFAULT_ITERATIONS} with --headless, else run until stopped)",
    )


def _add_healing(parser: argparse.ArgumentParser) -> None:
    healing = parser.add_argument_group("recovery")
    healing.add_argument(
        "--auto-heal", action="store_true", help="apply plans without an operator's approval"
    )
    healing.add_argument(
        "--settings",
        type=Path,
        metavar="FILE",
        help="TOML file with [policy] and [failure_domains]; see `unicron policy explain --help`",
    )
    healing.add_argument(
        "--drill",
        action="append",
        default=[],
        metavar="KIND@ITERATION[:key=value,...]",
        help="inject a fault; may be repeated (see drills below)",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    output = parser.add_argument_group("output")
    output.add_argument(
        "--headless", action="store_true", help="run to the last iteration, then exit"
    )
    output.add_argument(
        "--json",
        action="store_true",
        help="print the outcome as one JSON object on standard output; needs --headless",
    )
    output.add_argument(
        "--event-log", type=Path, metavar="FILE", help="write every event to FILE, as JSON lines"
    )
    output.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="at the end copy the journal, the event log and the logs of agents and ranks into DIR, which"
        " must be new or empty (default: removed with the demo)",
    )
    output.add_argument(
        "--tables",
        type=Path,
        metavar="DIR",
        help="keep the measured throughput tables in DIR (default: removed with the demo)",
    )
    output.add_argument(
        "--serve",
        type=Path,
        metavar="SOCKET",
        help="path of the API socket for consoles (default: in the demo's directory)",
    )
    output.add_argument(
        "--time-limit",
        type=float,
        metavar="SECONDS",
        help="end the demo with exit code 1 after this time (default: no limit)",
    )


def check(arguments: argparse.Namespace) -> DemoOptions:
    """Return the options, checked one by one and together.

    Raises:
        OptionError: An option is out of range, or two options conflict.
        ProfileError: The task file is wrong.
        DataError: The training data is missing, empty or too short.
        DrillArgumentError: A drill is wrong.
        SettingsError: The settings file is wrong.
    """
    _check_each(arguments)
    num_iterations = arguments.iterations
    if arguments.headless and num_iterations is None:
        num_iterations = _DEFAULT_ITERATIONS
    profiles = load_task_profiles(arguments.tasks) if arguments.tasks else default_task_profiles()
    nodes = [NodeId(f"n{number}") for number in range(1, arguments.nodes + 1)]
    domains = load_failure_domains(arguments.settings, nodes) if arguments.settings else {}
    _check_fit(profiles, arguments.nodes, arguments.workers_per_node)
    _check_directories(arguments.tasks, profiles)
    for profile in profiles:
        if (shape := profile.model) is not None:
            load_corpus(arguments.data, seq_length=shape.seq_length, vocab_size=shape.vocab_size)
    sizes = {TaskId(profile.name): profile.workers for profile in profiles}
    command_tasks = {TaskId(profile.name) for profile in profiles if profile.command is not None}
    return DemoOptions(
        num_nodes=arguments.nodes,
        workers_per_node=arguments.workers_per_node,
        profiles=profiles,
        data_path=str(Path(arguments.data).resolve()) if arguments.data else "",
        seed=arguments.seed,
        num_iterations=num_iterations,
        is_headless=arguments.headless,
        policy=_policy(arguments),
        is_json=arguments.json,
        drills=[
            parse_drill(
                text,
                tasks=sizes,
                nodes=nodes,
                num_iterations=num_iterations,
                has_namespaces=arguments.namespaces,
                command_tasks=command_tasks,
            )
            for text in arguments.drill
        ],
        base_port=arguments.base_port,
        sshd=arguments.sshd,
        network="namespaces" if arguments.namespaces else "loopback",
        event_log=arguments.event_log,
        tables=arguments.tables,
        serve=arguments.serve,
        time_limit_s=arguments.time_limit,
        failure_domains=domains,
        keep=arguments.keep,
    )


def _check_each(arguments: argparse.Namespace) -> None:
    """Check the options that need no file. Raises ``OptionError``."""
    _check_range("--nodes", arguments.nodes, 1, 64)
    _check_range("--workers-per-node", arguments.workers_per_node, 1, 16)
    if arguments.iterations is not None:
        _check_range("--iterations", arguments.iterations, 1, 10**9)
    if arguments.base_port is not None:
        _check_range("--base-port", arguments.base_port, 1024, 65535 - arguments.nodes)
    if arguments.json and not arguments.headless:
        raise OptionError("--json prints the outcome of a headless run: add --headless")
    for option, path in (("--event-log", arguments.event_log), ("--serve", arguments.serve)):
        if path is not None and not path.parent.is_dir():
            raise OptionError(
                f"{option} {path}: there is no directory {path.parent}; create it or choose another"
            )
        if path is not None and path.is_dir():
            raise OptionError(f"{option} {path}: is a directory; give a file name")
    if arguments.keep is not None and (reason := why_unusable(arguments.keep)):
        raise OptionError(f"--keep {arguments.keep}: {reason}")
    tables = arguments.tables
    if tables is not None and not (tables.is_dir() if tables.exists() else tables.parent.is_dir()):
        raise OptionError(
            f"--tables {tables}: must be a directory, or a new one in an existing directory"
        )
    if arguments.time_limit is not None and not 0 < arguments.time_limit < math.inf:
        raise OptionError(f"--time-limit {arguments.time_limit}: must be above 0 seconds")


def _policy(arguments: argparse.Namespace) -> Policy:
    if arguments.settings is None:
        # A demo ends when nothing heals any more. It waits for no further try of a held task.
        return Policy(is_auto_heal=arguments.auto_heal, held_retries=0)
    return load_policy(arguments.settings, is_auto_heal=arguments.auto_heal or None)


def _check_range(option: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise OptionError(f"{option} {value}: must be {least} to {most}")


def _check_directories(tasks: Path | None, profiles: list[TaskProfile]) -> None:
    """Refuse a command whose directory is not there: the demo's nodes are on this machine."""
    for profile in profiles:
        if profile.command is not None and not Path(profile.command.cwd).is_dir():
            raise ProfileError(
                f"{tasks}: task {profile.name!r}: command.cwd: there is no directory"
                f" {profile.command.cwd}; set cwd to one that is there, relative to the file"
            )


def _check_fit(profiles: list[TaskProfile], num_nodes: int, workers_per_node: int) -> None:
    wanted = sum(profile.workers for profile in profiles)
    if wanted > num_nodes * workers_per_node:
        sizes = ", ".join(f"{profile.name} {profile.workers}" for profile in profiles)
        raise OptionError(
            f"the tasks want {wanted} workers ({sizes}), but {num_nodes} nodes of {workers_per_node}"
            f" have {num_nodes * workers_per_node}: raise --nodes or --workers-per-node"
        )
    placed = place(
        {TaskId(profile.name): profile.throughput.layout(profile.workers) for profile in profiles},
        {},
        {NodeId(f"n{number}"): workers_per_node for number in range(1, num_nodes + 1)},
    )
    if isinstance(placed, Unplaceable):
        raise OptionError(f"{placed.reason}: raise --nodes or --workers-per-node")
