"""What the demo tells the warden, and the warden its hosts: orders, answers, and their line format.

One JSON object per line over a socket pair. This is not the protocol of the nodes: it never leaves
the machine, has both ends in this package, and is standard library only, since the warden and the
hosts import nothing else.
"""

import json
import socket
from enum import StrEnum
from typing import Final, NamedTuple

_CHUNK_BYTES: Final = 65536


class Action(StrEnum):
    """What an order asks for."""

    START = "start"
    """Kill what is left of the node, empty its state directory, then start its SSH server."""
    LOSE = "lose"
    """Kill everything of the node; it stays dead until it is started again."""
    CUT = "cut"
    """End the node's SSH sessions, but neither its listener nor what runs detached."""
    UNPLUG = "unplug"
    """Cut the link of the node's network namespace; what runs on the node goes on."""
    PLUG_IN = "plug-in"
    """Join the link again."""


class CutMethod(StrEnum):
    """How the sessions of an SSH server are ended without ending the server."""

    KILL_SESSIONS = "kill-sessions"
    """Each session is a process below the listener and carries the server's name (OpenSSH)."""
    SIGNAL_SERVER = "signal-server"
    """The server holds its sessions itself and drops them on SIGUSR1 (asyncssh)."""


class ServerCommand(NamedTuple):
    """How a node's SSH server is started."""

    argv: list[str]
    env: dict[str, str]
    log_path: str
    cut_method: CutMethod


class WardenOrder(NamedTuple):
    """One order. The answer carries the same ``number``.

    Attributes:
        number: Increases with every order.
        action: What to do.
        node: The node it is about; its host is created by the first order.
        server: Needed to start.
        address: Of the node in its own network namespace; empty where it has none.
    """

    number: int
    action: Action
    node: str
    server: ServerCommand | None = None
    address: str = ""


class Answer(NamedTuple):
    """What became of an order; ``error`` is empty if it was carried out."""

    number: int
    host_pid: int = 0
    server_pid: int = 0
    error: str = ""


class Hello(NamedTuple):
    """The warden's first line: where it made the root directory, or why it could not.

    ``gateway`` is the demo's own address where nodes get network namespaces; ``network_error`` why
    they can't, where that was asked for.
    """

    root: str = ""
    error: str = ""
    gateway: str = ""
    network_error: str = ""


class RootRequest(NamedTuple):
    """The demo's first line: where the root directory is to be.

    ``root`` is the directory itself, which must not exist; if empty, one with a new name is made
    in ``parent``. ``has_namespaces`` asks for a network namespace of each node's own.
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
    """Return the order in ``line``, which the other half of this package wrote."""
    fields = json.loads(line)
    server = fields.pop("server")
    if server is not None:
        server = ServerCommand(**{**server, "cut_method": CutMethod(server["cut_method"])})
    return WardenOrder(**{**fields, "action": Action(fields["action"])}, server=server)


def decode_answer(line: bytes) -> Answer:
    """Return the answer in ``line``."""
    return Answer(**json.loads(line))


def decode_hello(line: bytes) -> Hello:
    """Return the greeting in ``line``."""
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
        """Send ``line``; return whether the other end is still there."""
        try:
            self._socket.sendall(line)
        except OSError:
            return False
        return True

    def receive(self) -> list[bytes] | None:
        """Read once; return the lines now complete, or None if the other end is gone."""
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except OSError:
            return None
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines

    def receive_line(self, timeout_s: float) -> bytes | None:
        """Return the next line where only one is expected; None if there is none in time."""
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
