"""Measures how long `unicron bootstrap` takes on many nodes of this machine, and what they cost.

    python benchmarks/bootstrap_times.py [--nodes 32] [--parallel 64] [--failing] [--write-docs]

Each node is a real OpenSSH server on loopback. Figures: seconds from the first login until every
agent has answered a second login, on empty nodes and once more where all is there; the memory of
all agents (proportional set size, MB) and of this process at most. Templates, which import torch,
begin with the first session of a controller. With ``--failing`` every fourth node fails, in one of
eight ways.
"""

import argparse
import asyncio
import json
import re
import resource
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import asyncssh
import psutil
from harness.result_pages import (
    MEASUREMENTS,
    command_line,
    machine,
    machine_line,
    write_results,
    write_section,
)
from harness.termination import end_on_sigterm

from controller.bootstrap.fleet_steps import NodeOutcome, start_all
from controller.bootstrap.wheel_cache import cache_dir
from controller.fleet.address import NodeAddress
from controller.fleet.node_connection import SshLogins
from controller.localcluster.local_cluster import LocalCluster


def main() -> None:
    """Bootstrap the nodes twice and print what was measured."""
    end_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=32, metavar="N", help="nodes (default 32)")
    parser.add_argument(
        "--parallel", type=int, default=64, metavar="N",
        help="nodes at once (default 64); all agents start on this one machine",
    )  # fmt: skip
    parser.add_argument("--failing", action="store_true", help="have every fourth node fail")
    parser.add_argument("--write-docs", action="store_true", help=f"update {MEASUREMENTS.name}")
    arguments = parser.parse_args()
    found = asyncio.run(_measure(arguments))
    report = {**machine(), "num_nodes": arguments.nodes, **found}
    print(json.dumps(report))  # noqa: T201 - the result
    if arguments.write_docs:
        write_results("bootstrap_times", report)
        write_section(
            MEASUREMENTS,
            "bootstrap_times",
            f"{machine_line(report)}\n\n    {command_line()}\n\n"
            f"| | {arguments.nodes} nodes |\n|---|---|\n"
            f"| nodes that became ready | {found['num_ready']} |\n"
            f"| ways in which the others failed | {found['num_failures']} |\n"
            f"| empty nodes, until all agents have answered, s | {found['first_s']:.1f} |\n"
            f"| the same nodes again, s | {found['again_s']:.1f} |\n"
            f"| memory of all agents, MB | {found['agents_mb']:.0f} |\n"
            f"| memory of the bootstrap itself, at most, MB | {found['own_mb']:.0f} |\n",
        )


async def _measure(arguments: argparse.Namespace) -> dict[str, float]:
    num_nodes, is_failing = arguments.nodes, arguments.failing
    with tempfile.TemporaryDirectory() as folder:
        async with LocalCluster.start(num_nodes, 1, sshd="openssh") as cluster:
            addresses = [node.address for node in cluster.nodes]
            if is_failing:
                spoil = _ways_to_fail(Path(folder))
                for number in range(0, num_nodes, 4):
                    way = spoil[number // 4 % len(spoil)]
                    addresses[number] = way(addresses[number])
            first_s, outcomes = await _bootstrap(addresses, arguments.parallel)
            again_s, _ = await _bootstrap(addresses, arguments.parallel)
            failures = [each for each in outcomes if not each.is_done]
            assert len(failures) == (len(range(0, num_nodes, 4)) if is_failing else 0), failures[-1]
            kinds = {_kind(each) for each in failures}
            for kind in sorted(kinds):
                sys.stderr.write(f"{kind}\n")
            return {
                "num_ready": len(outcomes) - len(failures),
                "num_failures": len(kinds),
                "first_s": first_s,
                "again_s": again_s,
                "agents_mb": _memory_mb(addresses),
                "own_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
            }


async def _bootstrap(
    addresses: Sequence[NodeAddress], parallel: int
) -> tuple[float, list[NodeOutcome]]:
    began = time.perf_counter()
    async with SshLogins() as logins:
        outcomes = [each async for each in start_all(addresses, logins, parallel, cache_dir())]
    return time.perf_counter() - began, outcomes


def _kind(outcome: NodeOutcome) -> str:
    """Return what a node's failure says and advises, without what differs between nodes."""
    text = f"{outcome.text} | {outcome.advice}"
    return re.sub(r"\b\d{4,}\b|SHA256:\S+|unicron-\w+", "*", re.sub(r"\bn\d+\b", "N", text))


def _ways_to_fail(folder: Path) -> list[Callable[[NodeAddress], NodeAddress]]:
    """Return eight ways in which a node is not ready."""
    old = _interpreter(
        folder / "old",
        """echo '{"unicron_facts": {"python": [3, 9, 2], "machine": "x86_64", "packages": {}}}'""",
    )
    broken = _interpreter(folder / "broken", 'echo "libpython3.so: not found" >&2; exit 1')
    crash = _interpreter(folder / "crash", f'[ "$1" = -c ] || exit 7; exec {sys.executable} "$@"')
    bare = folder / "bare"
    venv.create(bare)
    key = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    (folder / "file").touch()
    return [
        lambda node: replace(node, ssh=replace(node.ssh, user="nobody")),
        lambda node: replace(node, ssh=replace(node.ssh, host_key=key)),
        lambda node: replace(node, python="/nowhere/python3"),
        lambda node: replace(node, python=old),
        lambda node: replace(node, python=broken),
        lambda node: replace(node, python=f"{bare}/bin/python"),
        lambda node: replace(node, python=crash),
        lambda node: replace(node, state_dir=f"{folder}/file/{node.node}"),
    ]


def _interpreter(path: Path, line: str) -> str:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return str(path)


def _memory_mb(addresses: Sequence[NodeAddress]) -> float:
    state_dirs = {address.state_dir for address in addresses}
    total = 0
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
            if state_dirs & set(line) and "nodeagent run" in " ".join(line):
                total += process.memory_full_info().pss
        except psutil.Error:
            continue
    return total / 1e6


if __name__ == "__main__":
    main()
