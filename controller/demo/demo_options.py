"""Checks the options of ``unicron demo``, before anything starts."""

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from controller.core.rules.placement import Unplaceable, place
from controller.core.rules.policy import Policy
from controller.demo.demo_arguments import DEFAULT_ITERATIONS
from controller.demo.kept_files import why_unusable
from controller.drills.drill_arguments import ScheduledDrill, parse_drill
from controller.localcluster.local_node import NetworkChoice, ServerChoice
from controller.settings.settings_file import load_failure_domains, load_policy
from nodeagent.protocol.ids import NodeId, TaskId
from profiles.corpus import load_corpus
from profiles.task_profiles import (
    ProfileError,
    TaskProfile,
    default_task_profiles,
    load_task_profiles,
)

_OF_CONTROLLER = (
    "--headless", "--json", "--auto-heal", "--settings", "--drill", "--event-log", "--keep", "--tables",
    "--serve", "--iterations", "--data", "--time-limit",
)  # fmt: skip


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
    tasks: Path | None = None
    nodes_only: Path | None = None
    sshd_config: tuple[str, ...] = ()


def check(arguments: argparse.Namespace) -> DemoOptions:
    """Return the options, checked one by one and together.

    Raises:
        OptionError: An option is out of range, two options conflict, or packages are missing.
        ProfileError: The task file is wrong.
        DataError: The training data is missing, empty or too short.
        DrillArgumentError: A drill is wrong.
        SettingsError: The settings file is wrong.
    """
    _check_packages()
    _check_each(arguments)
    _check_playground(arguments)
    num_iterations = arguments.iterations
    if arguments.headless and num_iterations is None:
        num_iterations = DEFAULT_ITERATIONS
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
        tasks=arguments.tasks,
        nodes_only=arguments.dir if arguments.nodes_only else None,
        sshd_config=tuple(arguments.sshd_config),
    )


def _check_packages() -> None:
    """Check that ranks can run on this machine, where the demo's nodes are."""
    missing = [name for name in ("torch", "megatron") if not _is_installed(name)]
    if missing:
        raise OptionError(
            f"the demo trains on this machine, which has no {' and no '.join(missing)}:"
            " pip install 'unicron[ranks]'"
        )


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ValueError:  # a test has put None in its place
        return False


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


def _check_playground(arguments: argparse.Namespace) -> None:
    """Check the options of nodes without a controller. Raises ``OptionError``."""
    if any("\n" in line for line in arguments.sshd_config):
        raise OptionError("--sshd-config: give one line; the option may be repeated")
    if arguments.sshd_config and arguments.sshd == "asyncssh":
        raise OptionError("--sshd-config: asyncssh's server reads no sshd_config; leave --sshd out")
    if not arguments.nodes_only:
        if arguments.dir is not None:
            raise OptionError(
                "--dir is for --nodes-only; --keep DIR keeps the files of a whole demo"
            )
        return
    if arguments.dir is None:
        raise OptionError("--nodes-only writes a cluster file: add --dir DIR")
    if reason := why_unusable(arguments.dir):
        raise OptionError(f"--dir {arguments.dir}: {reason}")
    for option in _OF_CONTROLLER:
        if getattr(arguments, option.removeprefix("--").replace("-", "_")):
            raise OptionError(
                f"{option}: --nodes-only starts no controller; give it to `unicron run`, or leave it out"
            )


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
