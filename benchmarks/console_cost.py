"""Measures what the console costs, and how soon it answers.

    python benchmarks/console_cost.py [--nodes N ...] [--seconds S] [--keys N] [--starts N]
        [--speed N] [--cgroup DIR] [--write-docs]

A real API socket serves a made-up cluster, with eight workers a node and a task for each 16 nodes.
Every second each node sends a heartbeat and each task commits an iteration, spread over ten
changes. A real ``unicron-console`` shows it on a terminal of 200 x 60. Figures:

- ``line_s``, ``start_s``: from the start of the process to the line that says so, and to the first
  frame that shows the cluster; medians of ``--starts``;
- ``key_ms``, ``key_p99_ms``: from a key, which moves the focus, to the first byte of its frame,
  while the cluster stands still;
- ``views_per_s``: how many views the console received in a second of changes;
- ``received_kb_s``, ``output_kb_s``: bytes from the controller, and to the terminal;
- ``cpu``, ``controller_cpu``: cores that the console takes, and that serving it takes;
- ``rss_mb``, ``growth_mb``, ``late_growth_mb``: memory of the console, how much it grew in
  ``--seconds``, and how much of that in the second half: what is kept of a run has limits.

With ``--cgroup`` the console runs in that control group. One that gives it 1 ms of every 2 makes it
at least as slow as a machine half as fast would: its threads share that millisecond. With version 1
of control groups, as root::

    mkdir /sys/fs/cgroup/cpu/half
    echo 2000 > /sys/fs/cgroup/cpu/half/cpu.cfs_period_us
    echo 1000 > /sys/fs/cgroup/cpu/half/cpu.cfs_quota_us

With ``--speed 10`` ten times as much happens in a second, so that 360 seconds are an hour of the
cluster. An event is logged per change of a task.

These are measurements of one machine at one time, not limits.
"""

import argparse
import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import psutil
from harness.result_pages import (
    MEASUREMENTS,
    command_line,
    machine,
    machine_line,
    write_results,
    write_section,
)

from controller.api.server import ApiServer
from controller.api.views import (
    ClusterView,
    LayoutView,
    LogLevel,
    LogLine,
    NodeCondition,
    NodeView,
    PaceView,
    TaskPhase,
    TaskView,
    WorkerView,
)

_SIZE: Final = (200, 60)
_WORKERS: Final = 8
_NODES_PER_TASK: Final = 16
_CHANGES_PER_S: Final = 10
_NUM_LOSSES: Final = 120
_KEY_PAUSE_S: Final = 0.15
_START_LIMIT_S: Final = 60.0
_SETTLE_S: Final = 2.0
_JOIN: Final = 'echo $$ > "$1" && shift && exec "$@"'
_KEY: Final = b"\t"
"""Tab: another panel gets the focus."""


