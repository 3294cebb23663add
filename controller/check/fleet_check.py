"""Looks at all nodes of a cluster file over SSH, and says what is not ready there."""

import asyncio
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, Final

import asyncssh

from controller.bootstrap.node_facts import NotReadyError, ask_facts, check_facts
from controller.check.check_findings import CheckFinding, merged
from controller.check.fleet_findings import Survey, check_nodes
from controller.check.time_limits import check_limits
from controller.clock import SystemClock
from controller.clusterfile.cluster_reader import Cluster
from controller.clusterfile.node_groups import ListedNode
from controller.fleet.address import NodeAddress
from controller.fleet.errors import LinkError, PermanentLinkError, translated
from controller.fleet.node_commands import home_of, in_free_session, run_words, shell_line
from controller.fleet.node_connection import SshLogins

_LIMIT_S: Final = 90.0
_KEY: Final = "unicron_survey"
_LISTENS: Final = '{"unicron_listens"'
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
    backend = "nccl" if cluster.has_gpus else "gloo"
    shared = await _check_shared(cluster, set(surveys), logins)
    findings = [
        *check_limits(cluster.policy, cluster.tasks, backend),
        *_identities(cluster),
        *(finding for node in nodes for finding in node.findings),
        *check_nodes(surveys, cluster.policy.clock_limit_s),
        *shared,
    ]
    return CheckedCluster(nodes, tuple(merged(findings)))


async def _look_at(
    node: ListedNode, cluster: Cluster, logins: SshLogins, clock: SystemClock
) -> CheckedNode:
    address = replace(node.address, has_template=cluster.has_template)
    name = str(address.node)

    def failed(subject: str, text: str, advice: str = "") -> CheckedNode:
        return CheckedNode(name, "", None, (CheckFinding("error", subject, (name,), text, advice),))

    try:
        async with await logins.open(address) as connection:
            if not address.is_absolute:
                address = address.at_home(await home_of(connection, address.node))
            facts = await ask_facts(connection, address)
            check_facts(facts, address)
            asked_s = clock.wall_s()
            data = [path for path in {cluster.data, *(task.data for task in cluster.tasks)} if path]
            question = {
                "state_dir": address.state_dir, "kernel_log": address.kernel_log, "paths": data,
            }  # fmt: skip
            found = await _ask(connection, address, question)
            answered_s = clock.wall_s()
            forbids = await _forbids_forwarding(connection, address)
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
    )
    return CheckedNode(name, "bridge" if forbids else "socket", survey)


async def _ask(
    connection: asyncssh.SSHClientConnection, address: NodeAddress, question: Mapping[str, Any]
) -> dict[str, Any]:
    """Have the node survey itself.

    Raises:
        LinkError: The connection broke, or the interpreter does not run it.
    """
    doing = f"looking at {address.node}"
    words = [address.python, "-I", "-c", _script(), json.dumps(dict(question))]
    done = await run_words(connection, doing, words, limit_s=_LIMIT_S)
    try:
        return dict(done.answer(_KEY)[_KEY])
    except (ValueError, KeyError, TypeError) as error:
        raise PermanentLinkError(f"{doing}: {done.last_words}") from error


async def _forbids_forwarding(
    connection: asyncssh.SSHClientConnection, address: NodeAddress
) -> bool:
    """Return whether the server does not let SSH reach a socket on the node.

    Raises:
        LinkError: The connection broke.
    """
    line = shell_line([address.python, "-I", "-c", _script(), "listen"])
    with translated(f"looking at {address.node}"):
        async with asyncio.timeout(_LIMIT_S):
            process = await in_free_session(lambda: connection.create_process(line))
            place = ""
            while said := await process.stdout.readline():
                _, mark, rest = str(said).partition(_LISTENS)
                if mark:
                    place = json.loads(mark + rest)["unicron_listens"]
                    break
            try:
                _, writer = await connection.open_unix_connection(place)
                writer.close()
            except asyncssh.ChannelOpenError:
                return True
            finally:
                process.stdin.write_eof()
                await process.wait()
    return False


def _script() -> str:
    return resources.files("nodeagent").joinpath("survey.py").read_text(encoding="utf-8")


def _identities(cluster: Cluster) -> list[CheckFinding]:
    """Find logins that need the ssh-agent of the person who started the controller."""
    nodes = tuple(
        str(node.address.node) for node in cluster.nodes if not node.address.ssh.client_key
    )
    if not nodes:
        return []
    text = "the login uses the keys of your ssh-agent: a controller can't log in after it has ended"
    advice = "name a key without passphrase as identity, in [ssh] or [[nodes]]"
    return [CheckFinding("warning", "identity", nodes, text, advice)]


async def _check_shared(
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
        blind, problem = await _blind_nodes(place, nodes, cluster, logins)
        if problem:
            findings.append(CheckFinding("error", "checkpoints", (nodes[0].address.node,), problem))
        elif blind:
            text = (
                f"{place} is not the same directory as on {nodes[0].address.node}: where a task"
                f" ({', '.join(tasks)}) runs on both, a checkpoint is never complete; Unicron's loops"
                " still keep copies in memory"
            )
            advice = "name a directory that all nodes share as checkpoint_dir"
            findings.append(CheckFinding("warning", "checkpoints", tuple(blind), text, advice))
    return findings


async def _blind_nodes(
    place: str, nodes: Sequence[ListedNode], cluster: Cluster, logins: SshLogins
) -> tuple[list[str], str]:
    """Have the first node write a marker to ``place``, and the others look for it.

    Returns:
        The nodes that do not see it; and why it could not be written, if so.
    """
    first = nodes[0]
    there = (await _answer(first, cluster, logins, {"state_dir": place})).get("state_dir", "")
    marker = f"{there.rstrip('/')}/.unicron-check-{secrets.token_hex(6)}"
    made = await _answer(first, cluster, logins, {"marker": marker}) if there else {}
    if "marker" not in made:
        return [], f"{first.address.node} does not answer any more"
    if made["marker"]:
        return [], f"{there} can't be written: {made['marker']}"
    blind: list[str] = []

    async def look(node: ListedNode) -> None:
        for pause_s in _LOOKS_S:
            await asyncio.sleep(pause_s)
            found = await _answer(node, cluster, logins, {"state_dir": "/", "seen": marker})
            if found.get("seen", True):
                return  # seen, or the node does not answer any more
        blind.append(str(node.address.node))

    try:
        async with asyncio.TaskGroup() as group:
            for node in nodes[1:]:
                group.create_task(look(node))
    finally:
        await _answer(first, cluster, logins, {"done": marker})
    return sorted(blind), ""


async def _answer(
    node: ListedNode, cluster: Cluster, logins: SshLogins, question: Mapping[str, Any]
) -> dict[str, Any]:
    """Ask a node that has answered before; return nothing if it does not any more."""
    address = replace(node.address, has_template=cluster.has_template)
    found: dict[str, Any] = {}
    with suppress(LinkError):
        async with await logins.open(address) as connection:
            if not address.is_absolute:
                address = address.at_home(await home_of(connection, address.node))
            found = await _ask(connection, address, question)
    return found
