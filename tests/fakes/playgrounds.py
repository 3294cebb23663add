"""Playgrounds: the nodes of ``unicron demo --nodes-only``, and commands beside them."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.fakes.polling import wait_until

_READY_LIMIT_S = 60.0
_END_LIMIT_S = 60.0


@dataclass
class Foreground:
    """A command in the foreground, with the lines that it has written to standard error."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Read what it writes."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    def says(self, text: str, limit_s: float = _READY_LIMIT_S) -> str:
        """Wait for a line with ``text``, and return the first."""

        def found() -> str | None:
            if line := next((line for line in list(self.lines) if text in line), None):
                return line
            assert self.process.poll() is None, self.lines
            return None

        line = wait_until(found, limit_s=limit_s)
        assert line is not None
        return line

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal; return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(_END_LIMIT_S)
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


def unicron(*arguments: str, tmp: Path | None = None) -> list[str]:
    """Return a command line of ``unicron``."""
    return [sys.executable, "-m", "controller.cli", *arguments]


@contextlib.contextmanager
def in_foreground(*arguments: str, **variables: str) -> Iterator[Foreground]:
    """Run a command of ``unicron`` until the block ends."""
    process = subprocess.Popen(
        unicron(*arguments),
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    running = Foreground(process)
    try:
        yield running
    finally:
        running.end()


@dataclass(frozen=True)
class Playground:
    """Running nodes, and the cluster file that describes them."""

    command: Foreground
    path: Path

    def host_pid(self, node: str) -> int:
        """Return the process whose end loses a node."""
        line = [line for line in list(self.command.lines) if f" {node} " in line][-1]
        found = re.search(r"kill -9 (\d+)", line)
        assert found is not None, line
        return int(found[1])

    def lose(self, node: str) -> None:
        """Lose a node with all its processes."""
        os.kill(self.host_pid(node), signal.SIGKILL)

    def restore(self) -> None:
        """Start lost nodes again."""
        self.command.process.send_signal(signal.SIGUSR1)


@contextlib.contextmanager
def playground(tmp: Path, directory: Path, *arguments: str) -> Iterator[Playground]:
    """Run nodes until the block ends; ``tmp`` is their temporary directory, with a short name."""
    words = ("demo", "--nodes-only", "--dir", str(directory), *arguments)
    with in_foreground(*words, TMPDIR=str(tmp)) as command:
        command.says("ready:")
        yield Playground(command, directory / "cluster.toml")
