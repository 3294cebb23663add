"""One running cluster on which drills are run one after the other, until it can't be made whole.

Before each drill the cluster is calm: every node in contact, every task at its full size and
training, nothing open. A drill is watched until its incident is resolved or held, or until training
has visibly gone on. Then the cluster is mended as an operator would: lost nodes are brought back,
and a plan is asked for tasks that were held.
"""

import asyncio
import itertools
from collections.abc import Callable
from typing import Final

from controller.api.projection import incident_view
from controller.api.views import IncidentView
from controller.clock import Clock
from controller.core.events import DrillRequested, PlanRequested
from controller.core.phases import IncidentState, TaskPhase
from controller.demo.cluster import DemoError, LocalCluster
from controller.demo.matrix.calm import (
    generations,
    have_advanced,
    iterations,
    nodes_out,
    why_not_calm,
    why_stalled,
)
from controller.demo.matrix.ear import Ear
from controller.demo.matrix.row import Row, Struck, seen_of_incidents, seen_without_incident
from controller.demo.session import Session
from nodeagent.protocol.ids import NodeId
from profiles.drills.drill import Drill

ACTOR: Final = "matrix"
CALM_LIMIT_S: Final = 60.0
"""How long a cluster has to come up, or to be mended, before it is given up."""

_CARRY_OUT_LIMIT_S: Final = 5.0
_UNSEEN_LIMIT_S: Final = 12.0
"""A drill that has opened no incident by then was not seen."""
_OPEN_LIMIT_S: Final = 40.0
"""An incident that is not resolved by then will not be."""
_LATE_S: Final = 2.5
"""How long late symptoms are waited for: the kernel log is read every 2 s."""
_UNHARMED_S: Final = 5.0
_UNHARMED_ITERATIONS: Final = 4
_CALM_ITERATIONS: Final = 2
_MEND_PAUSE_S: Final = 2.0


class NotCalmError(Exception):
    """The cluster could not be made whole again; the text says what is wrong with it."""


