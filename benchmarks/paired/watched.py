"""A node whose ranks train under the eyes of an agent, and not, in turns; ``watched_rank`` is a rank of it.

In a block that is watched the agent runs and every rank tells it of every iteration. In the others the
agent is stopped (SIGSTOP) and the ranks say nothing. The node is one of the demo's: whatever ends this
process ends all of its processes, stopped ones too.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pages import ROOT

from controller.demo.cluster import LocalCluster, LocalNode
from controller.fleet.address import NodeAddress
from nodeagent.probes.processes import rss_bytes
from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.training import CommandPlace, RankLaunch, TrainingSpec
from paired.ratio import Pair
from paired.session import Session, attached
from profiles.command import Command
from profiles.layout import Layout

LAYOUT: Final = Layout(dp=2)
_NUM_WARM_UP: Final = 3
_START_LIMIT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Stretch:
    """How long a round measures.

    Attributes:
        steady_s: About how long it trains without interruption, for the processor time.
        num_pairs: Pairs of blocks after that.
        block_s: About how long a block lasts; an iteration at least.
    """

    steady_s: float
    num_pairs: int
    block_s: float


@dataclass(frozen=True, slots=True)
class Round:
    """What a round yields.

    Attributes:
        pairs: Iteration times, watched ones first.
        per_hour: Processor time by part, seconds per hour: ``agent``, ``ssh_server``, ``link`` (what
            rank 0 takes to talk to the agent) and ``controller_end``.
        agent_rss_mb: The agent's resident memory at the end.
    """

    pairs: list[Pair]
    per_hour: dict[str, float]
    agent_rss_mb: float


class Ranks:
    """The ranks' end of the orders: runs a block on them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.link_cpu_s = 0.0

    async def run(self, num_iterations: int, *, is_watched: bool) -> list[float]:
        """Train and return how long each iteration took, seconds."""
        self._order(num_iterations, is_watched=is_watched)
        answer = json.loads(await self._reader.readline())
        self.link_cpu_s = answer["link_cpu_s"]
        times: list[float] = answer["times"]
        return times

    def end(self) -> None:
        """Have the ranks end."""
        self._order(0, is_watched=False)

    def _order(self, num_iterations: int, *, is_watched: bool) -> None:
        order = {"num_iterations": num_iterations, "is_watched": is_watched}
        self._writer.write(json.dumps(order).encode() + b"\n")


async def run_round(make_spec: Callable[[str], TrainingSpec], stretch: Stretch) -> Round:
    """Start a node, its agent and its ranks; measure; end everything.

    Args:
        make_spec: Returns the training, given a directory for its files.
        stretch: How long is measured.

    Raises:
        ExceptionGroup: Of a ``SessionError``, for instance where a rank ended.
    """
    # A short path: the name of a unix socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="ur-") as directory:
        async with (
            LocalCluster.start(1, LAYOUT.num_workers) as cluster,
            attached(_address(cluster.nodes[0])) as session,
            _training(make_spec(directory), Path(directory), session) as ranks,
        ):
            usual_s = min(await ranks.run(_NUM_WARM_UP, is_watched=True))
            processes = _Processes(cluster, session, ranks)
            per_hour = await processes.read_during(max(1, round(stretch.steady_s / usual_s)))
            size = max(1, round(stretch.block_s / usual_s))
            pairs = await _take_turns(session.agent_pid, ranks, size, stretch.num_pairs)
            return Round(pairs, per_hour, rss_bytes(session.agent_pid) / 1e6)


@asynccontextmanager
async def _training(spec: TrainingSpec, directory: Path, session: Session) -> AsyncIterator[Ranks]:
    """Have the agent start the ranks, and wait until they ask for orders."""
    spec_file, orders = directory / "spec.json", directory / "orders.sock"
    spec_file.write_text(spec.model_dump_json())
    came: asyncio.Future[Ranks] = asyncio.get_running_loop().create_future()

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set_result(Ranks(reader, writer))

    server = await asyncio.start_unix_server(take, orders, limit=2**24)
    async with server:
        command = Command(
            argv=(sys.executable, "-m", "paired.watched_rank", str(spec_file), str(orders)),
            env={"PYTHONPATH": os.pathsep.join([str(ROOT / "benchmarks"), str(ROOT)])},
        )
        await session.start_ranks([_launch(command, rank) for rank in range(LAYOUT.num_workers)])
        async with asyncio.timeout(_START_LIMIT_S):
            ranks = await came
        yield ranks
        session.expect_end()
        ranks.end()


async def _take_turns(agent_pid: int, ranks: Ranks, size: int, num_pairs: int) -> list[Pair]:
    """Run pairs of blocks, whose order within a pair changes from pair to pair."""
    pairs = []
    for number in range(num_pairs):
        times: dict[bool, list[float]] = {}
        for is_on in (True, False) if number % 2 else (False, True):
            os.kill(agent_pid, signal.SIGCONT if is_on else signal.SIGSTOP)
            times[is_on] = await ranks.run(size, is_watched=is_on)
        pairs.append(Pair(times[True], times[False]))
    os.kill(agent_pid, signal.SIGCONT)
    return pairs


class _Processes:
    """The processes whose processor time is read."""

    def __init__(self, cluster: LocalCluster, session: Session, ranks: Ranks) -> None:
        self._agent = session.agent_pid
        self._ranks = ranks
        self._servers = [
            pid for pid in cluster.pids(cluster.nodes[0]) if _name_of(pid).startswith("sshd")
        ]

    async def read_during(self, num_iterations: int) -> dict[str, float]:
        """Train without interruption; return what each part took meanwhile, seconds per hour."""
        before, began = self._read(), time.perf_counter()
        await self._ranks.run(num_iterations, is_watched=True)
        took_s = time.perf_counter() - began
        return {
            part: 3600 * (seconds - before[part]) / took_s for part, seconds in self._read().items()
        }

    def _read(self) -> dict[str, float]:
        return {
            "agent": _cpu_s(self._agent),
            "ssh_server": sum(map(_cpu_s, self._servers)),
            "link": self._ranks.link_cpu_s,
            "controller_end": time.process_time(),
        }


def _cpu_s(pid: int) -> float:
    """Return the processor time of all threads of a process so far, ended ones included."""
    # What clock_getcpuclockid(3) returns, which Python does not have.
    return time.clock_gettime((~pid << 3) | 2)


def _name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _address(node: LocalNode) -> NodeAddress:
    return NodeAddress(
        node=node.node,
        host=node.host,
        port=node.port,
        user=node.user,
        client_key=str(node.client_key_path),
        host_public_key=node.host_public_key,
        state_dir=str(node.state_dir),
        python=sys.executable,
        num_workers=node.num_workers,
    )


def _launch(command: Command, global_rank: int) -> RankLaunch:
    place = CommandPlace(
        command=command,
        local_rank=global_rank,
        local_workers=tuple(range(LAYOUT.num_workers)),
        master_address="127.0.0.1",
    )
    return RankLaunch(
        task=TaskId("gpt"),
        generation=Generation(1),
        global_rank=global_rank,
        worker=global_rank,
        layout=LAYOUT,
        command=place,
    )
