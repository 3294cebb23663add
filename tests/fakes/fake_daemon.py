"""A program that daemonises as an agent does: ``fake_daemon.py STATE_DIR``.

Double fork, a session of its own, output closed; then it has a child of its own, and serves
STATE_DIR/echo.sock, answering every line in capitals. STATE_DIR/daemon.pid appears when it is
ready.
"""

import os
import socketserver
import sys
import time
from pathlib import Path


class _Echo(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for line in self.rfile:
            self.wfile.write(line.upper())


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


def _detach() -> None:
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)


def main() -> None:
    state_dir = Path(sys.argv[1])
    _detach()
    if os.fork() == 0:
        while True:
            time.sleep(60)
    with _Server(str(state_dir / "echo.sock"), _Echo) as server:
        ready = state_dir / "daemon.pid.new"
        ready.write_text(str(os.getpid()))
        ready.rename(state_dir / "daemon.pid")
        server.serve_forever()


if __name__ == "__main__":
    main()
