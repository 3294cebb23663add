"""Serves ``/metrics`` on a port of this machine, or on a unix socket of mode 0600.

The server has threads of its own. What they print is prepared by ``refresh``, on the event loop; so
a scrape never looks at the state of the controller.
"""

import asyncio
import contextlib
import logging
import os
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.metrics_core import Metric as MetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from controller.api.views import ClusterView
from controller.metrics.run_counters import RunCounters
from controller.metrics.view_metrics import view_metrics

_LOG: Final = logging.getLogger(__name__)
_REQUEST_LIMIT_S: Final = 10.0
_POLL_S: Final = 0.1
_LOOK_S: Final = 1.0

MetricsAddress = tuple[str, int] | Path
"""Where to listen: an address of this machine and a port, or a path for a unix socket."""


class MetricsSource(Collector):
    """What a scrape gets: gauges of the newest view, and the counters."""

    def __init__(self, counters: RunCounters) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self._counters = counters
        self._view: ClusterView | None = None

    def refresh(self, view: ClusterView) -> None:
        """Show this view from now on."""
        self._view = view
        self._counters.look(view)

    @override
    def collect(self) -> Iterator[MetricFamily]:
        """Yield all metrics; the gauges once there is a view."""
        view = self._view
        if view is not None:
            yield from view_metrics(view)
        yield from self._counters.families()

    def describe(self) -> list[MetricFamily]:
        """Return nothing: registering asks for no metrics."""
        return []


class _Handler(WSGIRequestHandler):
    timeout: ClassVar[float | None] = _REQUEST_LIMIT_S

    @override
    def address_string(self) -> str:
        return "local"  # a unix socket has no address

    @override
    def log_message(self, format: str, *args: object) -> None:
        _LOG.debug("request: text=%s", format % args)


class _TcpServer(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True
    allow_reuse_address = True

    @override
    def server_bind(self) -> None:
        # That of the standard library looks up the host's name, which can hang.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", 0
        self.setup_environ()

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        _LOG.debug("request failed: client=%s", client_address, exc_info=True)


class _UnixServer(_TcpServer):
    address_family: int = socket.AF_UNIX

    @override
    def get_request(self) -> Any:
        connection, _ = super().get_request()
        return connection, ("local", 0)


class _Tcp6Server(_TcpServer):
    address_family: int = socket.AF_INET6


async def serve_metrics(
    source: MetricsSource,
    address: Callable[[], MetricsAddress | None],
    view: Callable[[], ClusterView],
    note: Callable[[str, bool], None],
) -> None:
    """Serve where the cluster file says, until cancelled.

    Args:
        source: What is served.
        address: Returns where; it may change. None: nowhere.
        view: Returns the view of the cluster.
        note: Called with a text and whether it is a warning, for operators.
    """
    failed: MetricsAddress | None = None
    while True:
        wanted = address()
        if wanted is not None and wanted != failed:
            failed = None
            try:
                with metrics_served(wanted, source):
                    note(f"served at {address_text(wanted)}", False)
                    while address() == wanted:
                        source.refresh(view())
                        await asyncio.sleep(_LOOK_S)
            except OSError as error:
                failed = wanted
                reason = error.strerror or error
                note(f"{address_text(wanted)} can't be listened at: {reason}", True)
        await asyncio.sleep(_LOOK_S)


def address_text(address: MetricsAddress) -> str:
    """Return an address as a person types it."""
    if isinstance(address, Path):
        return str(address)
    host, port = address
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"


@contextlib.contextmanager
def metrics_served(address: MetricsAddress, source: MetricsSource) -> Iterator[None]:
    """Serve until the block ends.

    Raises:
        OSError: The address can't be listened at.
    """
    server = _listening(address)
    server.set_app(make_wsgi_app(source.registry))
    thread = threading.Thread(
        target=server.serve_forever, args=(_POLL_S,), name="metrics", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        if isinstance(address, Path):
            address.unlink(missing_ok=True)


def _listening(address: MetricsAddress) -> WSGIServer:
    if not isinstance(address, Path):
        return (_Tcp6Server if ":" in address[0] else _TcpServer)(address, _Handler)
    # The run's lock is held: what is there was left by a controller that is gone.
    address.unlink(missing_ok=True)
    before = os.umask(0o177)
    try:
        place: Any = str(address)  # a path is the address of a unix socket
        return _UnixServer(place, _Handler)
    finally:
        os.umask(before)
