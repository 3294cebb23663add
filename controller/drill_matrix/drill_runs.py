"""Runs drills one after another, on as few clusters as possible."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from controller.clock import SystemClock
from controller.demo.demo_options import DemoOptions
from controller.demo.demo_session import DemoSession
from controller.drill_matrix.matrix_cluster import ClusterNotReadyError, MatrixCluster
from controller.drill_matrix.recorder import DrillRecorder
from controller.drill_matrix.row import MatrixRow
from controller.drills.drill_arguments import NO_NAMESPACES
from controller.localcluster.local_cluster import LocalCluster
from controller.localcluster.namespaces import NetworkError, find_program
from profiles.drills.drill import Drill

Notify = Callable[[str], None]


@asynccontextmanager
async def open_matrix_cluster(options: DemoOptions, notify: Notify) -> AsyncIterator[MatrixCluster]:
    """Start a cluster with training tasks and a controller that applies plans without approval.

    Raises:
        LocalClusterError: The nodes can't be started.
    """
    clock, recorder = SystemClock(), DrillRecorder()
    async with LocalCluster.start(
        options.num_nodes,
        options.workers_per_node,
        sshd=options.sshd,
        network=options.network,
        progress=notify,
    ) as cluster:
        session = DemoSession(options, cluster, clock, recorder)
        ended = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(_serve(session, ended))
            try:
                yield MatrixCluster(session, cluster, recorder, clock)
            finally:
                ended.set()
            await running


async def _serve(session: DemoSession, ended: asyncio.Event) -> None:
    async def script() -> None:
        await ended.wait()

    await session.run(script)


class MatrixRun:
    """Runs drills and keeps the rows.

    Args:
        options: The cluster and its tasks.
        limit_s: Seconds after which no drill starts.
        notify: Takes a line about the progress.

    Attributes:
        rows: One row for each drill that was run.
        impossible: For each drill that can't be run here, by kind: why.
    """

    def __init__(self, options: DemoOptions, limit_s: float, notify: Notify) -> None:
        self._options = options
        self._limit_s = limit_s
        self._notify = notify
        self._clock = SystemClock()
        self.rows: list[MatrixRow] = []
        self.impossible: dict[str, str] = {}

    @property
    def duration_s(self) -> float:
        """Seconds since this object was made."""
        return self._clock.now()

    async def run(self, drills: Sequence[Drill]) -> None:
        """Run ``drills`` in their order, until the time runs out.

        A cluster that can't be repaired after a drill is replaced by a new one. No cluster is
        started if none of the drills can be run.

        Raises:
            LocalClusterError: A cluster can't be started.
            ClusterNotReadyError: The tasks of a new cluster do not train in time.
        """
        waiting = self._possible(drills, has_namespaces=self._may_have_namespaces())
        while waiting and self._clock.now() < self._limit_s:
            async with open_matrix_cluster(self._options, self._notify) as cluster:
                waiting = self._possible(waiting, has_namespaces=cluster.has_namespaces)
                await cluster.wait_until_ready()
                with suppress(ClusterNotReadyError):
                    while waiting and self._clock.now() < self._limit_s:
                        self._add(await cluster.run(waiting.pop(0)), len(drills))
                        if waiting:
                            await self._repair(cluster)

    def _may_have_namespaces(self) -> bool:
        """Return whether network namespaces seem possible, without a try."""
        with suppress(NetworkError):
            return self._options.network != "loopback" and bool(find_program())
        return False

    def _possible(self, drills: Sequence[Drill], *, has_namespaces: bool) -> list[Drill]:
        """Return the drills that can be run; note in ``impossible`` why the rest can't."""
        impossible = [each for each in drills if each.needs_namespaces and not has_namespaces]
        self.impossible |= {drill.kind: f"not here: {NO_NAMESPACES}" for drill in impossible}
        return [drill for drill in drills if drill not in impossible]

    async def _repair(self, cluster: MatrixCluster) -> None:
        try:
            await cluster.wait_until_ready()
        except ClusterNotReadyError as error:
            self._notify(f"the cluster can't be repaired ({error}); starting a new one")
            raise

    def _add(self, row: MatrixRow, num_drills: int) -> None:
        self.rows.append(row)
        observed, verdict = row.observed, "agrees" if row.agrees else "DISAGREES"
        times = ", ".join(
            f"{name} {seconds:.2f} s"
            for name, seconds in (
                ("detected", observed.detection_s),
                ("recovered", observed.recovery_s),
            )
            if seconds is not None
        )
        self._notify(
            f"{len(self.rows):>2}/{num_drills} {row.drill.kind}: {verdict}: {observed.severity}"
            f" {observed.status}, {observed.action}, {observed.ending}{f'; {times}' if times else ''}"
        )
        for text in (*row.disagreements, *row.notes):
            self._notify(f"      {text}")
