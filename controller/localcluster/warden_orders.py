"""Orders to the warden and from the warden to its hosts, and their answers.

They travel over a socket pair, as the JSON lines of ``nodeagent.protocol.codec``. Both ends are in
this package, on one machine, so the messages carry no version.
"""

import socket
from enum import StrEnum
from typing import Final, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter

from nodeagent.protocol.codec import Codec, MessageReader, encode

_CHUNK_BYTES: Final = 65536


class WardenAction(StrEnum):
    """The kinds of orders."""

    START = "start"
    """Kill the node's processes, empty its state directory, then start its SSH server."""
    LOSE = "lose"
    """Kill all processes of the node. It stays lost until it is started again."""
    CUT = "cut"
    """End the node's SSH sessions, but neither its listener nor detached processes."""
    UNPLUG = "unplug"
    """Take the link of the node's network namespace down. Its processes continue."""
    PLUG_IN = "plug-in"
    """Take the link up again."""


class CutMethod(StrEnum):
    """How to end the sessions of an SSH server without ending the server."""

    KILL_SESSIONS = "kill-sessions"
    """Each session is a process below the listener with the server's name (OpenSSH)."""
    SIGNAL_SERVER = "signal-server"
    """The server process holds all sessions and drops them on SIGUSR1 (asyncssh)."""


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True)


class ServerCommand(_Message):
    """The command that starts a node's SSH server."""

    argv: list[str]
    env: dict[str, str]
    log_path: str
    cut_method: CutMethod


class WardenOrder(_Message):
    """One order. The answer carries the same ``number``.

    Attributes:
        number: Increases with every order.
        action: The kind of order.
        node: The node. The first order creates its host.
        server: The server's command, for ``START``.
        address: The node's address in its own network namespace; empty if it has none.
    """

    number: int
    action: WardenAction
    node: str
    server: ServerCommand | None = None
    address: str = ""


class Answer(_Message):
    """The answer to an order; ``error`` is empty if it was carried out."""

    number: int
    host_pid: int = 0
    server_pid: int = 0
    error: str = ""


class Hello(_Message):
    """The warden's first line: the root directory, or the error.

    Attributes:
        root: The directory that it made.
        error: Why it could not make one.
        gateway: The demo's address on the switch; empty without network namespaces.
        network_error: Why namespaces were requested and are impossible.
    """

    root: str = ""
    error: str = ""
    gateway: str = ""
    network_error: str = ""


class RootRequest(_Message):
    """The demo's first line: where the warden is to make the root directory.

    Attributes:
        parent: Where to make a directory with a new name, if ``root`` is empty.
        root: The directory to make. It must not exist.
        has_namespaces: Whether each node is to have its own network namespace.
    """

    parent: str
    root: str = ""
    has_namespaces: bool = False


MessageT = TypeVar("MessageT", bound=BaseModel)


class MessageSocket(Generic[MessageT]):
    """Messages over a blocking socket, for loops that wait with ``select``.

    Args:
        connection: The socket. This object closes it.
        received: The class of the messages that arrive.
    """

    def __init__(self, connection: socket.socket, received: type[MessageT]) -> None:
        self._socket = connection
        self._reader = MessageReader(Codec(TypeAdapter(received)))

    def fileno(self) -> int:
        """Return the descriptor, for ``select``."""
        return self._socket.fileno()

    def send(self, message: BaseModel) -> bool:
        """Send ``message``; return whether the other end is open."""
        try:
            self._socket.sendall(encode(message))
        except OSError:
            return False
        return True

    def receive(self) -> list[MessageT] | None:
        """Read once; return all complete messages, or None if the other end is closed."""
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except OSError:
            return None
        return list(self._reader.feed(data)) if data else None

    def receive_one(self, timeout_s: float) -> MessageT | None:
        """Return the next message; None if none arrives in time. Use it if one is expected."""
        self._socket.settimeout(timeout_s)
        try:
            while (messages := self.receive()) is not None:
                if messages:
                    return messages[0]
            return None
        finally:
            self._socket.settimeout(None)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
