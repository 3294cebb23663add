"""Loopback ports for the nodes, reserved until the demo ends.

A reservation is a socket that is bound and never listens. Linux lets another socket listen on that
port if both set SO_REUSEADDR, as SSH servers do. Linux does not assign the port to any other
program: neither before the server starts, nor while a lost node waits to be restored.
"""

import errno
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from controller.localcluster.cluster_errors import LocalClusterError
from nodeagent.protocol.ids import NodeId

LOOPBACK: Final = "127.0.0.1"
_LAST_PORT: Final = 65535


@contextmanager
def reserve_ports(nodes: Sequence[NodeId], base_port: int | None) -> Iterator[dict[NodeId, int]]:
    """Reserve one port per node: free ports, or ``base_port``, ``base_port + 1`` and so on.

    Raises:
        LocalClusterError: A port is in use, needs privileges, or does not exist.
    """
    with ExitStack() as stack:
        ports: dict[NodeId, int] = {}
        for index, node in enumerate(nodes):
            port = 0 if base_port is None else base_port + index
            reservation = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _bind(reservation, port, node, is_chosen=base_port is not None)
            ports[node] = reservation.getsockname()[1]
        yield ports


def _bind(reservation: socket.socket, port: int, node: str, *, is_chosen: bool) -> None:
    place = f"port {port} on {LOOPBACK}"
    advice = "choose another --base-port or leave it out"
    if is_chosen and not 1 <= port <= _LAST_PORT:
        raise LocalClusterError(f"{place} does not exist (node {node}): {advice}")
    try:
        reservation.bind((LOOPBACK, port))
    except OSError as error:
        if not is_chosen:
            raise LocalClusterError(f"no free port on {LOOPBACK}: {error.strerror}") from error
        if error.errno == errno.EADDRINUSE:
            raise LocalClusterError(f"{place} is in use (node {node}): {advice}") from error
        reason = os.strerror(error.errno or 0).lower()
        raise LocalClusterError(f"{place}: {reason} (node {node}): {advice}") from error
