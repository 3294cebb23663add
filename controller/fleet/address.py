"""The address of a node: its SSH server, the keys of both sides, and the paths on the node."""

import asyncio
import socket
from dataclasses import dataclass, replace
from typing import Final

from pydantic import TypeAdapter

from nodeagent.protocol.ids import NodeId

_SSH_PORT: Final = 22
_HOME: Final = "~/"


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """A node's SSH server, and the keys by which controller and node prove their identity.

    Attributes:
        node: Name of the node in the cluster.
        host: Name or address of its SSH server.
        port: Port of its SSH server.
        user: User to log in as.
        client_key: Path of the private key to log in with.
        host_public_key: Pinned host key in OpenSSH format. Any other key is refused. Empty if
            ``known_hosts`` has it.
        state_dir: Directory on the node that belongs to Unicron: absolute, or below ``~/``, the
            home of ``user`` there.
        python: Interpreter on the node that has the packages the ranks need; it too may be below
            ``~/``.
        num_workers: Worker slots of the node.
        kernel_log: File on the node that its agent follows as the kernel log. If empty, the agent
            follows the kernel's own log.
        known_hosts: Path of a known_hosts file, read at each connection.
        training_address: Address or name of the node in the network of the ranks; empty if it is
            ``host``.
        training_interface: Network interface of the ranks; empty to find it.
        has_template: False if all tasks are commands, so that no rank is forked from a template.
    """

    node: NodeId
    host: str
    port: int
    user: str
    client_key: str
    host_public_key: str
    state_dir: str
    python: str
    num_workers: int
    kernel_log: str = ""
    known_hosts: str = ""
    training_address: str = ""
    training_interface: str = ""
    has_template: bool = True

    @property
    def known_hosts_line(self) -> str:
        """The pinned key as a line of a known_hosts file. Such a line names no port if it is 22."""
        host = self.host if self.port == _SSH_PORT else f"[{self.host}]:{self.port}"
        return f"{host} {self.host_public_key.strip()}"

    @property
    def agent_socket(self) -> str:
        """Path of the agent's socket on the node."""
        return f"{self.state_dir}/agent.sock"

    def at_home(self, home: str) -> "NodeAddress":
        """Return the address with its paths made absolute, given the home of ``user`` there."""
        state_dir, python = (
            f"{home.rstrip('/')}/{path[2:]}" if path.startswith(_HOME) else path
            for path in (self.state_dir, self.python)
        )
        return replace(self, state_dir=state_dir, python=python)

    @property
    def is_absolute(self) -> bool:
        """Whether no path begins with ``~/``."""
        return not any(path.startswith(_HOME) for path in (self.state_dir, self.python))


_ADDRESS: Final = TypeAdapter(NodeAddress)


def encode_address(address: NodeAddress) -> str:
    """Return an address as text, which the core and the journal keep. It holds no secret."""
    return _ADDRESS.dump_json(address).decode()


def decode_address(text: str) -> NodeAddress:
    """Return the address that ``encode_address`` made a text of."""
    return _ADDRESS.validate_json(text)


async def connected_socket(host: str, port: int) -> socket.socket:
    """Return a TCP socket that is connected to a server, by the first address that answers.

    Raises:
        OSError: The name is unknown, or no address answers.
    """
    loop = asyncio.get_running_loop()
    failure: OSError | None = None
    for family, kind, protocol, _, place in await loop.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        found = socket.socket(family, kind, protocol)
        try:
            found.setblocking(False)
            await loop.sock_connect(found, place)
        except OSError as error:
            found.close()
            failure = error
        except BaseException:
            found.close()
            raise
        else:
            return found
    raise failure or OSError(f"{host} has no address")
