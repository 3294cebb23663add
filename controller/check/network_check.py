"""Has nodes connect to their neighbours on the network of the ranks, in a ring and its reverse."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final

from controller.check.check_findings import CheckFinding
from controller.check.fleet_findings import check_ring
from controller.check.node_questions import conversation, module_text, opened
from controller.clusterfile.cluster_reader import Cluster
from controller.clusterfile.node_groups import ListedNode
from controller.fleet.errors import LinkError
from controller.fleet.node_connection import SshLogins

_LISTEN_LIMIT_S: Final = 60.0
_WRONG: Final = "correct training_address or training_interface, in [[nodes]]"
_SILENT: Final = "look at its SSH server, and check again"
_SCRIPT_PARTS: Final = ("process_tools/network_interfaces.py", "neighbours.py")


@dataclass(slots=True)
class _Ring:
    """The nodes of one check. Each connects once all of them listen, or have failed to.

    Attributes:
        places: Address and port of each node that listens.
        outcomes: Why a node can't connect to another one; empty if it can.
        problems: Why a node does not listen, and what to do.
    """

    nodes: Sequence[ListedNode]
    places: dict[str, tuple[str, int]] = field(default_factory=dict)
    outcomes: dict[tuple[str, str], str] = field(default_factory=dict)
    problems: dict[str, tuple[str, str]] = field(default_factory=dict)
    all_listen: asyncio.Event = field(default_factory=asyncio.Event)
    all_have_met: asyncio.Event = field(default_factory=asyncio.Event)
    _have_met: set[str] = field(default_factory=set)

    def count(self) -> None:
        """Wake the nodes that wait for all others."""
        if len(self.places.keys() | self.problems.keys()) == len(self.nodes):
            self.all_listen.set()
        taking_part = self.places.keys() - self.problems.keys()
        if self.all_listen.is_set() and taking_part <= self._have_met:
            self.all_have_met.set()

    def listens(self, name: str, address: str, port: int) -> None:
        """Note where a node listens. Raises ``ValueError`` if that is no address."""
        self.places[name] = (str(ip_address(address)), port)
        self.count()

    def has_failed(self, name: str, problem: str, advice: str) -> None:
        """Note a node that takes no part, or no more."""
        self.problems[name] = problem, advice
        self.count()

    def has_met(self, name: str, outcomes: dict[str, Any]) -> None:
        """Note what became of the connections of a node."""
        for peer in outcomes.keys() & self.places.keys():
            self.outcomes[name, peer] = str(outcomes[peer])
        self._have_met.add(name)
        self.count()

    async def wait_for_all(self) -> None:
        """Wait until all nodes listen or have failed. One that takes too long has failed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LISTEN_LIMIT_S):
                await self.all_listen.wait()
        for node in self.nodes:
            name = str(node.address.node)
            if name not in self.places and name not in self.problems:
                self.has_failed(name, f"it does not listen after {_LISTEN_LIMIT_S:g} s", _SILENT)

    def neighbours(self, name: str) -> list[tuple[str, str, int]]:
        """Return the next and the previous node that listens, each with its place."""
        listening = [str(each.address.node) for each in self.nodes]
        listening = [each for each in listening if each not in self.problems]
        at, number = listening.index(name), len(listening)
        around = dict.fromkeys((listening[(at + 1) % number], listening[at - 1]))
        return [(each, *self.places[each]) for each in around if each != name]


async def check_network(
    cluster: Cluster, answering: set[str], logins: SshLogins
) -> list[CheckFinding]:
    """Find nodes that can't connect to their neighbours."""
    nodes = [node for node in cluster.nodes if str(node.address.node) in answering]
    if len(nodes) < 2:
        return []
    ring = _Ring(nodes)
    async with asyncio.TaskGroup() as group:
        for node in nodes:
            group.create_task(_meet(node, cluster, logins, ring))
    found = [
        CheckFinding("error", "training network", (name,), text, advice)
        for name, (text, advice) in ring.problems.items()
    ]
    return [
        *found,
        *check_ring(ring.outcomes, {name: place[0] for name, place in ring.places.items()}),
    ]


async def _meet(node: ListedNode, cluster: Cluster, logins: SshLogins, ring: _Ring) -> None:
    name = str(node.address.node)
    hosts = [
        each.address.training_address or each.address.ssh.host
        for each in ring.nodes
        if each is not node
    ]
    question = {
        "name": name,
        "host": node.address.training_address or node.address.ssh.host,
        "interface": node.address.training_interface,
        # Any of them shows the way to all: the list must fit on a command line.
        "peers": hosts[:2],
    }
    try:
        async with opened(node, cluster, logins) as (connection, address):
            words = [address.python, "-I", "-c", _script(), json.dumps(question)]
            async with conversation(connection, f"looking at {name}", words) as talk:
                place = (await talk.answer("unicron_meets"))["unicron_meets"]
                if "error" in place:
                    ring.has_failed(name, str(place["error"]), _WRONG)
                    return
                if not _is_its_own(node, str(place["address"])):
                    wrong = node.address.training_address
                    text = f"{wrong} is not its address; its ranks would use {place['address']}"
                    ring.has_failed(name, text, _WRONG)
                    return
                ring.listens(name, str(place["address"]), int(place["port"]))
                await ring.wait_for_all()
                talk.say(ring.neighbours(name))
                ring.has_met(name, dict((await talk.answer("unicron_met"))["unicron_met"]))
                await ring.all_have_met.wait()
    except (LinkError, ValueError, KeyError, TypeError) as error:
        ring.has_failed(name, f"it could not be asked: {error}", _SILENT)


def _is_its_own(node: ListedNode, found: str) -> bool:
    """Return whether the address that the file gives is the one that the node found.

    A name counts as right: on Debian a node has its own name at 127.0.1.1.
    """
    given = node.address.training_address
    if node.address.training_interface or not given:
        return True
    with suppress(ValueError):
        return ip_address(given) == ip_address(found)
    return True


def _script() -> str:
    """Return both modules as one: the second does not import the first on a bare node."""
    lines = "\n".join(map(module_text, _SCRIPT_PARTS)).splitlines()
    return "\n".join(line for line in lines if not line.startswith("from nodeagent"))
