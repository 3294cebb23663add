"""The same steps on many nodes at once. What fails on one node stops no other."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from controller.bootstrap.node_facts import NotReadyError
from controller.bootstrap.node_steps import remove_from, start_on
from controller.fleet.address import NodeAddress
from controller.fleet.bundle import build_bundle
from controller.fleet.errors import LinkError
from controller.fleet.node_connection import SshLogins
from nodeagent.protocol.ids import NodeId


@dataclass(frozen=True, slots=True)
class NodeOutcome:
    """What became of one node.

    Attributes:
        node: Its name.
        text: What was done, or why it did not work.
        advice: What to do about it; empty if it worked, or if the text says that.
        is_done: Whether it worked.
        facts: What its interpreter has, for people; empty if nobody looked.
    """

    node: NodeId
    text: str
    advice: str = ""
    is_done: bool = True
    facts: str = ""


async def start_all(
    addresses: Sequence[NodeAddress], logins: SshLogins, most: int, cache: Path
) -> AsyncGenerator[NodeOutcome]:
    """Put the agent on all nodes, ``most`` at once; yield each outcome as it comes.

    Nodes without the agent's dependencies get wheels from ``cache``.
    """
    bundle = build_bundle()

    async def start(address: NodeAddress) -> NodeOutcome:
        started = await start_on(address, bundle, logins, cache)
        text = f"{started.what}: process {started.agent.pid}"
        return NodeOutcome(address.node, text, facts=str(started.facts))

    async for outcome in _all(addresses, start, most):
        yield outcome


async def remove_all(
    addresses: Sequence[NodeAddress], logins: SshLogins, most: int, *, is_forced: bool
) -> AsyncGenerator[NodeOutcome]:
    """Take the agent away from all nodes, ``most`` at once; yield each outcome as it comes."""

    async def remove(address: NodeAddress) -> NodeOutcome:
        return NodeOutcome(address.node, await remove_from(address, logins, is_forced=is_forced))

    async for outcome in _all(addresses, remove, most):
        yield outcome


async def _all(
    addresses: Sequence[NodeAddress],
    step: Callable[[NodeAddress], Awaitable[NodeOutcome]],
    most: int,
) -> AsyncGenerator[NodeOutcome]:
    gate = asyncio.Semaphore(most)
    outcomes: asyncio.Queue[NodeOutcome] = asyncio.Queue()

    async def attempt(address: NodeAddress) -> None:
        try:
            async with gate:
                outcome = await step(address)
        except NotReadyError as error:
            outcome = NodeOutcome(address.node, str(error), error.advice, is_done=False)
        except LinkError as error:
            outcome = NodeOutcome(address.node, str(error), is_done=False)
        outcomes.put_nowait(outcome)

    async with asyncio.TaskGroup() as group:
        for address in addresses:
            group.create_task(attempt(address))
        for _ in addresses:
            yield await outcomes.get()
