"""``nodeagent bridge``: the agent's socket over standard input and output.

For SSH servers that forbid forwarding: the session of the controller runs over an ordinary command.
The session begins after ``BRIDGE_MARKER``. The bridge ends with whichever side ends first. Standard
library only: it lives as long as the session, and stays small.
"""

import os
import socket
import sys
import threading
from collections.abc import Sequence
from typing import Final

from nodeagent.protocol.bridging import BRIDGE_MARKER

_BYTES: Final = 64 * 1024
_STDIN, _STDOUT = 0, 1


def main(arguments: Sequence[str]) -> int:
    """Connect to the agent's socket, ``--socket PATH``, and copy both ways until one side ends."""
    if len(arguments) != 2 or arguments[0] != "--socket":
        sys.stderr.write("nodeagent: bridge needs --socket PATH and nothing else\n")
        return 2
    place = arguments[1]
    agent = socket.socket(socket.AF_UNIX)
    try:
        agent.connect(place)
    except OSError as error:
        sys.stderr.write(f"nodeagent: no agent answers at {place}: {error.strerror}\n")
        return 1
    _write_all(BRIDGE_MARKER)
    threading.Thread(target=_to_controller, args=(agent,), daemon=True).start()
    try:
        while data := os.read(_STDIN, _BYTES):
            agent.sendall(data)
    except OSError:
        pass  # the agent has ended
    return 0


def _to_controller(agent: socket.socket) -> None:
    try:
        while data := agent.recv(_BYTES):
            _write_all(data)
    except OSError:
        pass  # the connection to the controller has ended
    # The other thread waits in a read that nothing ends.
    os._exit(0)


def _write_all(data: bytes) -> None:
    while data:
        data = data[os.write(_STDOUT, data) :]
