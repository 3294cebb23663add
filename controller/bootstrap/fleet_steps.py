"""Puts the agent on nodes, and takes it away: many nodes at once. What fails on one stops no other.

The steps on a node: look, copy, start, and look again from a second login.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import asyncssh

from controller.bootstrap.node_facts import (
    NodeFacts,
    NotReadyError,
    ask_facts,
    check_facts,
    run_there,
)
from controller.bootstrap.wheel_cache import Wheels, wheels_for
from controller.fleet.address import NodeAddress
from controller.fleet.bootstrap import code_directory, ensure_agent
from controller.fleet.bundle import Bundle, build_bundle
from controller.fleet.errors import LinkError
from controller.fleet.node_commands import copy_files, home_of, run_if_there
from controller.fleet.node_connection import SshLogins
from nodeagent.protocol.ids import NodeId

_NO_ANSWER: Final = "no agent answers"
_STATUS: Final = """\
for code in "$1"/agent/*/; do
  if [ -e "$code/__main__.py" ]; then exec "$2" "$code" status --state-dir "$1"; fi
done
exit 3
"""
"""Any version of the agent's code can ask the agent: it asks over the agent's socket."""
_USE_WHEELS: Final = 'printf %s "$2" >"$1/current.$2" && mv -f -- "$1/current.$2" "$1/current"'
_REMOVE: Final = """\
rm -rf -- "$1" || exit 1
rmdir -- "$2" 2>/dev/null || :
"""
"""Only directories that are empty then are removed above it: other nodes may share them."""


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
        started = await _start_on(address, bundle, logins, cache)
        text = f"{started.what}: process {started.agent.pid}"
        return NodeOutcome(address.node, text, facts=str(started.facts))

    async for outcome in _all(addresses, start, most):
        yield outcome


async def remove_all(
    addresses: Sequence[NodeAddress], logins: SshLogins, most: int, *, is_forced: bool
) -> AsyncGenerator[NodeOutcome]:
    """Take the agent away from all nodes, ``most`` at once; yield each outcome as it comes."""

    async def remove(address: NodeAddress) -> NodeOutcome:
        return NodeOutcome(address.node, await _remove_from(address, logins, is_forced=is_forced))

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


@dataclass(frozen=True, slots=True)
class _AgentFacts:
    """An agent that answers.

    Attributes:
        agent_id: Identity of the process.
        pid: Its process.
        code_dir: Directory of its code.
        num_ranks: Ranks that live there.
    """

    agent_id: str
    pid: int
    code_dir: str
    num_ranks: int


@dataclass(frozen=True, slots=True)
class _Started:
    """A node that is ready.

    Attributes:
        agent: Its agent.
        facts: What its interpreter has.
        what: What was done, for people.
    """

    agent: _AgentFacts
    facts: NodeFacts
    what: str


async def _start_on(
    address: NodeAddress, bundle: Bundle, logins: SshLogins, cache: Path
) -> _Started:
    """Put the agent on a node and start it, unless it runs there already.

    Where the interpreter lacks the agent's dependencies, their wheels come from ``cache``.

    Raises:
        LinkError: The node can't be reached.
        NotReadyError: The agent can't run there. If another version ran before, it runs again.
    """
    async with await logins.open(address) as connection:
        address = await _absolute(connection, address)
        facts = await ask_facts(connection, address)
        check_facts(facts, address)
        if not facts.has_pydantic:
            await _put_wheels(connection, address, wheels_for(facts, cache))
        before = await _agent(connection, address)
        try:
            await ensure_agent(connection, address, bundle)
        except LinkError as error:
            note = await _go_back(connection, address, before, bundle)
            raise NotReadyError(f"{error}{note}", "the text names what is wrong there") from error
    # A login's end may take its processes along: KillUserProcesses of systemd-logind does.
    async with await logins.open(address) as connection:
        agent = await _asked_agent(connection, address)
    if before is None:
        what = "started"
    elif before.agent_id == agent.agent_id:
        what = "runs already"
    else:
        what = f"replaces the agent that was process {before.pid}"
    return _Started(agent, facts, what)


async def _remove_from(address: NodeAddress, logins: SshLogins, *, is_forced: bool) -> str:
    """Take the agent and all its files away from a node; return what was done.

    Raises:
        LinkError: The node can't be reached.
        NotReadyError: Ranks live there and ``is_forced`` is not set, or something does not end.
    """
    async with await logins.open(address) as connection:
        address = await _absolute(connection, address)
        agent = await _agent(connection, address)
        if agent is not None and agent.num_ranks and not is_forced:
            raise NotReadyError(
                f"{agent.num_ranks} rank(s) live there",
                "end them with `unicron down`, or add --force to end them at once",
            )
        if agent is not None:
            words = [address.python, agent.code_dir, "stop", "--state-dir", address.state_dir]
            await run_there(connection, address, "ending the agent on", *words, "--kill-ranks")
        cluster_dir = address.state_dir.rpartition("/")[0]
        words = ["sh", "-c", _REMOVE, "sh", address.state_dir, cluster_dir]
        await run_there(connection, address, "removing files on", *words)
    return "removed" if agent is None else f"removed; the agent was process {agent.pid}"


async def _put_wheels(
    connection: asyncssh.SSHClientConnection, address: NodeAddress, wheels: Wheels
) -> None:
    """Copy wheels beside the agent's code, and have it use them from its next start on.

    Raises:
        LinkError: The connection broke, or something can't be written.
    """
    folder = f"{address.state_dir}/wheels"
    words = ["sh", "-c", _USE_WHEELS, "sh", folder, wheels.digest]
    directory = f"{folder}/{wheels.digest}"
    doing = f"looking at wheels on {address.node}"
    if await run_if_there(connection, doing, directory, ["true"]) is None:
        await copy_files(connection, address, "wheels", wheels.files, directory)
    await run_there(connection, address, "choosing wheels on", *words)


async def _absolute(connection: asyncssh.SSHClientConnection, address: NodeAddress) -> NodeAddress:
    if address.is_absolute:
        return address
    return address.at_home(await home_of(connection, address.node))


async def _asked_agent(
    connection: asyncssh.SSHClientConnection, address: NodeAddress
) -> _AgentFacts:
    """Return the agent that answers on a node.

    Raises:
        NotReadyError: None answers any more, or it can't be asked.
    """
    words = ["sh", "-c", _STATUS, "sh", address.state_dir, address.python]
    try:
        done = await run_there(connection, address, "asking the agent on", *words)
        found = done.answer("kind")
        return _AgentFacts(found["agent_id"], found["pid"], found["code_dir"], len(found["ranks"]))
    except (ValueError, KeyError) as error:
        raise NotReadyError("the agent does not say how it is", "see agent.log there") from error
    except NotReadyError as error:
        if _NO_ANSWER not in str(error):
            raise
        raise NotReadyError(
            "the agent ended with the login that started it",
            "let processes outlive a login: loginctl enable-linger USER, or KillUserProcesses=no",
        ) from error


async def _agent(
    connection: asyncssh.SSHClientConnection, address: NodeAddress
) -> _AgentFacts | None:
    """Return the agent that answers on a node; None if there is none, or no code to ask it with."""
    try:
        return await _asked_agent(connection, address)
    except NotReadyError:
        return None


async def _go_back(
    connection: asyncssh.SSHClientConnection,
    address: NodeAddress,
    before: _AgentFacts | None,
    bundle: Bundle,
) -> str:
    """Start the version that ran before; return what became of it, for people."""
    if before is None or before.code_dir == code_directory(address, bundle):
        return ""
    old = Bundle({}, before.code_dir.rpartition("/")[2])
    try:
        await ensure_agent(connection, address, old)
    except LinkError as error:
        return f"; the version before does not start any more: {error}"
    return "; the version before runs again"
