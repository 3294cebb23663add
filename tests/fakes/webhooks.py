"""A real web server on loopback that takes what is posted to it, for channels of alerts."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import override


@dataclass
class Webhook:
    """What a web server got, and how it answers.

    Attributes:
        port: Where it listens, on 127.0.0.1.
        received: The bodies of all posts that it has answered with success, as JSON.
        refused: How many posts it has refused.
        status: The status of its answers from now on.
        delay_s: How long it waits before an answer from now on.
    """

    port: int = 0
    received: list[dict[str, Any]] = field(default_factory=list)
    refused: int = 0
    status: int = 200
    delay_s: float = 0.0

    @property
    def url(self) -> str:
        """Its address in the notation of apprise, with a secret."""
        return f"json://127.0.0.1:{self.port}/hooks/s3cretpath"

    @property
    def titles(self) -> list[str]:
        """The titles of what it got."""
        return [each["title"] for each in self.received]

    @property
    def text(self) -> str:
        """Everything that it got."""
        return "\n".join(f"{each['title']}\n{each['message']}" for each in self.received)


@contextmanager
def webhook() -> Iterator[Webhook]:
    """Serve until the block ends."""
    hook = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            time.sleep(hook.delay_s)
            if hook.status == 200:
                hook.received.append(body)
            else:
                hook.refused += 1
            self.send_response(hook.status)
            self.end_headers()

        @override
        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hook.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hook
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
