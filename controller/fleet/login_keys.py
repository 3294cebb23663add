"""The keys that a login offers: the private key that is named, or what the ssh-agent holds.

Few keys are offered: servers count refused ones, and close the connection, or shut the address out.
"""

import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import asyncssh

from controller.fleet.address import SshTarget
from controller.fleet.errors import LoginError

_AGENT: Final = "SSH_AUTH_SOCK"


@contextlib.asynccontextmanager
async def login_keys(
    target: SshTarget, environment: Mapping[str, str] = os.environ
) -> AsyncIterator[Sequence[str | asyncssh.SSHKeyPair]]:
    """Offer the keys for a login while the block runs.

    Raises:
        LoginError: The key has a passphrase, and no ssh-agent holds it.
        OSError: The key can't be read.
        asyncssh.KeyImportError: The file is no private key.
    """
    if target.client_key and not needs_passphrase(Path(target.client_key)):
        yield [target.client_key]
        return
    place = environment.get(_AGENT, "")
    if not place:
        raise LoginError(_why_not(target, f"{_AGENT} is not set"))
    try:
        agent = await asyncssh.connect_agent(place)
    except (OSError, asyncssh.Error) as error:
        raise LoginError(_why_not(target, f"{place} does not answer: {error}")) from error
    async with agent:
        wanted = [_public(Path(target.client_key))] if target.client_key else None
        keys = await agent.get_keys(wanted)
        if not keys:
            raise LoginError(_why_not(target, "the ssh-agent does not hold it"))
        yield keys


def needs_passphrase(path: Path) -> bool:
    """Return whether a private key can't be used without a passphrase.

    Raises:
        OSError: The file can't be read.
        asyncssh.KeyImportError: It is no private key.
    """
    text = path.read_bytes()
    try:
        asyncssh.import_private_key(text)
    except asyncssh.KeyImportError as error:
        if "assphrase" in str(error):
            return True
        raise
    return False


def _public(path: Path) -> bytes:
    """Return the public half of a private key with a passphrase, from the file beside it.

    Raises:
        LoginError: There is none.
    """
    beside = Path(f"{path}.pub")
    try:
        return asyncssh.read_public_key(beside).public_data
    except (OSError, asyncssh.KeyImportError) as error:
        text = f"{path} has a passphrase, and its public half {beside} can't be read: {error}"
        raise LoginError(f"{text}; make it with: ssh-keygen -y -f {path} > {beside}") from error


def _why_not(target: SshTarget, reason: str) -> str:
    if not target.client_key:
        return f"no identity is named, and {reason}: name one, or load a key with ssh-add"
    return (
        f"{target.client_key} has a passphrase, which nobody can type here, and {reason}: load it with"
        f" ssh-add {target.client_key}, or name an identity without a passphrase"
    )
