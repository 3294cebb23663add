"""Generates Ed25519 key pairs for one run of the demo. Private files have mode 0600."""

import os
from pathlib import Path
from typing import NamedTuple

import asyncssh


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
