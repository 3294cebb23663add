"""Nodes that connect to each other on the network of the ranks, before any rank does.

The controller runs the text of this module, after that of ``network_interfaces``, with
``python -c``. Each node listens, as its ranks will, and prints where. Then it reads on standard
input which nodes to connect to, and prints what became of that. Each message is one line of JSON.
It ends when standard input does.
"""

import json
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from nodeagent.process_tools.network_interfaces import NoInterfaceError, find_interface

_LIMIT_S: Final = 5.0
_NUM_BYTES: Final = 256 * 1024
"""More than a packet: where routers drop large packets, connections open and then stand still."""


def meet(question: Mapping[str, Any]) -> None:
    """Listen, connect, and print both.

    Args:
        question: ``name`` of this node, its training ``host``, its training ``interface`` or
            nothing, and ``peers``, the training hosts of other nodes.
    """
    address = question["host"]
    try:
        found = find_interface(address, question["interface"], question["peers"])
        address = found.address if found else address
        listener = socket.create_server(
            (address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET
        )
    except NoInterfaceError as error:
        _say({"unicron_meets": {"error": str(error)}})
        return
    except OSError as error:
        reason = f"it can't listen at {address}: {error.strerror or error}"
        _say({"unicron_meets": {"error": reason}})
        return
    with listener:
        answer = f"{question['name']}\n".encode().ljust(_NUM_BYTES)
        threading.Thread(target=_answer_all, args=(listener, answer), daemon=True).start()
        place, port = listener.getsockname()[:2]
        _say({"unicron_meets": {"address": place, "port": port}})
        for line in sys.stdin:
            _say({"unicron_met": connect_all(json.loads(line))})


def connect_all(peers: Sequence[Sequence[Any]]) -> dict[str, str]:
    """Connect to nodes, given as name, address and port; return why it failed, or nothing."""
    with ThreadPoolExecutor(max_workers=max(1, len(peers))) as threads:
        outcomes = threads.map(lambda peer: connect(*peer), peers)
        return dict(zip((str(name) for name, *_ in peers), outcomes, strict=True))


def connect(name: str, address: str, port: int) -> str:
    """Connect to a node and read all that it sends; return why that failed, or nothing."""
    received = b""
    try:
        with socket.create_connection((address, port), timeout=_LIMIT_S) as stream:
            while data := stream.recv(_NUM_BYTES):
                received += data
    except TimeoutError:
        if received:
            return f"a connection opens and stops after {len(received)} bytes: is the MTU the same?"
        return f"no answer within {_LIMIT_S:g} s"
    except OSError as error:
        return error.strerror or str(error)
    there = received.partition(b"\n")[0].decode(errors="replace")
    return "" if there == name else f"something else answers there: {there!r}"


def _answer_all(listener: socket.socket, answer: bytes) -> None:
    while True:
        try:
            stream, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_send, args=(stream, answer), daemon=True).start()


def _send(stream: socket.socket, answer: bytes) -> None:
    stream.settimeout(_LIMIT_S)
    with stream:
        try:
            stream.sendall(answer)
        except OSError:
            return


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write("\n" + json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    meet(json.loads(sys.argv[1]))
