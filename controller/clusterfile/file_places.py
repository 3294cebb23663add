"""Where a cluster file is, here or on another machine, and which directory its controller has.

All commands need this, so it imports little.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controller.clusterfile.cluster_keys import ClusterSection
from profiles.records import user_path

SOCKET_NAME: Final = "api.sock"
"""The controller's socket in its directory."""
_SCHEME: Final = "ssh://"
_URL: Final = re.compile(
    r"ssh://(?:(?P<user>[^@/:\s]+)@)?(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[^@/:\s\[\]-][^@/:\s\[\]]*))"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<path>/.+)"
)


class RemoteClusterError(Exception):
    """The machine can't be reached, or the file can't be read there. The text is one line."""


@dataclass(frozen=True, slots=True)
class RemotePlace:
    """A cluster file on another machine.

    Attributes:
        user: Who logs in; empty for whom the SSH configuration names.
        host: The machine, as the SSH configuration knows it.
        port: Its SSH port; None for the one that the SSH configuration names.
        path: The absolute path of the file there.
    """

    user: str
    host: str
    port: int | None
    path: str

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = f":{self.port}" if self.port is not None else ""
        return f"{_SCHEME}{user}{host}{port}{self.path}"


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A cluster file as it was read from another machine.

    Attributes:
        text: The file.
        home: The home of the user there.
        state_home: ``XDG_STATE_HOME`` there; empty if it is not set.
    """

    text: str
    home: str
    state_home: str


def remote_place(text: str) -> RemotePlace | None:
    """Return what a URL names; None if ``text`` is none.

    Raises:
        ValueError: It begins like a URL, but is wrong.
    """
    if not text.startswith(_SCHEME):
        return None
    found = _URL.fullmatch(text)
    if found is None:
        raise ValueError(f"{text}: write ssh://[USER@]HOST[:PORT]/PATH/OF/cluster.toml")
    port = found["port"]
    return RemotePlace(
        found["user"] or "", found["six"] or found["host"], int(port) if port else None,
        found["path"],
    )  # fmt: skip


def run_directory(
    section: ClusterSection,
    folder: Path,
    home: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Path:
    """Return the directory of the controller's files.

    Args:
        section: What the file says.
        folder: The directory of the cluster file.
        home: The home of the controller's user; None for that of this program's.
        environment: The controller's.
    """
    home = home or Path.home()
    if section.run_dir is not None:
        parts = Path(section.run_dir).parts
        if parts[:1] == ("~",):
            return home.joinpath(*parts[1:])
        return folder / user_path(section.run_dir)
    given = environment.get("XDG_STATE_HOME", "")
    # A relative path is to be ignored, says the XDG base directory specification.
    state_home = Path(given) if given.startswith("/") else home / ".local" / "state"
    return state_home / "unicron" / section.name
