"""Measures how long `unicron bootstrap` takes on many nodes of this machine, and what they cost.

    python benchmarks/bootstrap_times.py [--nodes 32] [--no-template] [--write-docs]

Each node is a real OpenSSH server on loopback. Figures: seconds from the first login until every
agent has answered a second login, on empty nodes and once more where all is there; the memory of
all agents and templates (proportional set size, MB), when every template has imported torch.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

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

from controller.bootstrap.fleet_steps import start_all
from controller.bootstrap.wheel_cache import cache_dir
from controller.fleet.address import NodeAddress
from controller.fleet.node_connection import SshLogins
from controller.localcluster.local_cluster import LocalCluster

_PARALLEL: Final = 64
_TEMPLATE_LIMIT_S: Final = 300.0


def main() -> None:
    """Bootstrap the nodes twice and print what was measured."""
    end_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=32, metavar="N", help="nodes (default 32)")
    parser.add_argument(
        "--no-template", action="store_true", help="as for tasks that are commands alone"
    )
    parser.add_argument("--write-docs", action="store_true", help=f"update {MEASUREMENTS.name}")
    arguments = parser.parse_args()
    found = asyncio.run(_measure(arguments.nodes, has_template=not arguments.no_template))
    report = {**machine(), "num_nodes": arguments.nodes, **found}
    print(json.dumps(report))  # noqa: T201 - the result
    if arguments.write_docs:
        write_results("bootstrap_times", report)
        write_section(
            MEASUREMENTS,
            "bootstrap_times",
            f"{machine_line(report)}\n\n    {command_line()}\n\n"
            f"| | {arguments.nodes} nodes |\n|---|---|\n"
            f"| empty nodes, until all agents have answered, s | {found['first_s']:.1f} |\n"
            f"| the same nodes again, s | {found['again_s']:.1f} |\n"
            f"| memory of all agents, MB | {found['agents_mb']:.0f} |\n"
            f"| memory of all templates (torch imported), MB | {found['templates_mb']:.0f} |\n",
        )


async def _measure(num_nodes: int, *, has_template: bool) -> dict[str, float]:
    async with LocalCluster.start(num_nodes, 1, sshd="openssh") as cluster:
        addresses = [replace(node.address, has_template=has_template) for node in cluster.nodes]
        first_s = await _bootstrap(addresses)
        again_s = await _bootstrap(addresses)
        if has_template:
            await _templates_ready(addresses)
        return {
            "first_s": first_s,
            "again_s": again_s,
            "agents_mb": _memory_mb(addresses, "nodeagent run"),
            "templates_mb": _memory_mb(addresses, "nodeagent.rank.process.template"),
        }


async def _bootstrap(addresses: Sequence[NodeAddress]) -> float:
    began = time.perf_counter()
    async with SshLogins() as logins:
        async for outcome in start_all(addresses, logins, _PARALLEL, cache_dir()):
            assert outcome.is_done, outcome
    return time.perf_counter() - began


async def _templates_ready(addresses: Sequence[NodeAddress]) -> None:
    async with asyncio.timeout(_TEMPLATE_LIMIT_S):
        for each in addresses:
            while not (Path(each.state_dir) / "template.sock").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.5)


def _memory_mb(addresses: Sequence[NodeAddress], words: str) -> float:
    state_dirs = {address.state_dir for address in addresses}
    total = 0
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
            if state_dirs & set(line) and words in " ".join(line):
                total += process.memory_full_info().pss
        except psutil.Error:
            continue
    return total / 1e6


if __name__ == "__main__":
    main()
