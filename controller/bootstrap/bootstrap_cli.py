"""The command line of ``unicron bootstrap``."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from typing import Final

from controller.api.client import NoControllerError, connect
from controller.arguments import HelpText, add_accept_new, count_of, file_path
from controller.bootstrap.fleet_steps import NodeOutcome, remove_all, start_all
from controller.bootstrap.wheel_cache import MACHINES, PYTHONS, FetchError, cache_dir, fetch
from controller.clusterfile.cluster_reader import KNOWN_HOSTS_NAME, Cluster, load_cluster
from controller.clusterfile.file_mistakes import ClusterFileError
from controller.clusterfile.hostlist import HostlistError, expand
from controller.fleet.address import NodeAddress
from controller.fleet.host_keys import AcceptedKeys
from controller.fleet.node_connection import SshLogins
from controller.printing import plain_console, print_table, refuse
from nodeagent.protocol.ids import NodeId
from profiles.records import on_one_line

_PROGRAM: Final = "unicron bootstrap"
_PARALLEL: Final = 64
_EPILOG: Final = """\
For each node: log in, look at the interpreter, copy the agent into its state_dir, start it, log out, log in
again, and ask the agent whether it is well. What is there already is not copied again, and an agent of this
version that runs is left alone; another version is replaced while its ranks live on. Nothing is installed
into the interpreter: torch and megatron-core have to be there. If it has no pydantic, wheels that --fetch has
put into the cache here are copied beside the agent: nodes need no internet. After Ctrl-C, run it again.

`unicron run` does the same for nodes without an agent. Bootstrap says beforehand what is missing.

exit codes:
  0  all nodes are ready
  1  some nodes are not: the table says why, and what to do
  2  wrong options, or a mistake in the cluster file: no node was touched

examples:
  unicron bootstrap cluster.toml
  unicron bootstrap cluster.toml --nodes "gpu-[001-004]" --accept-new
  unicron bootstrap --fetch
  unicron bootstrap cluster.toml --remove
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron bootstrap``."""
    parser.formatter_class, parser.epilog = HelpText, _EPILOG
    parser.add_argument(
        "cluster", metavar="CLUSTER", type=file_path, nargs="?", help="the cluster file"
    )
    parser.add_argument(
        "--fetch",
        action="store_true",
        help="touch no node: fetch the wheels of the agent's dependencies into a cache here, with pip, for"
        f" Python {PYTHONS[0]} to {PYTHONS[-1]} on {' and '.join(MACHINES)}",
    )
    parser.add_argument(
        "--nodes", metavar="LIST", help='only these nodes, as in "gpu-[001-004,7]" (default: all)'
    )
    parser.add_argument(
        "--parallel",
        type=_parallel,
        default=_PARALLEL,
        metavar="N",
        help="nodes at once (default %(default)s)",
    )
    add_accept_new(parser)
    parser.add_argument(
        "--remove",
        action="store_true",
        help="end the agents instead, and remove all files of this cluster from the nodes but"
        " checkpoints",
    )
    parser.add_argument(
        "--force", action="store_true", help="with --remove: end ranks that live there, too"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _parallel(text: str) -> int:
    count = count_of(text)
    if not count:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is no number of nodes: write 1 or more")
    return count


def run(arguments: argparse.Namespace) -> int:
    """Bootstrap the nodes; return the exit code."""
    if arguments.fetch:
        return _fetch(arguments)
    try:
        if arguments.cluster is None:
            raise ValueError("name the cluster file (see unicron bootstrap --help)")  # noqa: TRY301
        cluster = load_cluster(arguments.cluster)
        addresses = _chosen(cluster, arguments.nodes)
        _check(arguments, cluster)
    except ClusterFileError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except ValueError as error:
        return refuse(_PROGRAM, str(error))
    try:
        outcomes = asyncio.run(_run(addresses, cluster, arguments))
    except KeyboardInterrupt:
        refuse(_PROGRAM, "interrupted: run it again, and it completes what is missing")
        return 130
    except OSError as error:
        return refuse(_PROGRAM, f"{error.filename}: {error.strerror}".lower())
    _print(outcomes, is_json=arguments.json)
    return 0 if all(outcome.is_done for outcome in outcomes) else 1


def _fetch(arguments: argparse.Namespace) -> int:
    if arguments.cluster is not None or arguments.remove:
        return refuse(_PROGRAM, "--fetch fills the cache for all clusters: give it alone")
    try:
        for line in fetch(cache_dir()):
            _progress(line)
    except FetchError as error:
        refuse(_PROGRAM, str(error))
        return 1
    except OSError as error:
        refuse(_PROGRAM, f"{error.filename}: {error.strerror}".lower())
        return 1
    return 0


def _chosen(cluster: Cluster, names: str | None) -> list[NodeAddress]:
    """Return the nodes that the user names.

    Raises:
        ValueError: One of them is not in the cluster file.
    """
    known = {
        node.address.node: replace(node.address, has_template=cluster.has_template)
        for node in cluster.nodes
    }
    if names is None:
        return list(known.values())
    try:
        wanted = expand(names)
    except HostlistError as error:
        raise ValueError(f"--nodes {names!r:.60} {error}") from error
    if unknown := [name for name in wanted if name not in known]:
        raise ValueError(f"--nodes: {cluster.path} has no node {', '.join(unknown)}")
    return [known[NodeId(name)] for name in wanted]


def _check(arguments: argparse.Namespace, cluster: Cluster) -> None:
    """Check the options. Raises ``ValueError``."""
    if arguments.force and not arguments.remove:
        raise ValueError("--force belongs to --remove")
    if not arguments.remove:
        return
    try:
        with connect(cluster.socket):
            pass
    except NoControllerError:
        return
    raise ValueError(
        f"the controller of {cluster.path} runs, and would start the agents again: bring it down first, with"
        f" unicron down {cluster.path}"
    )


async def _run(
    addresses: Sequence[NodeAddress], cluster: Cluster, arguments: argparse.Namespace
) -> list[NodeOutcome]:
    cluster.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = cluster.run_dir / KNOWN_HOSTS_NAME
    keys = AcceptedKeys(path, arguments.accept_new, _progress)
    outcomes: dict[NodeId, NodeOutcome] = {}
    async with SshLogins(keys) as logins:
        steps = (
            remove_all(addresses, logins, arguments.parallel, is_forced=arguments.force)
            if arguments.remove
            else start_all(addresses, logins, arguments.parallel, cache_dir())
        )
        async with aclosing(steps):
            async for outcome in steps:
                outcomes[outcome.node] = outcome
                state = "" if outcome.is_done else "failed: "
                done = f"[{len(outcomes)}/{len(addresses)}]"
                _progress(f"{done} {outcome.node}  {state}{outcome.text}")
    return [outcomes[address.node] for address in addresses]


def _progress(text: str) -> None:
    sys.stderr.write(f"{on_one_line(text)}\n")
    sys.stderr.flush()


def _print(outcomes: Sequence[NodeOutcome], *, is_json: bool) -> None:
    num_done = sum(outcome.is_done for outcome in outcomes)
    if is_json:
        json.dump({"num_ready": num_done, "nodes": [asdict(each) for each in outcomes]}, sys.stdout)
        sys.stdout.write("\n")
        return
    console = plain_console()
    print_table(
        console,
        ["node", "result", "what to do", "interpreter"],
        [
            (
                each.node,
                each.text if each.is_done else f"failed: {each.text}",
                each.advice,
                each.facts,
            )
            for each in outcomes
        ],
    )
    console.print(f"{num_done} of {len(outcomes)} nodes: done")
