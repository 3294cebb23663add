"""A demo or a playback as this console's child process: started, watched, and always ended.

The child leads its own process group and gets SIGTERM from the kernel if the console dies without
a farewell. What it prints goes to a log in a private directory; the console reads it as progress
until the API socket answers. ``ServerChild`` starts and ends the process, ``ServerChildSource`` is
the ``ControllerSource`` that the app sees.
"""

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from typing_extensions import override

from console.client.controller_link import ApiLink
from console.client.source import ControllerSource, Inbox
from console.viewmodel.console_state import Link, LinkPhase
from console.viewmodel.drawing.text import clean
from console.viewmodel.reducer import ChildOutput, LinkChanged
from controller.api.wire import Command, Reply, Shutdown

END_TIMEOUT_S: Final = 30.0
"""How long a demo may take to end everything it started, after it was asked to."""
TERM_TIMEOUT_S: Final = 10.0
SHUTDOWN_REPLY_TIMEOUT_S: Final = 2.0
POLL_S: Final = 0.1
MAX_ERROR_LINES: Final = 12

_PR_SET_PDEATHSIG: Final = 1


class ServerChild:
    """The process of a demo or a playback, and its private directory."""

    def __init__(self, argv: Sequence[str], what: str) -> None:
        """Make the directory and start ``argv``, extended by ``--serve SOCKET``.

        ``what`` is what people call it: ``demo`` or ``playback``.
        """
        self.what = what
        # A short path: names of unix sockets end at 108 bytes.
        self._directory = Path(tempfile.mkdtemp(prefix="unicron-console-"))
        self.socket_path = self._directory / "api.sock"
        self.log_path = self._directory / f"{what}.log"
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 (our own interpreter and arguments)
                [*argv, "--serve", str(self.socket_path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 (the console has one thread here)
            )

    @property
    def exit_code(self) -> int | None:
        """The child's exit code, None while it lives, negative if a signal ended it."""
        return self._process.poll()

    def end(self) -> bool:
        """End it by request, then SIGTERM, then SIGKILL; return whether it ended in order.

        Blocks until the child is gone. The directory goes too, unless force was needed.
        """
        is_orderly = self._process.poll() is not None or self._ask()
        if not is_orderly:
            self._signal(signal.SIGTERM)
            is_orderly = self._ended_within(TERM_TIMEOUT_S)
        if not is_orderly:
            self._signal(signal.SIGKILL)
            self._process.wait()
        else:
            shutil.rmtree(self._directory, ignore_errors=True)
        return is_orderly

    def failure(self) -> str:
        """Return what the operator should read about a child that did not start."""
        text = self.log_path.read_text(errors="replace")
        lines = [clean(line) for line in text.splitlines() if line.strip()]
        if self.exit_code == 2 and lines:
            return lines[-1]
        tail = "\n".join(f"  {line}" for line in lines[-MAX_ERROR_LINES:])
        return f"the {self.what} ended before it was ready ({exit_words(self.exit_code)})\n{tail}".rstrip()

    def _ask(self) -> bool:
        if _send_shutdown(self.socket_path):
            return self._ended_within(END_TIMEOUT_S)
        self._signal(signal.SIGTERM)
        return self._ended_within(END_TIMEOUT_S)

    def _ended_within(self, timeout_s: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self._process.poll() is not None

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            if number is signal.SIGKILL:
                os.killpg(self._process.pid, number)
            else:
                self._process.send_signal(number)


class ServerChildSource(ControllerSource):
    """A ``ControllerSource`` on a child: its progress, its API, and its end."""

    def __init__(self, child: ServerChild, clock: Callable[[], float]) -> None:
        self._child = child
        self._clock = clock
        self._link = ApiLink(child.socket_path, clock)

    @override
    async def run(self, inbox: Inbox) -> None:
        """Watch the child until it ends, and say so."""
        async with asyncio.TaskGroup() as group:
            link = group.create_task(self._link.run(inbox))
            for line in _tail(self.log_path):
                if line is not None:
                    inbox.put(ChildOutput(self._clock(), line))
                elif self._child.exit_code is not None:
                    break
                else:
                    await asyncio.sleep(POLL_S)
            link.cancel()
        reason = f"the {self._child.what} ended ({exit_words(self._child.exit_code)})"
        inbox.put(LinkChanged(Link(LinkPhase.ENDED, self._clock(), reason)))

    @property
    @override
    def socket_path(self) -> Path:
        return self._child.socket_path

    @property
    def log_path(self) -> Path:
        """Where the child writes."""
        return self._child.log_path

    @override
    async def send(self, command: Command) -> Reply:
        return await self._link.send(command)


def exit_words(exit_code: int | None) -> str:
    """Return an exit code in words."""
    if exit_code is not None and exit_code < 0:
        return f"signal {-exit_code}"
    return f"exit {exit_code}"


def _tail(path: Path) -> Iterator[str | None]:
    """Yield each complete line of a growing file, and None where there is no further one yet."""
    with path.open(errors="replace") as log:
        pending = ""
        while True:
            pending += log.readline()
            if not pending.endswith("\n"):
                yield None
            elif text := pending.strip():
                yield text
                pending = ""
            else:
                pending = ""


def _send_shutdown(path: Path) -> bool:
    """Send ``Shutdown`` over a connection of its own; return whether the demo agreed.

    What the server sends is read until its reply: closing a unix socket with unread data resets it,
    and the command would be lost.
    """
    message = Shutdown(request_id="shutdown", actor="console").model_dump_json()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(SHUTDOWN_REPLY_TIMEOUT_S)
        try:
            connection.connect(str(path))
            connection.sendall(message.encode() + b"\n")
            with connection.makefile("rb") as answers:
                return any(b'"request_id":"shutdown"' in line for line in answers)
        except OSError:
            return False


def die_with_parent() -> None:
    """Have the kernel send SIGTERM to this process when the console is gone (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
