"""``make scale``: a controller with a thousand nodes over SSH, on one core.

The controller is the real one, with its journal on a disk. The nodes are modelled agents behind one
SSH server in a process of its own (``tests.fakes.agent_server``): heartbeats twice a second with
all ranks, an iteration a second of each task. Then a rank is killed.

The limits are those of a machine with two idle cores; on a busy one the times say little.
"""

import argparse
import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil
from typing_extensions import override

from controller.clock import SystemClock
from controller.core.instructions import Announce, AnswerRequest, CarryOutDrill
from controller.core.rules.policy import Policy
from controller.core.state.phases import NodeCondition, TaskPhase
from controller.fleet.address import NodeAddress, SshTarget
from controller.localcluster.ssh.credentials import generate_key_pair
from controller.ports import DrillGround, Publisher
from controller.server.controller import Controller
from controller.server.controller_config import ControllerConfig
from nodeagent.protocol.ids import NodeId
from nodeagent.protocol.rank_launch import TrainingSpec
from profiles.model import ModelShape
from tests.campaigns.curve import curve, table
from tests.fakes.fleets import WORKERS, fleet_tasks
from tests.fakes.node import until

ROOT = Path(__file__).parents[2]
ATTACH_LIMIT_S = 60.0
DELAY_LIMIT_S = 0.1
FAULT_LIMIT_S = 0.5
MEMORY_LIMIT = 10**9
CPU_LIMIT = 1.0


@dataclass
class Found:
    """What the campaign has measured, for people and scripts.

    Attributes:
        attach_s: Until all nodes were in contact.
        train_s: Until all tasks trained.
        delay_s: From an event's arrival to what followed from it, commit included: median, 99th
            percentile and maximum.
        fault_s: From the kill of a rank to the orders that halt its task.
        recovery_s: From the kill to the task's training in the next generation.
        cpu: Of the controller while all trained, in cores.
        server_cpu: Of the modelled agents' SSH server.
        events_per_s: Events in the journal while all trained.
        journal_mb_per_day: What that makes in a day.
    """

    nodes: int
    tasks: int
    seconds: float
    attach_s: float = 0.0
    train_s: float = 0.0
    delay_s: dict[str, float] = field(default_factory=dict)
    fault_s: float = 0.0
    recovery_s: float = 0.0
    cpu: float = 0.0
    server_cpu: float = 0.0
    memory_mb: float = 0.0
    events_per_s: float = 0.0
    journal_mb_per_day: float = 0.0
    announcements: dict[str, int] = field(default_factory=dict)
    beyond: list[str] = field(default_factory=list)

    def judge(self) -> None:
        """List the limits that do not hold."""
        limits = {
            "attach_s": (self.attach_s, ATTACH_LIMIT_S),
            "delay p99": (self.delay_s["p99"], DELAY_LIMIT_S),
            "fault_s": (self.fault_s, FAULT_LIMIT_S),
            "memory_mb": (self.memory_mb, MEMORY_LIMIT / 1e6),
            "cpu": (self.cpu, CPU_LIMIT),
        }
        self.beyond = [
            f"{name} is {found:.3g}, the limit {limit:g}"
            for name, (found, limit) in limits.items()
            if found > limit
        ]


class _Recorder(Publisher, DrillGround):
    """Keeps when what was announced."""

    def __init__(self, clock: SystemClock) -> None:
        self._clock = clock
        self.kinds = Counter[str]()
        self.first_at: dict[str, float] = {}
        """By kind, the wall clock of its first announcement."""

    @override
    def publish(self, at: float, announcement: Announce) -> None:
        self.kinds[announcement.kind] += 1
        self.first_at.setdefault(announcement.kind, self._clock.wall_s())

    @override
    def answer(self, answer: AnswerRequest) -> None:
        pass

    @override
    def state_changed(self) -> None:
        pass

    @override
    def carry_out(self, drill: CarryOutDrill) -> None:
        pass


