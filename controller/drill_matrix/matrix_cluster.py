"""A running cluster on which drills are run one after another.

Before each drill the cluster must be ready: every node in contact, every task training at its full
size, no open incident. A drill is watched until its incident is resolved or held, or until training
has visibly continued. Then the cluster is repaired as an operator would do it: lost nodes are
restored, isolated nodes uncordoned, and a plan is requested for held tasks.
"""

import asyncio
import itertools
import math
from collections.abc import Callable
from typing import Final

from controller.api.projection import incident_view
from controller.api.views import IncidentView
from controller.clock import Clock
from controller.core.events import DrillRequested, PlanRequested, UncordonRequested
from controller.core.rules.policy import Policy
from controller.core.state.phases import IncidentState, TaskPhase
from controller.demo.demo_session import DemoSession
from controller.drill_matrix.readiness import (
    generations,
    have_advanced,
    isolated_nodes,
    iterations,
    lost_nodes,
    why_not_ready,
    why_stalled,
)
from controller.drill_matrix.recorder import DrillRecorder
from controller.drill_matrix.row import (
    MatrixRow,
    RowTarget,
    observation_of_incidents,
    observation_without_incident,
)
from controller.drills.drill_execution import FREEZE_S, PARTITION_S
from controller.localcluster.local_cluster import LocalCluster, LocalClusterError
from nodeagent.protocol.ids import NodeId
from profiles.drills.drill import Drill

ACTOR: Final = "matrix"
READY_LIMIT_S: Final = 60.0
"""The limit for a cluster to start, or to be repaired."""

_CARRY_OUT_LIMIT_S: Final = 5.0
_UNSEEN_LIMIT_S: Final = 12.0
"""A drill that has opened no incident after this time was not detected."""
_OPEN_LIMIT_S: Final = 40.0
"""The limit for an incident to be resolved."""
_LATE_S: Final = 2.5
"""How long to wait for late symptoms: agents read the kernel log every 2 s."""
_UNHARMED_S: Final = 5.0
_UNHARMED_ITERATIONS: Final = 4
_READY_ITERATIONS: Final = 2
_LOGGED: Final = frozenset({"kernel-log", "link-flap", "memory-kill"})
_REST_S: Final = 12.0
"""Time from a fault on a node to a kernel line there, so that the line is no part of the fault."""
_NETWORK_REST_S: Final = Policy().network_merge_s + 1.0
"""Time between two network faults: closer together, they would count as one."""
_REPAIR_PAUSE_S: Final = 2.0
_RETURN_S: Final = 8.0
"""The limit for a frozen or unplugged node to return by itself."""
_AWAY_S: Final = {"freeze-node": FREEZE_S, "partition": PARTITION_S}


class ClusterNotReadyError(Exception):
    """The cluster did not become ready in time. The text says why."""


