"""Looks at all nodes of a cluster file over SSH, and says what is not ready there."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from controller.bootstrap.node_facts import NotReadyError, ask_facts, check_facts
from controller.check.check_findings import CheckFinding, merged
from controller.check.fleet_findings import Survey, check_nodes
from controller.check.host_check import check_without_nodes
from controller.check.network_check import check_network
from controller.check.node_questions import answer_of, ask, forbids_forwarding, opened
from controller.clock import SystemClock
from controller.clusterfile.cluster_reader import Cluster
from controller.clusterfile.node_groups import ListedNode
from controller.fleet.errors import LinkError
from controller.fleet.node_connection import SshLogins

_MOST_FIRST: Final = 8
_NUM_FURTHER_LOOKS: Final = 2
_LOOKS_S: Final = (0.0, 1.0, 3.0)
"""A network file system may show a new file late."""


@dataclass(frozen=True, slots=True)
class CheckedNode:
    """A node that was looked at; ``survey`` is None if that did not work."""

    name: str
    way: str
    survey: Survey | None
    findings: tuple[CheckFinding, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckedCluster:
    """All nodes, and everything that is not ready."""

    nodes: tuple[CheckedNode, ...]
    findings: tuple[CheckFinding, ...]


async def check_cluster(
    cluster: Cluster, logins: SshLogins, most: int, progress: Callable[[str], None]
) -> CheckedCluster:
    """Look at all nodes, ``most`` at once; ``progress`` gets a line for each."""
    clock, gate = SystemClock(), asyncio.Semaphore(most)
    checked: dict[str, CheckedNode] = {}

    async def look(node: ListedNode) -> None:
        async with gate:
            found = await _look_at(node, cluster, logins, clock)
        checked[found.name] = found
        state = "; ".join(each.text for each in found.findings) or "answers"
        progress(f"[{len(checked)}/{len(cluster.nodes)}] {found.name}  {state}")

    async with asyncio.TaskGroup() as group:
        for node in cluster.nodes:
            group.create_task(look(node))
    nodes = tuple(checked[str(node.address.node)] for node in cluster.nodes)
    surveys = {node.name: node.survey for node in nodes if node.survey is not None}
    shared = await check_shared(cluster, set(surveys), logins)
    findings = [
        *check_without_nodes(cluster),
        *(finding for node in nodes for finding in node.findings),
        *check_nodes(surveys, cluster.policy.clock_limit_s),
        *shared,
        *await check_network(cluster, set(surveys), logins),
    ]
    return CheckedCluster(nodes, tuple(merged(findings)))


async def _look_at(
    node: ListedNode, cluster: Cluster, logins: SshLogins, clock: SystemClock
) -> CheckedNode:
    name = str(node.address.node)

    def failed(subject: str, text: str, advice: str = "") -> CheckedNode:
        return CheckedNode(name, "", None, (CheckFinding("error", subject, (name,), text, advice),))

    try:
        async with opened(node, cluster, logins) as (connection, address):
            facts = await ask_facts(connection, address)
            check_facts(facts, address)
            asked_s = clock.wall_s()
            data = [path for path in {cluster.data, *(task.data for task in cluster.tasks)} if path]
            question = {
                "state_dir": address.state_dir, "kernel_log": address.kernel_log, "paths": data,
                "unit": address.unit,
            }  # fmt: skip
            found = await ask(connection, address, question)
            answered_s = clock.wall_s()
            forbids = await forbids_forwarding(connection, address)
    except NotReadyError as error:
        return failed("interpreter", str(error), error.advice)
    except LinkError as error:
        return failed("login", str(error))
    survey = Survey(
        facts=facts,
        wanted_gpus=address.num_workers if node.has_gpus else 0,
        clock_ahead_s=float(found["wall_s"]) - (asked_s + answered_s) / 2,
        clock_error_s=(answered_s - asked_s) / 2,
        files=(int(found["files"][0]), int(found["files"][1])),
        state_dir=str(found["state_dir"]),
        is_writable=bool(found["is_writable"]),
        free_bytes=int(found["free_bytes"]),
        gpus=found["gpus"],
        reads_kernel_log=bool(found["reads_kernel_log"]),
        missing_paths=tuple(path for path, there in found["paths"].items() if there != path),
        forbids_forwarding=forbids,
        ends_with_login=str(found["ends_with_login"]),
    )
    return CheckedNode(name, "bridge" if forbids else "socket", survey)


async def check_shared(
    cluster: Cluster, answering: set[str], logins: SshLogins
) -> list[CheckFinding]:
    """Find checkpoint directories that differ between nodes: one writes a marker, all look."""
    tasks_in: dict[str, list[str]] = {}
    for task in cluster.tasks:
        # Folders of tasks are made at the start: the directory above them is looked at.
        place = task.checkpoint_dir or str(cluster.checkpoints / task.name)
        tasks_in.setdefault(place.rpartition("/")[0], []).append(task.name)
    nodes = [node for node in cluster.nodes if str(node.address.node) in answering]
    findings: list[CheckFinding] = []
    for place, tasks in tasks_in.items() if len(nodes) > 1 else ():
        first, folder, blind, problem = await _blind_nodes(place, nodes, cluster, logins)
        for _ in range(_NUM_FURTHER_LOOKS):
            if problem or not blind or folder == place:
                break
            # A rank may have made the directory between the looks of two nodes.
            first, folder, blind, problem = await _blind_nodes(place, nodes, cluster, logins)
        if problem:
            findings.append(CheckFinding("error", "checkpoints", (first,), problem))
        elif blind:
            text = (
                f"{place} is not the same directory as on {first}: where a task"
                f" ({', '.join(tasks)}) runs on both, a checkpoint is never complete; Unicron's loops"
                " still keep copies in memory"
            )
            advice = "name a directory that all nodes share as checkpoint_dir"
            findings.append(CheckFinding("warning", "checkpoints", tuple(blind), text, advice))
    return findings


async def _blind_nodes(
    place: str, nodes: Sequence[ListedNode], cluster: Cluster, logins: SshLogins
) -> tuple[str, str, list[str], str]:
    """Write a marker to ``place`` on one node. Find the nodes that do not see it.

    Returns:
        The node that wrote it; the folder, which is above ``place`` if that is not there; the
        nodes that do not see it, or have another nearest folder; why it could not be written.
    """
    made, first, name = {}, nodes[0], f".unicron-check-{secrets.token_hex(6)}"
    for first in nodes[:_MOST_FIRST]:
        made = await answer_of(first, cluster, logins, {"marker": f"{place}/{name}"})
        if made:
            break
    writer, marker = str(first.address.node), str(made.get("marker", ""))
    folder = marker.rpartition("/")[0]
    if not made:
        return writer, folder, [], f"{writer} does not answer any more"
    if made["problem"]:
        return writer, folder, [], f"{folder} can't be written: {made['problem']}"
    blind: list[str] = []

    async def look(node: ListedNode) -> None:
        with suppress(LinkError):  # it does not answer any more, and is no blind node
            async with opened(node, cluster, logins) as (connection, address):
                for pause_s in _LOOKS_S:
                    await asyncio.sleep(pause_s)
                    found = await ask(connection, address, {"seen": marker, "place": place})
                    if found.get("seen") and found.get("nearest") == folder:
                        return
            blind.append(str(node.address.node))

    try:
        async with asyncio.TaskGroup() as group:
            for node in nodes:
                if node is not first:
                    group.create_task(look(node))
    finally:
        await answer_of(first, cluster, logins, {"done": marker})
    return writer, folder, sorted(blind), ""
