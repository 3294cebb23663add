"""Reports to the service manager that runs an agent or a controller, if one does: ready, alive.

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
        period_us = os.environ.pop("WATCHDOG_USEC", "")
        os.environ.pop("WATCHDOG_PID", None)
        self.alive_every_s = int(period_us) / 3e6 if period_us.isdecimal() else None
        """How often to call ``alive``: a third of what the manager waits; None if it does not."""

    def ready(self) -> None:
        """Say that it answers from now on."""
        self._send(b"READY=1")

    def alive(self) -> None:
        """Say that the event loop runs. A manager with ``WatchdogSec`` waits for this."""
        self._send(b"WATCHDOG=1")

    def stopping(self) -> None:
        """Say that it ends."""
        self._send(b"STOPPING=1")

    def status(self, text: str) -> None:
        """Show one line of text in the manager's status."""
        self._send(f"STATUS={text}".encode())

    def _send(self, text: bytes) -> None:
        if not self._address:
            return
        # A leading @ stands for the zero byte of an abstract socket.
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel, suppress(OSError):
            channel.setblocking(False)
            channel.sendto(text, address)