class Fleet:
    """A cluster that trains, as views: what a change leaves alone stays the same object."""

    def __init__(self, num_nodes: int, speed: int) -> None:
        self._began_s = time.perf_counter()
        self._speed = speed
        self._nodes = [self._node(number, 0) for number in range(num_nodes)]
        self._tasks = [
            self._task(number, 0) for number in range(max(1, num_nodes // _NODES_PER_TASK))
        ]
        self._num_changes = self._num_lines = 0

    def change(self, server: ApiServer) -> None:
        """Let a tenth of the nodes and tasks say something, as often as ``speed``."""
        for _ in range(self._speed):
            self._change_once(server)
        server.state_changed()

    def _change_once(self, server: ApiServer) -> None:
        iteration, turn = divmod(self._num_changes, _CHANGES_PER_S)
        for number in range(turn, len(self._nodes), _CHANGES_PER_S):
            self._nodes[number] = self._node(number, iteration)
        for number in range(turn, len(self._tasks), _CHANGES_PER_S):
            self._tasks[number] = self._task(number, iteration)
            self._num_lines += 1
            text = f"iteration {iteration + _NUM_LOSSES}: loss {self._tasks[number].loss:.6f}"
            server.add_line(
                LogLine(
                    seq=self._num_lines, at=self._now_s(), level=LogLevel.INFO,
                    source=self._tasks[number].name, text=text,
                )
            )  # fmt: skip
        self._num_changes += 1

    def view(self) -> ClusterView:
        """Return the cluster as it is now."""
        return ClusterView(
            cluster="made-up",
            now=self._now_s(),
            started_wall_s=0.0,
            is_auto_heal=True,
            waf=1e15 * len(self._tasks),
            waf_full=1e15 * len(self._tasks),
            nodes=list(self._nodes),
            tasks=list(self._tasks),
            incidents=[],
            plans=[],
        )

    def _now_s(self) -> float:
        return (time.perf_counter() - self._began_s) * self._speed

    def _node(self, number: int, iteration: int) -> NodeView:
        task, place = divmod(number, _NODES_PER_TASK)
        return NodeView(
            node=f"n{number + 1}",
            address=f"10.0.{number // 256}.{number % 256}:22",
            condition=NodeCondition.HEALTHY,
            agent_pid=4100,
            agent_rss_bytes=38_000_000 + 4096 * (iteration % 7),
            heartbeat_at=self._now_s(),
            workers=[
                WorkerView(
                    worker=slot,
                    task=f"task-{task}",
                    global_rank=_WORKERS * place + slot,
                    pid=4200 + slot,
                    iteration=iteration,
                    rss_bytes=420_000_000 + 4096 * ((iteration + slot) % 5),
                )
                for slot in range(_WORKERS)
            ],
        )

    def _task(self, number: int, iteration: int) -> TaskView:
        newest = iteration + _NUM_LOSSES
        return TaskView(
            name=f"task-{number}",
            weight=1.0,
            phase=TaskPhase.RUNNING,
            generation=1,
            workers=_WORKERS * _NODES_PER_TASK,
            layout=LayoutView(tp=8, pp=1, dp=_NODES_PER_TASK),
            iteration=newest,
            checkpoint_iteration=newest // 50 * 50,
            loss=2.0 + 3.5 / newest,
            tokens_per_s=1.2e6,
            flops_per_s=1e15,
            losses={each: 2.0 + 3.5 / each for each in range(newest - 119, newest + 1)},
            pace=PaceView(
                durations_s=[1.0 + 0.002 * ((newest + n) % 7) for n in range(32)],
                average_s=1.003, late_s=1.2, hang_s=3.0,
            ),
        )  # fmt: skip


class Terminal:
    """The console's process and the terminal that it draws on."""

    def __init__(self, socket: Path, directory: Path, cgroup: Path | None) -> None:
        self.num_bytes = 0
        self.line_s = 0.0
        """When the console first wrote anything, in seconds from its start."""
        self.is_showing = asyncio.Event()
        self.has_drawn = asyncio.Event()
        self._fd, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _SIZE[1], _SIZE[0], 0, 0))
        self.began_s = time.perf_counter()
        words = [str(Path(sys.executable).with_name("unicron-console")), "--connect", str(socket)]
        if cgroup is not None:
            words = ["sh", "-c", _JOIN, "sh", str(cgroup / "cgroup.procs"), *words]
        environment = {
            **os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor",
            "XDG_CONFIG_HOME": str(directory),
        }  # fmt: skip
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # users start it from bytecode
        self.process = subprocess.Popen(
            words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment,
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        os.set_blocking(self._fd, False)
        asyncio.get_running_loop().add_reader(self._fd, self._read)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # a terminal without programs is an error
            data = os.read(self._fd, 1 << 20)
            if not self.num_bytes:
                self.line_s = time.perf_counter() - self.began_s
            self.num_bytes += len(data)
            self.has_drawn.set()
            if b"task-0" in data:
                self.is_showing.set()

    async def start_s(self) -> float:
        """Wait for the first frame that shows the cluster; return what it took."""
        async with asyncio.timeout(_START_LIMIT_S):
            await self.is_showing.wait()
        return time.perf_counter() - self.began_s

    async def answer_s(self, key: bytes) -> float:
        """Press a key, and return how long its frame took to begin."""
        self.has_drawn.clear()
        began_s = time.perf_counter()
        os.write(self._fd, key)
        await self.has_drawn.wait()
        return time.perf_counter() - began_s

    def close(self) -> None:
        """End the console."""
        asyncio.get_running_loop().remove_reader(self._fd)
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10.0)
        self.process.kill()
        self.process.wait()
        os.close(self._fd)