@contextmanager
def agent_server(directory: Path) -> Iterator[tuple[subprocess.Popen[str], SshTarget]]:
    """Run the modelled agents' server; yield its process and how to log in."""
    host = generate_key_pair(directory / "host_key", "host")
    user = generate_key_pair(directory / "user_key", "user")
    command = [sys.executable, "-m", "tests.fakes.agent_server", str(host.private_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().split()[1])
            key = str(user.private_path)
            yield process, SshTarget("127.0.0.1", port, "user", key, host.public_line)
        finally:
            process.kill()


def config_of(num_nodes: int, num_tasks: int, target: SshTarget) -> ControllerConfig:
    """Return the config of a fleet whose tasks have all workers."""
    workers = num_nodes * WORKERS // num_tasks // WORKERS * WORKERS
    tasks = fleet_tasks(num_tasks, workers)
    shape = ModelShape(num_layers=2, hidden_size=64, num_attention_heads=8, seq_length=32)
    program = TrainingSpec(
        model=shape, checkpoint_dir="/nowhere", checkpoint_interval=1000,
        num_micro_batches=workers // 4,
    )  # fmt: skip
    addresses = [
        NodeAddress(NodeId(f"n{n}"), target, f"/fake/n{n}", sys.executable, WORKERS)
        for n in range(1, num_nodes + 1)
    ]
    return ControllerConfig(
        addresses, tasks, {task.task: program for task in tasks}, Policy(is_auto_heal=True)
    )


async def measure(num_nodes: int, num_tasks: int, seconds: float) -> Found:
    """Run the fleet for so long, and return what was seen."""
    found = Found(num_nodes, num_tasks, seconds)
    with tempfile.TemporaryDirectory(prefix="ut-", dir="/tmp") as name:
        directory = Path(name)
        with agent_server(directory) as (server, target):
            (directory / "run").mkdir()
            config = config_of(num_nodes, num_tasks, target)
            await _measure(found, config, directory / "run", server)
    found.judge()
    return found


async def _measure(
    found: Found, config: ControllerConfig, run: Path, server: "subprocess.Popen[str]"
) -> None:
    clock = SystemClock()
    recorder = _Recorder(clock)
    controller = Controller(config, run / "journal.jsonl", clock, lambda _source, _text: None)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(controller.run(recorder, recorder))
        await until(
            lambda: _num_in_contact(controller) == found.nodes, "all nodes are in contact", 600.0
        )
        found.attach_s = clock.now()
        await until(lambda: _all_run(controller), "all tasks train", 600.0)
        found.train_s = clock.now()
        await asyncio.sleep(2.0)
        await _caught_up(controller)
        await _watch(found, controller, server)
        await _kill(found, controller, recorder, server)
        serving.cancel()
    found.memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found.announcements = dict(recorder.kinds)


async def _caught_up(controller: Controller) -> None:
    """Wait until what the start has brought is handled, which takes a busy machine a while."""
    async with asyncio.timeout(60.0):
        is_behind = True
        while is_behind:
            controller.delays_s.clear()
            await asyncio.sleep(1.0)
            is_behind = max(controller.delays_s, default=1.0) >= 0.5


async def _watch(found: Found, controller: Controller, server: "subprocess.Popen[str]") -> None:
    """Measure while all tasks train."""
    own, other = psutil.Process(), psutil.Process(server.pid)
    before = _cpu_s(own), _cpu_s(other), controller.num_written, controller.num_events
    controller.delays_s.clear()
    await asyncio.sleep(found.seconds)
    delays_s = sorted(controller.delays_s)
    after = _cpu_s(own), _cpu_s(other), controller.num_written, controller.num_events
    found.cpu, found.server_cpu, bytes_per_s, found.events_per_s = (
        (late - early) / found.seconds for early, late in zip(before, after, strict=True)
    )
    found.journal_mb_per_day = bytes_per_s * 86_400 / 1e6
    found.delay_s = {
        "median": delays_s[len(delays_s) // 2],
        "p99": delays_s[len(delays_s) * 99 // 100],
        "max": delays_s[-1],
    }


async def _kill(
    found: Found, controller: Controller, recorder: _Recorder, server: "subprocess.Popen[str]"
) -> None:
    """Kill a rank, and measure until its task is halted and trains again."""
    assert server.stdout is not None
    task = next(iter(controller.state.tasks.values()))
    generation = task.generation
    server.send_signal(signal.SIGUSR1)
    await until(lambda: "fault_seen" in recorder.first_at, "the fault is seen", 60.0)
    killed_at = float(server.stdout.readline().split()[1])
    found.fault_s = recorder.first_at["fault_seen"] - killed_at
    clock = SystemClock()
    await until(
        lambda: task.generation > generation and task.lifecycle.phase is TaskPhase.RUNNING,
        "the task trains again",
        60.0,
    )
    found.recovery_s = clock.wall_s() - killed_at


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _num_in_contact(controller: Controller) -> int:
    return len(controller.state.index.of(NodeCondition.HEALTHY))


def _all_run(controller: Controller) -> bool:
    tasks = controller.state.tasks.values()
    return all(task.lifecycle.phase is TaskPhase.RUNNING for task in tasks)


def main() -> int:
    """Run the campaign; return 0 if every limit holds."""
    parser = argparse.ArgumentParser(prog="make scale", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000, help="default 1000")
    parser.add_argument("--tasks", type=int, default=20, help="default 20")
    parser.add_argument(
        "--minutes", type=float, default=float(os.environ.get("MINUTES", "1")), help="default 1"
    )
    parser.add_argument(
        "--curve", action="store_true", help="what the core takes with 100 to 10,000 nodes instead"
    )
    options = parser.parse_args()
    if options.curve:
        sys.stdout.write(table(curve()) + "\n")
        return 0
    found = asyncio.run(measure(options.nodes, options.tasks, 60.0 * options.minutes))
    sys.stdout.write(json.dumps(asdict(found), indent=1) + "\n")
    return 1 if found.beyond else 0


if __name__ == "__main__":
    sys.exit(main())
