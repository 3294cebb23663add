"""The address of a node: its SSH server, the way there, and the paths on the node."""

import asyncio
import socket
from dataclasses import dataclass, replace
from typing import Final

from pydantic import TypeAdapter

from nodeagent.protocol.ids import NodeId

SSH_PORT: Final = 22
_HOME: Final = "~/"


@dataclass(frozen=True, slots=True)
class SshTarget:
    """An SSH server, and the keys by which both sides prove their identity.

    Attributes:
        host: Name or address of the server.
        port: Its port.
        user: User to log in as.
        client_key: Path of the private key to log in with; empty for the keys of the ssh-agent.
        host_key: Pinned host key in OpenSSH format, or its fingerprint (``SHA256:...``). Any other
            key is refused. Empty if a file of ``known_hosts`` has it.
        known_hosts: Paths of known_hosts files, read at each connection. Files that are not there
            know no host.
        host_key_alias: Name of the server in known_hosts; empty if it is ``host``.
    """

    host: str
    port: int
    user: str
    client_key: str = ""
    host_key: str = ""
    known_hosts: tuple[str, ...] = ()
    host_key_alias: str = ""

    @property
    def place(self) -> str:
        """Host and port, for people."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def name_in_known_hosts(self) -> str:
        """The name that a known_hosts file has for it. It names no port if that is 22."""
        if self.host_key_alias:
            return self.host_key_alias
        return self.host if self.port == SSH_PORT else f"[{self.host}]:{self.port}"

    @property
    def known_hosts_line(self) -> str:
        """The pinned key as a line of a known_hosts file."""
        return f"{self.name_in_known_hosts} {self.host_key.strip()}\n"


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """How a node is reached, and where Unicron's files are on it.

    Attributes:
        node: Name of the node in the cluster.
        ssh: Its SSH server.
        state_dir: Directory on the node that belongs to Unicron: absolute, or below ``~/``, the
            home of the user there.
        python: Interpreter on the node that has the packages the ranks need; it too may be below
            ``~/``.
        num_workers: Worker slots of the node.
        kernel_log: File on the node that its agent follows as the kernel log. If empty, the agent
            follows the kernel's own log.
        jumps: Jump hosts on the way to it, the first one first. Each is reached through the one
            before.
        training_address: Address or name of the node in the network of the ranks; empty if it is
            the one that SSH uses.
        training_interface: Network interface of the ranks; empty to find it.
        unit: System unit of the site that runs the agent; empty to start it in another way.
        has_template: False if all tasks are commands, so that no rank is forked from a template.
    """

    node: NodeId
    ssh: SshTarget
    state_dir: str
    python: str
    num_workers: int
    kernel_log: str = ""
    jumps: tuple[SshTarget, ...] = ()
    training_address: str = ""
    training_interface: str = ""
    unit: str = ""
    has_template: bool = True

    @property
    def way(self) -> str:
        """Where it is reached, for people: ``10.0.0.7:22 through bastion:22``."""
        hops = ", ".join(jump.place for jump in self.jumps)
        return f"{self.ssh.place} through {hops}" if hops else self.ssh.place

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