@contextlib.asynccontextmanager
async def _served(fleet: Fleet, socket: Path) -> AsyncIterator[ApiServer]:
    server = ApiServer("made-up", fleet.view, lambda _: None)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.run(socket))
        await server.is_listening.wait()
        try:
            yield server
        finally:
            serving.cancel()


class Reader:
    """One more client like a console, which counts what that is sent."""

    def __init__(self) -> None:
        self.num_bytes = self.num_views = 0

    async def run(self, socket: Path) -> None:
        """Read until cancelled."""
        reader, writer = await asyncio.open_unix_connection(socket, limit=1 << 26)
        writer.write(b'{"kind":"follow_changes"}\n')
        try:
            while line := await reader.readline():
                self.num_bytes += len(line)
                self.num_views += line.startswith((b'{"kind":"snapshot"', b'{"kind":"changes"'))
        finally:
            writer.close()


async def _measure(num_nodes: int, options: argparse.Namespace) -> dict[str, Any]:
    fleet = Fleet(num_nodes, options.speed)
    with tempfile.TemporaryDirectory(prefix="uc-") as name:
        socket = Path(name) / "api.sock"
        async with _served(fleet, socket) as server:
            starts_s, lines_s = [], []
            for _ in range(options.starts - 1):
                terminal = Terminal(socket, Path(name), options.cgroup)
                try:
                    starts_s.append(await terminal.start_s())
                    lines_s.append(terminal.line_s)
                finally:
                    terminal.close()
            terminal = Terminal(socket, Path(name), options.cgroup)
            try:
                starts_s.append(await terminal.start_s())
                lines_s.append(terminal.line_s)
                await asyncio.sleep(_SETTLE_S)
                answers_s = []
                for _ in range(options.keys):
                    answers_s.append(await terminal.answer_s(_KEY))
                    await asyncio.sleep(_KEY_PAUSE_S)
                costs = await _costs_of_changes(fleet, server, socket, terminal, options.seconds)
            finally:
                terminal.close()
    return {
        "nodes": num_nodes,
        "workers": num_nodes * _WORKERS,
        "line_s": round(statistics.median(lines_s), 2),
        "start_s": round(statistics.median(starts_s), 2),
        "key_ms": round(1e3 * statistics.median(answers_s), 1),
        "key_p99_ms": round(1e3 * statistics.quantiles(answers_s, n=100)[-1], 1),
        **costs,
    }


async def _costs_of_changes(
    fleet: Fleet, server: ApiServer, socket: Path, terminal: Terminal, seconds: float
) -> dict[str, float]:
    """Change the cluster ten times a second, and measure what that costs."""
    process = psutil.Process(terminal.process.pid)
    counting = Reader()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(counting.run(socket))
        await _change(fleet, server, _SETTLE_S)
        before = _cores(process), time.process_time()
        num_bytes, num_drawn, num_views = (
            counting.num_bytes, terminal.num_bytes, counting.num_views,
        )  # fmt: skip
        rss = process.memory_info().rss
        began_s = time.perf_counter()
        own_s = await _change(fleet, server, seconds / 2)
        rss_middle = process.memory_info().rss
        own_s += await _change(fleet, server, seconds / 2)
        took_s = time.perf_counter() - began_s
        reading.cancel()
    return {
        "views_per_s": round((counting.num_views - num_views) / took_s, 2),
        "received_kb_s": round((counting.num_bytes - num_bytes) / took_s / 1e3),
        "output_kb_s": round((terminal.num_bytes - num_drawn) / took_s / 1e3, 1),
        "cpu": round((_cores(process) - before[0]) / took_s, 3),
        "controller_cpu": round((time.process_time() - before[1] - own_s) / took_s, 3),
        "rss_mb": round(process.memory_info().rss / 1e6, 1),
        "growth_mb": round((process.memory_info().rss - rss) / 1e6, 1),
        "late_growth_mb": round((process.memory_info().rss - rss_middle) / 1e6, 1),
    }


