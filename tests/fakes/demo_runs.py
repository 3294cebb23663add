"""Runs of ``unicron demo`` as a user starts it, and what is left of them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from controller.api.client import NoControllerError, connect
from profiles.task_profiles import DEMO_TASKS
from tests.fakes.polling import wait_until

NUM_ITERATIONS = 12
"""Of each task, in the runs that tests share: past the recovery from both faults."""
RUN_LIMIT_S = 170.0
PATIENT = """\
[policy]
hang_floor_s = 10.0
"""
"""Settings without hangs: a busy machine that puts a rank aside is no incident."""

Record = dict[str, object]


@dataclass(frozen=True)
class DemoRun:
    """What one run of ``unicron demo`` left behind."""

    code: int
    outcome: Record
    events: list[Record]
    stdout: str
    stderr: str
    directory: Path
    """Of the event log and of all other files that the run was to leave."""
    log: list[Record]
    """The JSON lines of ``log.jsonl`` beside the event log, where the run was to write it."""

    @property
    def incidents(self) -> list[Any]:
        """The incidents of the run, as its outcome lists them."""
        found: Any = self.outcome["incidents"]
        return list(found)

    def of_kind(self, kind: str) -> list[Record]:
        """Return the event log's lines of one kind."""
        return [event for event in self.events if event["kind"] == kind]


def command(*arguments: str) -> list[str]:
    """Return the command line of a demo."""
    return [sys.executable, "-m", "controller.cli", "demo", *arguments]


def is_served(socket: Path) -> bool:
    """Return whether a controller answers there. A moment before it only has its socket."""
    with contextlib.suppress(NoControllerError), connect(socket):
        return True
    return False


def view_at(socket: Path) -> Any:  # noqa: ANN401 - a view
    """Return the cluster as the controller shows it now."""
    with connect(socket) as connection:
        return next(connection.views())


@contextlib.contextmanager
def served_demo(
    socket: Path, directory: Path, *arguments: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a demo that serves ``socket`` until the block ends; its files are in ``directory``."""
    process = subprocess.Popen(
        command("--headless", "--iterations", "100000", "--serve", str(socket), *arguments),
        env={**os.environ, "TMPDIR": str(directory)},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: is_served(socket), limit_s=60)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def processes_under(directory: Path, part: str = "") -> list[psutil.Process]:
    """Return the living processes that have ``directory`` in their command line or environment.

    With ``part``, only those that have it in their command line. A process that ends while it is
    looked at, or has ended and waits for its parent, is not living.
    """
    found = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
            words = [*command, *process.environ().values()]
            if process.status() == psutil.STATUS_ZOMBIE or part not in " ".join(command):
                continue
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if process.pid != os.getpid() and any(str(directory) in word for word in words):
            found.append(process)
    return found


def events_of(log: Path) -> list[Any]:
    """Return the events in an event log that a controller may still write: whole lines only."""
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    return [json.loads(line) for line in lines]


def demo_tasks(
    num_iterations: int, only: str = "gpt-", floor_s: float = 0.3, *, is_light: bool = True
) -> str:
    """Return the demo's tasks with an end; ``only`` begins the names of those that are wanted.

    An iteration lasts ``floor_s`` at least: ranks that compute all the time leave no core to what a
    test waits for. Light tasks have a third of the micro-batches. No three replicas can share that.
    """
    tables = DEMO_TASKS.read_text().split("[[task]]")[1:]
    wanted = [table for table in tables if f'name = "{only}' in table]
    text = "".join(f"[[task]]\nnum_iterations = {num_iterations}\n{table}" for table in wanted)
    if is_light:
        text = text.replace("num_micro_batches = 12", "num_micro_batches = 4")
        text = "".join(line for line in text.splitlines(keepends=True) if "dp = 3" not in line)
    return text.replace("iteration_floor_s = 0.4", f"iteration_floor_s = {floor_s}")


def run_demo(tmp: Path, log: Path, *arguments: str, limit_s: float = RUN_LIMIT_S) -> DemoRun:
    """Run a demo to its end, with ``tmp`` as its temporary directory; nobody hangs in it."""
    settings = log.with_name("settings.toml")
    settings.write_text(PATIENT)
    finished = subprocess.run(
        command(
            "--headless", "--json", "--event-log", str(log), "--settings", str(settings), *arguments
        ),
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp)},
    )
    return DemoRun(
        code=finished.returncode,
        outcome=json.loads(finished.stdout) if finished.stdout else {},
        events=_records(log),
        stdout=finished.stdout,
        stderr=finished.stderr,
        directory=log.parent,
        log=_records(log.with_name("log.jsonl")),
    )


def _records(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