class MatrixCluster:
    """Runs drills on one cluster.

    Args:
        session: The cluster's controller.
        cluster: The cluster's nodes.
        recorder: Records the controller's announcements.
        clock: The controller's clock.
    """

    def __init__(
        self, session: DemoSession, cluster: LocalCluster, recorder: DrillRecorder, clock: Clock
    ) -> None:
        self._session = session
        self._cluster = cluster
        self._recorder = recorder
        self._clock = clock
        self._numbers = itertools.count()
        self._last_hit: dict[str, float] = {}
        self._last_network = -math.inf
        self._returns_at: dict[NodeId, float] = {}

    @property
    def has_namespaces(self) -> bool:
        """Whether each node has its own network namespace."""
        return self._cluster.has_namespaces

    async def wait_until_ready(self) -> None:
        """Repair the cluster and wait until it is ready for the next drill.

        Raises:
            ClusterNotReadyError: It is not ready in time.
        """
        until = self._clock.now() + READY_LIMIT_S
        repaired: set[str] = set()
        since, not_ready_at = iterations(self._session.state), self._clock.now()
        while True:
            now, reason = self._clock.now(), why_not_ready(self._session.state)
            if reason:
                since = iterations(self._session.state)
            else:
                not_ready_at = now
            if not reason and have_advanced(self._session.state, since, _READY_ITERATIONS):
                return
            if now > until:
                raise ClusterNotReadyError(reason or "a task does not advance")
            if now - not_ready_at > _REPAIR_PAUSE_S:
                await self._repair(repaired)
            await self._session.next_change()

    async def _repair(self, repaired: set[str]) -> None:
        """Restore lost nodes, uncordon isolated ones, request a plan for held tasks; once each."""
        state = self._session.state
        lost, isolated = lost_nodes(state), isolated_nodes(state)
        for node in lost:
            returns_at = self._returns_at.get(node, -math.inf)
            if node not in repaired and self._clock.now() > returns_at:
                repaired.add(node)
                await self._restore(node)
        for node in isolated:
            if f"isolated {node}" not in repaired:
                repaired.add(f"isolated {node}")
                self._session.post(UncordonRequested(self._request_id(), ACTOR, node))
        held = {
            name for name, task in state.tasks.items() if task.lifecycle.phase is TaskPhase.HELD
        }
        if not (lost or isolated or state.plans.pending()) and held - repaired:
            repaired.update(held)
            self._session.post(PlanRequested(self._request_id(), ACTOR))

    async def _restore(self, node: NodeId) -> None:
        try:
            await self._cluster.restore_node(node)
        except LocalClusterError as error:
            raise ClusterNotReadyError(str(error)) from error

    def _request_id(self) -> str:
        return f"{ACTOR}-{next(self._numbers)}"

    async def run(self, drill: Drill) -> MatrixRow:
        """Run one drill on the ready cluster; return its row."""
        target = self._target(drill)
        if drill.family in _LOGGED:
            await self._wait_for_quiet(target, drill)
        if drill.expected.is_network:
            self._last_network = self._clock.now()
        self._last_hit[target.node] = self._last_hit[target.name] = self._clock.now()
        if (away_s := _AWAY_S.get(drill.family)) is not None:
            self._returns_at[target.node] = self._clock.now() + away_s + _RETURN_S
        hit = self._session.state.tasks[target.task] if target.task else None
        average_s = hit.watch.pace.average_s if hit else None
        known = {incident.name for incident in self._session.state.incidents.all}
        mark, before = self._recorder.mark(), generations(self._session.state)
        node = target.node if target.task is None else None
        self._session.post(
            DrillRequested(
                self._request_id(), ACTOR, drill.kind, target.task, target.global_rank, node
            )
        )
        await self._wait_until(
            lambda: self._recorder.carried_out_at(mark) is not None, _CARRY_OUT_LIMIT_S
        )
        carried_out_at = self._recorder.carried_out_at(mark)
        since = iterations(self._session.state)
        if carried_out_at is not None:
            await self._watch(drill, target, known, mark)
        incidents = self._new_incidents(known)
        began_at = carried_out_at if carried_out_at is not None else self._clock.now()
        if incidents:
            observed = observation_of_incidents(drill, target, incidents, began_at)
        else:
            now = self._session.state  # after a kill of the controller this is the next one's state
            stalled = why_stalled(now, since, before) if carried_out_at is not None else "refused"
            notices = self._recorder.notices(mark, began_at)
            observed = observation_without_incident(drill, target, notices, stalled=stalled)
        return MatrixRow(drill, target, observed, self._recorder.notes(mark), average_s)

    def _target(self, drill: Drill) -> RowTarget:
        """Choose the rank of the first task, or the node with ranks, that was hit longest ago."""
        tasks = list(self._session.state.tasks.values())
        if drill.target == "rank":
            name, ranks = tasks[0].spec.task, tasks[0].living_ranks
            places = [
                RowTarget(ranks[number].worker.node, name, number) for number in sorted(ranks)
            ]
        else:
            places = [RowTarget(node) for node in sorted({n for task in tasks for n in task.nodes})]
        return min(places, key=self._last_hit_at)

    def _last_hit_at(self, place: RowTarget) -> tuple[float, float]:
        never = -math.inf
        return self._last_hit.get(place.node, never), self._last_hit.get(place.name, never)

    async def _wait_for_quiet(self, place: RowTarget, drill: Drill) -> None:
        """Wait until the drill can't be merged with the last fault of the node or the network."""
        until = self._last_hit.get(place.node, -math.inf) + _REST_S
        if drill.expected.is_network:
            until = max(until, self._last_network + _NETWORK_REST_S)
        await self._wait_until(lambda: self._clock.now() >= until, _NETWORK_REST_S)

    async def _watch(self, drill: Drill, target: RowTarget, known: set[str], mark: int) -> None:
        """Return when the drill's incident has ended, or when training has visibly continued."""
        if drill.expected.severity == "none":
            await self._watch_unharmed(drill, target, known, mark)
        else:
            await self._wait_until(lambda: bool(self._new_incidents(known)), _UNSEEN_LIMIT_S)
        if self._new_incidents(known):
            await self._wait_until(lambda: not self._has_open(drill, known), _OPEN_LIMIT_S)
            await self._wait_until(lambda: False, _LATE_S)
            await self._wait_until(lambda: not self._has_open(drill, known), _OPEN_LIMIT_S)

    async def _watch_unharmed(
        self, drill: Drill, target: RowTarget, known: set[str], mark: int
    ) -> None:
        since = iterations(self._session.state)
        carried_out_at = self._recorder.carried_out_at(mark) or self._clock.now()

        def is_reported() -> bool:
            notices = self._recorder.notices(mark, carried_out_at)
            observed = observation_without_incident(drill, target, notices, stalled="")
            return observed.is_culprit_right or bool(self._new_incidents(known))

        def is_over() -> bool:
            state = self._session.state
            has_time = self._clock.now() - carried_out_at > _UNHARMED_S
            goes_on = have_advanced(state, since, _UNHARMED_ITERATIONS)
            return bool(self._new_incidents(known)) or (
                has_time and goes_on and why_not_ready(state) is None
            )

        await self._wait_until(is_reported, _UNSEEN_LIMIT_S)
        await self._wait_until(is_over, _UNSEEN_LIMIT_S)

    def _new_incidents(self, known: set[str]) -> list[IncidentView]:
        return [
            incident_view(incident)
            for incident in self._session.state.incidents.all
            if incident.name not in known
        ]

    def _has_open(self, drill: Drill, known: set[str]) -> bool:
        """Return whether a new incident still changes without an operator."""
        tasks = self._session.state.tasks.values()
        is_for_operator = drill.expected.ending == "held" or any(
            task.lifecycle.phase is TaskPhase.HELD for task in tasks
        )
        ended = {IncidentState.RESOLVED, IncidentState.HELD if is_for_operator else None}
        return any(incident.state not in ended for incident in self._new_incidents(known))

    async def _wait_until(self, condition: Callable[[], bool], limit_s: float) -> None:
        """Return when the condition holds or the time has run out."""
        try:
            async with asyncio.timeout(limit_s):
                while not condition():
                    await self._session.next_change()
        except TimeoutError:
            return