class Stage:
    """Runs drills on one cluster.

    Args:
        session: Its controller.
        cluster: Its nodes.
        ear: Hears what the controller says.
        clock: The controller's.
    """

    def __init__(self, session: Session, cluster: LocalCluster, ear: Ear, clock: Clock) -> None:
        self._session = session
        self._cluster = cluster
        self._ear = ear
        self._clock = clock
        self._numbers = itertools.count()

    async def become_calm(self) -> None:
        """Mend what is broken and wait until the cluster is whole and at rest.

        Raises:
            NotCalmError: It does not become so in time.
        """
        until = self._clock.now() + CALM_LIMIT_S
        restored: set[NodeId] = set()
        asked: set[str] = set()
        since = iterations(self._session.state)
        troubled_at = self._clock.now()
        while (reason := why_not_calm(self._session.state)) or not have_advanced(
            self._session.state, since, _CALM_ITERATIONS
        ):
            if reason:
                since = iterations(self._session.state)
            else:
                troubled_at = self._clock.now()
            if self._clock.now() > until:
                raise NotCalmError(reason or "a task does not advance")
            if self._clock.now() - troubled_at > _MEND_PAUSE_S:
                await self._mend(restored, asked)
            await self._session.next_change()

    async def _mend(self, restored: set[NodeId], asked: set[str]) -> None:
        """Do once what an operator would: bring nodes back, have held tasks planned again."""
        state = self._session.state
        for node in nodes_out(state):
            if node not in restored:
                restored.add(node)
                try:
                    await self._cluster.restore_node(node)
                except DemoError as error:
                    raise NotCalmError(str(error)) from error
        is_whole = all(node not in nodes_out(state) for node in restored)
        held = {name for name, task in state.tasks.items() if task.phase is TaskPhase.HELD}
        if is_whole and held - asked and state.pending_plan() is None:
            asked.update(held)
            self._session.post(PlanRequested(f"{ACTOR}-plan-{next(self._numbers)}", ACTOR))

    async def run(self, drill: Drill) -> Row:
        """Run one drill on the calm cluster and return what was seen of it."""
        number, state = next(self._numbers), self._session.state
        struck = self._target(drill, number)
        known = {incident.name for incident in state.incidents}
        mark, before = self._ear.mark(), generations(state)
        self._session.post(
            DrillRequested(
                f"{ACTOR}-{number}",
                ACTOR,
                drill.kind,
                struck.task,
                struck.global_rank,
                struck.node if struck.task is None else None,
            )
        )
        await self._wait_until(lambda: self._ear.struck_at(mark) is not None, _CARRY_OUT_LIMIT_S)
        struck_at = self._ear.struck_at(mark)
        since = iterations(state)
        if struck_at is not None:
            await self._watch(drill, known, mark, struck_at)
        incidents = self._new_incidents(known)
        began_at = struck_at if struck_at is not None else self._clock.now()
        if incidents:
            seen = seen_of_incidents(drill, struck, incidents, began_at)
        else:
            stalled = why_stalled(state, since, before) if struck_at is not None else "refused"
            notices = self._ear.notices(mark, began_at)
            seen = seen_without_incident(drill, struck, notices, stalled=stalled)
        return Row(drill, struck, seen, self._ear.notes(mark))

    def _target(self, drill: Drill, number: int) -> Struck:
        """Choose what to hit: ranks of the first task, or nodes with ranks, one after the other."""
        task = next(iter(self._session.state.tasks.values()))
        if drill.target == "rank":
            numbers = sorted(task.living_ranks)
            global_rank = numbers[(number + 1) % len(numbers)]
            return Struck(task.ranks[global_rank].worker.node, task.spec.task, global_rank)
        used = {node for task in self._session.state.tasks.values() for node in task.nodes}
        nodes = sorted(used)
        return Struck(nodes[(number + 1) % len(nodes)])

    async def _watch(self, drill: Drill, known: set[str], mark: int, struck_at: float) -> None:
        """Return when all is seen that will be seen of the drill."""
        if drill.expected.severity == "none":
            await self._watch_unharmed(drill, known, mark, struck_at)
        else:
            await self._wait_until(lambda: bool(self._new_incidents(known)), _UNSEEN_LIMIT_S)
        if self._new_incidents(known):
            await self._wait_until(lambda: not self._has_open(known), _OPEN_LIMIT_S)
            await self._wait_until(lambda: False, _LATE_S)
            await self._wait_until(lambda: not self._has_open(known), _OPEN_LIMIT_S)

    async def _watch_unharmed(
        self, drill: Drill, known: set[str], mark: int, struck_at: float
    ) -> None:
        since = iterations(self._session.state)
        status = drill.expected.status

        def is_told() -> bool:
            kinds = {notice.kind for notice in self._ear.notices(mark, struck_at)}
            return status == "none" or status in kinds or bool(self._new_incidents(known))

        def is_over() -> bool:
            state = self._session.state
            has_time = self._clock.now() - struck_at > _UNHARMED_S
            goes_on = have_advanced(state, since, _UNHARMED_ITERATIONS)
            return bool(self._new_incidents(known)) or (
                has_time and goes_on and why_not_calm(state) is None
            )

        await self._wait_until(is_told, _UNSEEN_LIMIT_S)
        await self._wait_until(is_over, _UNSEEN_LIMIT_S)

    def _new_incidents(self, known: set[str]) -> list[IncidentView]:
        return [
            incident_view(incident)
            for incident in self._session.state.incidents
            if incident.name not in known
        ]

    def _has_open(self, known: set[str]) -> bool:
        ended = {IncidentState.RESOLVED, IncidentState.HELD}
        return any(incident.state not in ended for incident in self._new_incidents(known))

    async def _wait_until(self, condition: Callable[[], bool], limit_s: float) -> None:
        """Return when the condition holds, or the time is up."""
        try:
            async with asyncio.timeout(limit_s):
                while not condition():
                    await self._session.next_change()
        except TimeoutError:
            return
