"""Reports to the service manager that runs the agent, if one does: ready, alive.

This is the protocol of ``sd_notify(3)``: one datagram per message to the socket that the variable
``NOTIFY_SOCKET`` names. The variables are taken out of the environment: ranks must not answer.
"""

import os
import socket
from contextlib import suppress


class ServiceManager:
    """The service manager above this process. Without one, all calls do nothing."""

    def __init__(self) -> None:
        self._address = os.environ.pop("NOTIFY_SOCKET", "")
        for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
            os.environ.pop(name, None)

    def ready(self) -> None:
        """Say that the agent answers from now on."""
        self._send(b"READY=1")

    def alive(self) -> None:
        """Say that the event loop runs. A manager with ``WatchdogSec`` waits for this."""
        self._send(b"WATCHDOG=1")

    def _send(self, text: bytes) -> None:
        if not self._address:
            return
        # A leading @ stands for the zero byte of an abstract socket.
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel, suppress(OSError):
            channel.setblocking(False)
            channel.sendto(text, address)
