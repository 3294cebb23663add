"""A node whose ranks train with and without an agent, in turns; ``watched_rank`` is its rank.

In a block that is watched the agent runs and every rank tells it of every iteration. In the others
the agent is stopped (SIGSTOP) and the ranks say nothing. The node is one of the demo's: whatever
ends this process ends all of its processes, stopped ones too.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.result_pages import ROOT

from controller.localcluster.local_cluster import LocalCluster
from nodeagent.probes.process_stats import rss_bytes
from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.rank_launch import CommandPlace, RankLaunch, TrainingSpec
from paired.ratio import Pair
from paired.session import Session, attached
from profiles.command_task import CommandTask
from profiles.layout import Layout

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
        waited: Share of the time in which the ranks' training threads, taken together, were ready
            to run without a core: with the agent, and without it.
        per_hour: Processor time by part, seconds per hour: ``agent``, ``ssh_server``, ``link``
            (rank 0's talk to the agent) and ``controller_end``.
        agent_rss_mb: The agent's resident memory at the end.
    """

    pairs: list[Pair]
    waited: tuple[float, float]
    per_hour: dict[str, float]
    agent_rss_mb: float


@dataclass(frozen=True, slots=True)
class TimedBlock:
    """What the ranks say of a block.

    Attributes:
        times: How long each iteration took, seconds.
        waited_s: How long the ranks' training threads, taken together, were ready to run without a
            core.
        link_cpu_s: Processor time that rank 0 has taken so far to talk to its agent.
    """

    times: list[float]
    waited_s: float
    link_cpu_s: float


class WatchedRanks:
    """The ranks' end of the orders: runs a block on them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def run(self, num_iterations: int, *, is_watched: bool) -> TimedBlock:
        """Train and return how that went."""
        self._order(num_iterations, is_watched=is_watched)
        return TimedBlock(**json.loads(await self._reader.readline()))

    def end(self) -> None:
        """Have the ranks end."""
        self._order(0, is_watched=False)

    def _order(self, num_iterations: int, *, is_watched: bool) -> None:
        order = {"num_iterations": num_iterations, "is_watched": is_watched}
        self._writer.write(json.dumps(order).encode() + b"\n")


async def run_round(
    layout: Layout, make_spec: Callable[[str], TrainingSpec], stretch: Stretch
) -> Round:
    """Start a node, its agent and its ranks; measure; end everything.

    Args:
        layout: Of the ranks, all on the one node.
        make_spec: Returns the training, given a directory for its files.
        stretch: How long is measured.

    Raises:
        ExceptionGroup: Of a ``SessionError``, for instance where a rank ended.
    """
    # A short path: the name of a unix socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="ur-") as directory:
        async with (
            LocalCluster.start(1, layout.num_workers) as cluster,
            attached(cluster.nodes[0].address) as session,
            _training(layout, make_spec(directory), Path(directory), session) as ranks,
        ):
            usual_s = min((await ranks.run(_NUM_WARM_UP, is_watched=True)).times)
            processes = _Processes(cluster, session)
            num_steady = max(1, round(stretch.steady_s / usual_s))
            per_hour = await processes.read_during(ranks, num_steady)
            size = max(1, round(stretch.block_s / usual_s))
            pairs = await _take_turns(session.agent_pid, ranks, size, stretch.num_pairs)
            return Round(
                pairs=[Pair(on.times, off.times) for on, off in pairs],
                waited=(
                    share_waited(on for on, _ in pairs),
                    share_waited(off for _, off in pairs),
                ),
                per_hour=per_hour,
                agent_rss_mb=rss_bytes(session.agent_pid) / 1e6,
            )


@asynccontextmanager
async def _training(
    layout: Layout, spec: TrainingSpec, directory: Path, session: Session
) -> AsyncIterator[WatchedRanks]:
    """Have the agent start the ranks, and wait until they ask for orders."""
    spec_file, orders = directory / "spec.json", directory / "orders.sock"
    spec_file.write_text(spec.model_dump_json())
    came: asyncio.Future[WatchedRanks] = asyncio.get_running_loop().create_future()

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set_result(WatchedRanks(reader, writer))

    server = await asyncio.start_unix_server(take, orders, limit=2**24)
    async with server:
        command = CommandTask(
            argv=(sys.executable, "-m", "paired.watched_rank", str(spec_file), str(orders)),
            env={"PYTHONPATH": os.pathsep.join([str(ROOT / "benchmarks"), str(ROOT)])},
        )
        launches = [_launch(command, layout, rank) for rank in range(layout.num_workers)]
        await session.start_ranks(launches)
        async with asyncio.timeout(_START_LIMIT_S):
            ranks = await came
        yield ranks
        session.expect_end()
        ranks.end()


async def _take_turns(
    agent_pid: int, ranks: WatchedRanks, size: int, num_pairs: int
) -> list[tuple[TimedBlock, TimedBlock]]:
    """Run pairs of blocks, watched ones first; which is run first changes from pair to pair."""
    pairs = []
    for number in range(num_pairs):
        blocks: dict[bool, TimedBlock] = {}
        for is_on in (True, False) if number % 2 else (False, True):
            os.kill(agent_pid, signal.SIGCONT if is_on else signal.SIGSTOP)
            blocks[is_on] = await ranks.run(size, is_watched=is_on)
        pairs.append((blocks[True], blocks[False]))
    os.kill(agent_pid, signal.SIGCONT)
    return pairs


def share_waited(blocks: Iterable[TimedBlock]) -> float:
    """Return how long training threads were ready to run without a core, as a share of the time."""
    waited_s, took_s = 0.0, 0.0
    for block in blocks:
        waited_s, took_s = waited_s + block.waited_s, took_s + sum(block.times)
    return waited_s / took_s


class _Processes:
    """The processes whose processor time is read."""

    def __init__(self, cluster: LocalCluster, session: Session) -> None:
        self._agent = session.agent_pid
        pids = cluster.pids(cluster.nodes[0])
        self._servers = [pid for pid in pids if _name_of(pid).startswith("sshd")]
        if not self._servers:
            raise RuntimeError("no OpenSSH server serves the node: its cost can't be read")

    async def read_during(self, ranks: WatchedRanks, num_iterations: int) -> dict[str, float]:
        """Train without interruption; return what each part took meanwhile, seconds per hour."""
        linked_s = (await ranks.run(1, is_watched=True)).link_cpu_s
        before, began = self._read(), time.perf_counter()
        block = await ranks.run(num_iterations, is_watched=True)
        took_s = time.perf_counter() - began
        taken = {part: seconds - before[part] for part, seconds in self._read().items()}
        taken["link"] = block.link_cpu_s - linked_s
        return {part: 3600 * seconds / took_s for part, seconds in taken.items()}

    def _read(self) -> dict[str, float]:
        return {
            "agent": _cpu_s(self._agent),
            "ssh_server": sum(map(_cpu_s, self._servers)),
            "controller_end": time.process_time(),
        }


def _cpu_s(pid: int) -> float:
    """Return the processor time of all threads of a process so far, ended ones included."""
    # What clock_getcpuclockid(3) returns, which Python does not have.
    return time.clock_gettime((~pid << 3) | 2)


def _name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _launch(command: CommandTask, layout: Layout, global_rank: int) -> RankLaunch:
    place = CommandPlace(
        command=command,
        local_rank=global_rank,
        local_workers=tuple(range(layout.num_workers)),
        master_address="127.0.0.1",
    )
    return RankLaunch(
        task=TaskId("gpt"),
        generation=Generation(1),
        global_rank=global_rank,
        worker=global_rank,
        layout=layout,
        command=place,
    )