async def _change(fleet: Fleet, server: ApiServer, seconds: float) -> float:
    """Change the cluster for so long; return the CPU time of making it up."""
    own_s, end_s = 0.0, time.perf_counter() + seconds
    next_s = time.perf_counter()
    while next_s < end_s:
        began_s = time.process_time()
        fleet.change(server)
        own_s += time.process_time() - began_s
        next_s += 1 / _CHANGES_PER_S
        await asyncio.sleep(max(0.0, next_s - time.perf_counter()))
    return own_s


def _cores(process: psutil.Process) -> float:
    """Return the CPU time that a process has taken, in seconds."""
    times = process.cpu_times()
    return times.user + times.system


_COLUMNS: Final[tuple[tuple[str, str, str], ...]] = (
    ("nodes", "nodes", ",d"),
    ("workers", "workers", ",d"),
    ("line_s", "first line, s", ".2f"),
    ("start_s", "start, s", ".2f"),
    ("key_ms", "key, ms", ".0f"),
    ("key_p99_ms", "key p99, ms", ".0f"),
    ("views_per_s", "views/s", ".1f"),
    ("received_kb_s", "received, kB/s", ",.0f"),
    ("output_kb_s", "drawn, kB/s", ".0f"),
    ("cpu", "cores, console", ".2f"),
    ("controller_cpu", "cores, controller", ".2f"),
    ("rss_mb", "memory, MB", ".0f"),
    ("growth_mb", "growth, MB", ".1f"),
    ("late_growth_mb", "in the second half, MB", ".1f"),
)


def _table(cases: list[dict[str, Any]]) -> str:
    lines = [
        f"| {' | '.join(title for _, title, _ in _COLUMNS)} |",
        "|" + "---:|" * len(_COLUMNS),
        *(
            f"| {' | '.join(format(case[key], form) for key, _, form in _COLUMNS)} |"
            for case in cases
        ),
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure every size, and print what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--nodes", type=int, nargs="+", default=[4, 64, 256, 1024], metavar="N",
        help="sizes of the cluster; default 4 64 256 1024",
    )  # fmt: skip
    parser.add_argument("--seconds", type=float, default=20.0, metavar="S", help="default 20")
    parser.add_argument("--speed", type=int, default=1, metavar="N", help="default 1")
    parser.add_argument("--keys", type=int, default=100, metavar="N", help="default 100")
    parser.add_argument("--starts", type=int, default=1, metavar="N", help="default 1")
    parser.add_argument("--cgroup", type=Path, metavar="DIR", help="run the console in it")
    parser.add_argument("--write-docs", action="store_true", help="write the figures into docs/")
    options = parser.parse_args()
    cases = []
    for num_nodes in options.nodes:
        cases.append(asyncio.run(_measure(num_nodes, options)))
        sys.stderr.write(_table(cases[-1:]).splitlines()[-1] + "\n")
    found = machine()
    table = _table(cases)
    sys.stdout.write(table + "\n")
    if options.write_docs:
        write_results("console_cost", {**found, "command": command_line(), "cases": cases})
        text = f"{machine_line(found)} Command: `{command_line()}`.\n\n{table}"
        write_section(MEASUREMENTS, "console_cost", text)


if __name__ == "__main__":
    main()
