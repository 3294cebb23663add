"""A controller that is killed for real, in whatever it does.

The next one goes on from its journal.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.core.specs import TaskSpec
from controller.localcluster.local_cluster import LocalCluster
from nodeagent.protocol.ids import TaskId
from nodeagent.protocol.rank_launch import TrainingSpec
from profiles.layout import Layout
from profiles.model import ModelShape
from profiles.throughput import ThroughputPoint, ThroughputTable
from tests.fakes.demo_runs import events_of
from tests.fakes.lone_controller import REMIT, Remit
from tests.fakes.node import until
from tests.fakes.saved_runs import readable_events

pytestmark = [pytest.mark.drill, pytest.mark.ranks, pytest.mark.ssh, pytest.mark.timeout(600)]

A = TaskId("gpt-a")
TABLE = ThroughputTable(
    points=tuple(
        ThroughputPoint(workers=x, flops_per_s=1e9 * x, layout=Layout(tp=1, pp=1, dp=x))
        for x in (1, 2)
    )
)


class Run:
    """Controllers that follow one another over two nodes, and what they have told."""

    def __init__(self, cluster: LocalCluster, tmp_path: Path) -> None:
        shape = ModelShape(num_layers=2, hidden_size=32, num_attention_heads=4, seq_length=32)
        training = TrainingSpec(
            model=shape,
            checkpoint_dir=str(cluster.root / "checkpoints"),
            checkpoint_interval=10,
            num_micro_batches=4,
            iteration_floor_s=0.4,
        )
        self.cluster = cluster
        self._directory = tmp_path
        self._logs: list[Path] = []
        task = TaskSpec(
            task=A, weight=1.0, workers=2, min_workers=1, table=TABLE, flops_per_iteration=1e9,
            num_iterations=None, num_micro_batches=4,
        )  # fmt: skip
        addresses = [node.address for node in cluster.nodes]
        journal = tmp_path / "journal.jsonl"
        self._remit = Remit(addresses, task, training, journal, event_log=journal)
        self.controller: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the next controller."""
        self._logs.append(self._directory / f"events-{len(self._logs)}.jsonl")
        remit = replace(self._remit, event_log=self._logs[-1])
        words = [sys.executable, "-m", "tests.fakes.lone_controller"]
        self.controller = subprocess.Popen(words, stdin=subprocess.PIPE)
        assert self.controller.stdin is not None
        self.controller.stdin.write(REMIT.dump_json(remit) + b"\n")
        self.controller.stdin.close()

    def kill(self) -> None:
        """Kill the controller as nothing can be prepared for."""
        if self.controller is not None:
            self.controller.kill()
            self.controller.wait()

    def told(self, kind: str) -> list[Any]:
        """Return what was announced of one kind, by all controllers."""
        events = [event for log in self._logs for event in events_of(log)]
        return [event for event in events if event["kind"] == kind]

    def observed(self, kind: str) -> list[Any]:
        """Return the observations of one kind in the journal, which outlives a controller."""
        events = readable_events(self._directory)
        observations = [e["body"]["observation"] for e in events if e["type"] == "Observed"]
        return [one for one in observations if one["kind"] == kind]

    def iterations(self) -> list[int]:
        return [one["iteration"] for one in self.observed("iteration_committed")]

    async def ranks_to_meet(self) -> None:
        """Wait until a rank has told the controller something for its peers."""
        path = self._directory / "rendezvous" / "gpt-a.1.jsonl"
        async with asyncio.timeout(60):
            while not (path.exists() and path.stat().st_size):  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.002)

    async def reach(self, iteration: int) -> None:
        """Wait until the task has committed ``iteration``."""
        await self.until("iteration", lambda event: event["iteration"] >= iteration)

    async def until(self, kind: str, holds: Any) -> Any:  # noqa: ANN401 - a line of JSON
        """Wait for an event of one kind for which ``holds`` is true."""
        return await until(
            lambda: next(filter(holds, self.told(kind)), None), f"such a {kind}", limit_s=60
        )


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Run]:
    async with LocalCluster.start(2, 1) as cluster:
        run = Run(cluster, tmp_path)
        try:
            run.start()
            yield run
        finally:
            run.kill()


async def test_training_goes_on_without_a_controller_and_faults_wait_for_the_next(
    run: Run,
) -> None:
    await run.ranks_to_meet()
    run.kill()  # some have told it what their peers have yet to ask for
    run.start()
    await run.reach(4)
    assert {event["generation"] for event in run.told("iteration")} == {1}
    assert not run.told("incident")
    pids = {one["global_rank"]: one["pid"] for one in run.observed("rank_started")}
    run.kill()
    await asyncio.sleep(1.0)
    run.start()
    await run.until("takeover", lambda event: event["term"] == 3)
    await run.reach(8)
    assert len(run.observed("rank_started")) == 2, "nobody was started again"
    assert not run.told("incident")

    run.kill()
    os.kill(pids[1], signal.SIGKILL)
    await asyncio.sleep(1.0)
    run.start()
    await run.until("rank_started", lambda event: event["pid"] not in pids.values())
    run.kill()  # while the next generation forms, or shortly after
    run.start()
    await run.reach(max(run.iterations()) + 4)
    started = run.observed("rank_started")
    assert pids[0] in {one["pid"] for one in started}
    assert len(started) == 3, "the survivor has kept its process"
    iterations = run.iterations()
    assert iterations == list(range(1, len(iterations) + 1))
