"""Runs drills one after the other, on as few clusters as it takes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from controller.clock import SystemClock
from controller.demo.demo_options import DemoOptions
from controller.demo.demo_session import DemoSession
from controller.drill_matrix.matrix_cluster import MatrixCluster, NotCalmError
from controller.drill_matrix.recorder import DrillRecorder
from controller.drill_matrix.row import MatrixRow
from controller.drills.drill_arguments import NO_NAMESPACES
from controller.localcluster.local_cluster import LocalCluster
from controller.localcluster.namespaces import NetworkError, find_program
from profiles.drills.drill import Drill

Say = Callable[[str], None]


@asynccontextmanager
async def open_stage(options: DemoOptions, say: Say) -> AsyncIterator[MatrixCluster]:
    """Bring up a cluster with training tasks and a controller that heals by itself.

    Raises:
        DemoError: The nodes can't be started.
    """
    clock, recorder = SystemClock(), DrillRecorder()
    async with LocalCluster.start(
        options.num_nodes,
        options.workers_per_node,
        sshd=options.sshd,
        network=options.network,
        progress=say,
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
        limit_s: No drill is begun after this.
        say: Takes a line about how far it is.
    """

    def __init__(self, options: DemoOptions, limit_s: float, say: Say) -> None:
        self._options = options
        self._limit_s = limit_s
        self._say = say
        self._clock = SystemClock()
        self.rows: list[MatrixRow] = []
        self.impossible: dict[str, str] = {}
        """Why drills can't be run here, by kind."""

    @property
    def duration_s(self) -> float:
        """Seconds since it was made."""
        return self._clock.now()

    async def run(self, drills: Sequence[Drill]) -> None:
        """Run ``drills`` in their order; stops early when the time is up.

        A cluster that can't be made whole after a drill is given up for a new one; none is started
        where no drill can be run.

        Raises:
            DemoError: A cluster can't be started.
            NotCalmError: A new cluster does not come to train.
        """
        waiting = self._possible(drills, has_namespaces=self._may_have_namespaces())
        while waiting and self._clock.now() < self._limit_s:
            async with open_stage(self._options, self._say) as stage:
                waiting = self._possible(waiting, has_namespaces=stage.has_namespaces)
                await stage.become_calm()
                with suppress(NotCalmError):
                    while waiting and self._clock.now() < self._limit_s:
                        self._add(await stage.run(waiting.pop(0)), len(drills))
                        if waiting:
                            await self._mend(stage)

    def _may_have_namespaces(self) -> bool:
        """Whether nodes can have networks of their own, as far as that is known without a try."""
        with suppress(NetworkError):
            return self._options.network != "loopback" and bool(find_program())
        return False

    def _possible(self, drills: Sequence[Drill], *, has_namespaces: bool) -> list[Drill]:
        """Return the drills that can be run; the others are put aside."""
        impossible = [each for each in drills if each.needs_namespaces and not has_namespaces]
        self.impossible |= {drill.kind: f"not here: {NO_NAMESPACES}" for drill in impossible}
        return [drill for drill in drills if drill not in impossible]

    async def _mend(self, stage: MatrixCluster) -> None:
        try:
            await stage.become_calm()
        except NotCalmError as error:
            self._say(f"the cluster can't be made whole ({error}): a new one")
            raise

    def _add(self, row: MatrixRow, num_drills: int) -> None:
        self.rows.append(row)
        seen, verdict = row.seen, "agrees" if row.agrees else "DISAGREES"
        times = ", ".join(
            f"{name} {seconds:.2f} s"
            for name, seconds in (("found", seen.detection_s), ("recovered", seen.recovery_s))
            if seconds is not None
        )
        self._say(
            f"{len(self.rows):>2}/{num_drills} {row.drill.kind}: {verdict}: {seen.severity}"
            f" {seen.status}, {seen.action}, {seen.ending}{f'; {times}' if times else ''}"
        )
        for text in (*row.disagreements, *row.notes):
            self._say(f"      {text}")
