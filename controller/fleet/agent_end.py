"""Ends the agent of a node, with all that it ever started there: ranks and template."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from controller.fleet.address import NodeAddress
from controller.fleet.errors import LinkError, TemporaryLinkError
from controller.fleet.host_keys import AcceptedKeys
from controller.fleet.node_commands import home_of, run_words
from controller.fleet.node_connection import SshLogins
from nodeagent.protocol.ids import NodeId

_END_LIMIT_S: Final = 40.0
_SCRIPT: Final = """\
for code in "$1"/agent/*/; do
  if [ -e "$code/__main__.py" ]; then exec "$2" "$code" stop --state-dir "$1" --kill-ranks; fi
done
"""
"""Any version of the agent's code can end the agent: it asks over the agent's socket."""


async def end_agents(
    addresses: Sequence[NodeAddress], accepted: AcceptedKeys | None = None
) -> AsyncIterator[tuple[NodeId, str]]:
    """End the agents of all nodes at once; yield each node with the reason if it did not work."""
    logins = SshLogins(accepted)
    outcomes: asyncio.Queue[tuple[NodeId, str]] = asyncio.Queue()

    async def end(address: NodeAddress) -> None:
        try:
            await _end_agent(address, logins)
        except LinkError as error:
            outcomes.put_nowait((address.node, str(error)))
        else:
            outcomes.put_nowait((address.node, ""))

    async with logins, asyncio.TaskGroup() as group:
        for address in addresses:
            group.create_task(end(address))
        for _ in addresses:
            yield await outcomes.get()


async def _end_agent(address: NodeAddress, logins: SshLogins) -> None:
    """End one agent; do nothing if there is none.

    Raises:
        LinkError: The node can't be reached, or something there does not end.
    """
    async with await logins.open(address) as connection:
        if not address.is_absolute:
            address = address.at_home(await home_of(connection, address.node))
        doing = f"ending the agent on {address.node}"
        words = ["sh", "-c", _SCRIPT, "sh", address.state_dir, address.python]
        done = await run_words(connection, doing, words, limit_s=_END_LIMIT_S)
        if done.status != 0:
            raise TemporaryLinkError(f"{doing}: {done.last_words}")
