"""Keys with a passphrase, and OpenSSH's agent."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncssh


@contextmanager
def ssh_agent(directory: Path) -> Iterator[str]:
    """Run OpenSSH's agent; yield its socket."""
    place = directory / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(place)], stdout=subprocess.DEVNULL)
    try:
        while not place.exists():
            assert agent.poll() is None
        yield str(place)
    finally:
        agent.terminate()
        agent.wait()


def locked_copy(key: Path, place: Path) -> Path:
    """Write a copy of a key that has a passphrase, and its public key beside it."""
    shutil.copy(key, place)
    words = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", str(place)]
    subprocess.run(words, check=True, capture_output=True)
    asyncssh.read_private_key(key).write_public_key(f"{place}.pub")
    return place
