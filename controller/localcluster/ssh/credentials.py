"""The keys of one run: one client key for all nodes, and a host key for each node.

They are stored in the root directory, outside the state directories. So a restored node keeps its
host key.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from controller.localcluster.local_node import Account
from controller.localcluster.ssh.key_pairs import KeyPair, generate_key_pair, write_private
from controller.localcluster.ssh.ssh_server import Credentials
from nodeagent.protocol.ids import NodeId


@dataclass(frozen=True, slots=True)
class RunCredentials:
    """All keys of a run.

    Attributes:
        client: The key pair that logs in.
        hosts: The host key pair of each node.
        servers: The files of each node's server.
    """

    client: KeyPair
    hosts: dict[NodeId, KeyPair]
    servers: dict[NodeId, Credentials]

    @classmethod
    def generate(cls, root: Path, nodes: Iterable[NodeId]) -> "RunCredentials":
        """Generate the keys of ``nodes`` below ``root``.

        Raises:
            OSError: They can't be written.
        """
        client = generate_key_pair(root / "client_key", "unicron-demo")
        authorized = root / "authorized_keys"
        write_private(authorized, client.public_line.encode() + b"\n")
        account = Account.current()
        hosts: dict[NodeId, KeyPair] = {}
        servers: dict[NodeId, Credentials] = {}
        for node in nodes:
            directory = root / "ssh" / node
            directory.mkdir(mode=0o700, parents=True)
            hosts[node] = generate_key_pair(directory / "host_key", node)
            servers[node] = Credentials(directory, hosts[node].private_path, authorized, account)
        return cls(client, hosts, servers)
