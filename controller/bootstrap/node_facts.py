"""What a node has: its interpreter and the packages in it. Nothing is installed or changed."""

import re
from dataclasses import dataclass
from typing import Final

import asyncssh

from controller.fleet.address import NodeAddress
from controller.fleet.node_commands import NO_PROGRAM, Done, run_words

LEAST_PYTHON: Final = (3, 11)
_LEAST_PYDANTIC: Final = (2, 9)
_KEY: Final = "unicron_facts"
# For interpreters of any age. Versions are read without an import: that of torch takes seconds.
_QUESTION: Final = f"""\
import json, platform, sys
def version(name):
    try:
        from importlib.metadata import version
        return version(name)
    except Exception:
        return ""
names = ("pydantic", "torch", "megatron-core")
print(json.dumps({{"{_KEY}": {{
    "python": list(sys.version_info[:3]), "machine": platform.machine(),
    "packages": {{name: version(name) for name in names}},
}}}}))
"""


class NotReadyError(Exception):
    """A node can't run the agent. ``advice`` says what to do there; both are one line."""

    def __init__(self, text: str, advice: str) -> None:
        super().__init__(text)
        self.advice = advice


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What the interpreter of a node has.

    Attributes:
        python: Its version.
        machine: Architecture, such as ``x86_64``.
        packages: Versions of the packages that matter; empty if one is missing.
    """

    python: tuple[int, int, int]
    machine: str
    packages: dict[str, str]

    @property
    def has_pydantic(self) -> bool:
        """Whether the agent can use the interpreter's own pydantic."""
        found = re.match(r"(\d+)\.(\d+)", self.packages.get("pydantic", ""))
        return found is not None and (int(found[1]), int(found[2])) >= _LEAST_PYDANTIC

    def __str__(self) -> str:
        """Return the facts in one line for people."""
        found = [f"{name} {version}" for name, version in self.packages.items() if version]
        return ", ".join([f"Python {'.'.join(map(str, self.python))}", *found])


async def ask_facts(connection: asyncssh.SSHClientConnection, address: NodeAddress) -> NodeFacts:
    """Return what the interpreter of a node has.

    Raises:
        LinkError: The connection broke.
        NotReadyError: There is no such interpreter, or it does not run.
    """
    words = [address.python, "-c", _QUESTION]
    done = await run_words(connection, f"looking at {address.node}", words)
    mend = "name an interpreter that has torch and megatron-core: python, in [ssh] or [[nodes]]"
    if done.status in NO_PROGRAM:
        raise NotReadyError(f"there is no interpreter {address.python}", mend)
    try:
        found = done.answer(_KEY)[_KEY]
        return NodeFacts(tuple(found["python"]), found["machine"], found["packages"])
    except (ValueError, KeyError, TypeError):
        raise NotReadyError(f"{address.python} does not run: {done.last_words}", mend) from None


def check_facts(facts: NodeFacts, address: NodeAddress) -> None:
    """Check that the agent, and the ranks if they are Unicron's own, can run there.

    Raises:
        NotReadyError: Something is missing.
    """
    if facts.python[:2] < LEAST_PYTHON:
        least = ".".join(map(str, LEAST_PYTHON))
        raise NotReadyError(
            f"{address.python} is Python {'.'.join(map(str, facts.python))}",
            f"the agent needs Python {least} or newer: name another interpreter as python",
        )
    if facts.packages.get("pydantic") and not facts.has_pydantic:
        found, least = facts.packages["pydantic"], ".".join(map(str, _LEAST_PYDANTIC))
        raise NotReadyError(
            f"{address.python} has pydantic {found}",
            f"the agent needs {least} or newer: {address.python} -m pip install -U pydantic",
        )
    # A command brings an interpreter of its own.
    wanted = ["torch", "megatron-core"] if address.has_template else []
    if missing := [name for name in wanted if not facts.packages.get(name)]:
        names = " ".join(missing)
        raise NotReadyError(
            f"{address.python} has no {' and no '.join(missing)}",
            f"install it there: {address.python} -m pip install {names}",
        )


async def run_there(
    connection: asyncssh.SSHClientConnection, address: NodeAddress, doing: str, *words: str
) -> Done:
    """Run a command on a node; return what became of it.

    Raises:
        LinkError: The connection broke.
        NotReadyError: The command failed. The text holds its last line.
    """
    done = await run_words(connection, f"{doing} {address.node}", words)
    if done.status != 0:
        raise NotReadyError(
            f"{doing} {address.node}: {done.last_words}", "look into agent.log there"
        )
    return done
