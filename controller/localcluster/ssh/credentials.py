"""The keys of one run: one client key for all nodes, and a host key for each node.

They are stored in the root directory, outside the state directories. So a restored node keeps its
host key. All are Ed25519; private files have mode 0600.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import asyncssh

from controller.localcluster.local_node import Account
from controller.localcluster.ssh.ssh_server import Credentials
from nodeagent.protocol.ids import NodeId


class KeyPair(NamedTuple):
    """A key pair: the path of the private key, and the public key as an OpenSSH line."""

    private_path: Path
    public_line: str


def generate_key_pair(private_path: Path, comment: str) -> KeyPair:
    """Generate a key pair and write its private key.

    Raises:
        OSError: ``private_path`` exists or can't be written.
    """
    key = asyncssh.generate_private_key("ssh-ed25519", comment=comment)
    write_private(private_path, key.export_private_key())
    return KeyPair(private_path, key.export_public_key().decode().strip())


def write_private(path: Path, content: bytes) -> None:
    """Write a new file that only its owner can read.

    Raises:
        OSError: ``path`` exists or can't be written.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
        file.write(content)


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
