"""Orders to the warden and from the warden to its hosts, their answers, and their format.

One JSON object per line over a socket pair. This is not the protocol of node agents: both ends are
in this package, on one machine. Standard library only, since the warden and the hosts import
nothing else.
"""

import json
import socket
from enum import StrEnum
from typing import Final, NamedTuple

_CHUNK_BYTES: Final = 65536


class Action(StrEnum):
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


class ServerCommand(NamedTuple):
    """The command that starts a node's SSH server."""

    argv: list[str]
    env: dict[str, str]
    log_path: str
    cut_method: CutMethod


class WardenOrder(NamedTuple):
    """One order. The answer carries the same ``number``.

    Attributes:
        number: Increases with every order.
        action: The kind of order.
        node: The node. The first order creates its host.
        server: The server's command, for ``START``.
        address: The node's address in its own network namespace; empty if it has none.
    """

    number: int
    action: Action
    node: str
    server: ServerCommand | None = None
    address: str = ""


class Answer(NamedTuple):
    """The answer to an order; ``error`` is empty if it was carried out."""

    number: int
    host_pid: int = 0
    server_pid: int = 0
    error: str = ""


class Hello(NamedTuple):
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


class RootRequest(NamedTuple):
    """The demo's first line: where the warden is to make the root directory.

    Attributes:
        parent: Where to make a directory with a new name, if ``root`` is empty.
        root: The directory to make. It must not exist.
        has_namespaces: Whether each node is to have its own network namespace.
    """

    parent: str
    root: str = ""
    has_namespaces: bool = False


def encode(message: WardenOrder | Answer | Hello | RootRequest) -> bytes:
    """Return ``message`` as one line."""
    fields = message._asdict()
    if isinstance(message, WardenOrder) and message.server is not None:
        fields["server"] = message.server._asdict()
    return json.dumps(fields).encode() + b"\n"


def decode_order(line: bytes) -> WardenOrder:
    """Return the order in ``line``."""
    fields = json.loads(line)
    server = fields.pop("server")
    if server is not None:
        server = ServerCommand(**{**server, "cut_method": CutMethod(server["cut_method"])})
    return WardenOrder(**{**fields, "action": Action(fields["action"])}, server=server)


def decode_answer(line: bytes) -> Answer:
    """Return the answer in ``line``."""
    return Answer(**json.loads(line))


def decode_hello(line: bytes) -> Hello:
    """Return the warden's first message in ``line``."""
    return Hello(**json.loads(line))


def decode_root_request(line: bytes) -> RootRequest:
    """Return the request in ``line``."""
    return RootRequest(**json.loads(line))


class LineSocket:
    """Lines over a blocking socket, for loops that wait with ``select``."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._rest = b""

    def fileno(self) -> int:
        """Return the descriptor, for ``select``."""
        return self._socket.fileno()

    def send(self, line: bytes) -> bool:
        """Send ``line``; return whether the other end is open."""
        try:
            self._socket.sendall(line)
        except OSError:
            return False
        return True

    def receive(self) -> list[bytes] | None:
        """Read once; return all complete lines, or None if the other end is closed."""
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except OSError:
            return None
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines

    def receive_line(self, timeout_s: float) -> bytes | None:
        """Return the next line; None if none arrives in time. Use it if only one is expected."""
        self._socket.settimeout(timeout_s)
        try:
            while (lines := self.receive()) is not None:
                if lines:
                    return lines[0]
            return None
        finally:
            self._socket.settimeout(None)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
