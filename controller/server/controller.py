"""One controller: the core, its journal, the runtime, and the fleet.

If the journal holds the events of an earlier controller, which may have been killed, the new one
takes over. It replays the journal to rebuild the state, asks every node for its ranks, and resumes.
Training is not disturbed.
"""

import asyncio
import contextlib
import logging
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from controller.api.view_keeper import ViewKeeper
from controller.api.views import ControllerView
from controller.clock import SystemClock
from controller.core.events import ControllerStarted, Event, EventBody, NodeAttached
from controller.core.heartbeats.heartbeat_watch import HeartbeatWatch, Pulse
from controller.core.instructions import Instruction
from controller.core.machine import Machine
from controller.core.membership.file_changes import changes
from controller.core.rules.policy import Policy
from controller.core.specs import TaskSpec
from controller.core.state.cluster import ClusterState
from controller.core.state.phases import NodeCondition
from controller.fleet.address import NodeAddress, decode_address
from controller.fleet.node_connection import SshLogins
from controller.fleet.node_link import Identity
from controller.fleet.node_links import FleetListener, SshFleet
from controller.loop_clock import LoopClock
from controller.ports import DrillGround, Publisher
from controller.server.compactor import Compactor
from controller.server.controller_config import ControllerConfig
from controller.server.history_writer import HistoryWriter
from controller.server.precomputed_plans import PrecomputedPlans
from controller.server.rank_launches import decode_program
from controller.server.runtime import Runtime, RuntimeDependencies
from controller.store.history import HistoryEntry, entries_of
from controller.store.journal import Journal
from controller.store.measured_tables import MeasuredTables
from controller.store.rendezvous_files import RendezvousFiles
from controller.store.replay import ReplayedRun
from controller.store.run_file import undo_setting_aside
from controller.store.run_lock import RunLock
from controller.store.snapshots import restore
from controller.workdirs.workdir_store import NAME, WorkdirStore
from nodeagent.protocol.ids import NodeId, TaskId
from nodeagent.protocol.messages import Heartbeat

_LOG: Final = logging.getLogger(__name__)
_PAUSE_TEXT: Final = "which is not held against any node"


class Controller:
    """One controller of a run. ``run`` serves it until cancelled.

    Args:
        config: Its nodes, tasks and policy.
        journal: Its file. If it holds events, this controller takes over from the one that wrote
            them.
        clock: The clock of the run. After a takeover it counts from the start of the first
            controller.
        note: Called with a source and a line, for instance about a node that can't be reached.

    Raises:
        JournalError: The journal is damaged, or does not begin with the start of a controller.
        ImpossibleChangeError: The config differs from the journal in what can't be changed.
        RunLockedError: Another controller acts on this run.
        OSError: The journal can't be written.
    """

    def __init__(
        self,
        config: ControllerConfig,
        journal: Path,
        clock: SystemClock,
        note: Callable[[str, str], None],
    ) -> None:
        with contextlib.ExitStack() as opened:
            lock = RunLock(journal.parent, clock.wall_s())
            opened.callback(lock.close)
            self._holder = lock.holder
            undo_setting_aside(journal.parent)
            machine, replayed, known = _restored(journal)
            started = _beginning(clock, replayed)
            self._term = started.term
            clock.continue_from(started.started_wall_s, replayed.at)
            _LOG.info(
                "controller begins: run=%s term=%d events=%d",
                started.run_id, started.term, replayed.num_events,
            )  # fmt: skip
            changed = list(changes(config.wanted(), machine.state, machine.policy))
            self._journal = Journal(journal, replayed.num_events, config.retention.segment_events)
            opened.callback(self._journal.close)
            self._clock = LoopClock(
                clock,
                lambda paused_s: note(
                    "controller", f"stood still for {paused_s:.1f} s, {_PAUSE_TEXT}"
                ),
            )
            self._heartbeats = HeartbeatWatch(machine.state)
            self._runtime = Runtime(machine, self._journal, self._clock, config.backend, replayed)
            self._history = HistoryWriter(
                journal.parent, machine.state, config.retention, self._clock.now,
                lambda text: note("history", text),
            )  # fmt: skip
            self._compactor = Compactor(
                journal, config.retention, self._history.write, self._journal.measure,
                lambda text: note("journal", text),
            )  # fmt: skip
            self._history.add(known)
            self._runtime.followed = self._remember
            self._runtime.segment_closed = self._compactor.wake
            self.precomputed_plans = PrecomputedPlans(
                machine, self._runtime.has_news, lambda text: note("planner", text)
            )
            self._runtime.begin((started, *changed))
            self._rendezvous_files = RendezvousFiles(journal.parent / "rendezvous", note)
            opened.callback(self._rendezvous_files.close)
            if started.term == 1:
                self._rendezvous_files.clear()
            self.fleet = self._fleet(config, started, replayed, note)
            store = WorkdirStore(journal.parent / NAME)
            store.remove_old(_workdirs(machine.state, config))
            self.fleet.use_workdirs(store)
            for address in _addresses(machine.state):
                self.fleet.add(address)
            directory = config.tables or journal.parent / "profiles"
            self._tables = MeasuredTables(directory, self._spec_of, note)
            for task, generation in replayed.ended.items():
                self.fleet.drop_rendezvous(task, generation)
            opened.callback(self._history.close)
            self._opened = opened.pop_all()

    def _fleet(
        self,
        config: ControllerConfig,
        started: ControllerStarted,
        replayed: ReplayedRun,
        note: Callable[[str, str], None],
    ) -> SshFleet:
        """Return the fleet, without links yet."""
        name = f"process {self._holder.pid} on {self._holder.host}"
        return SshFleet(
            Identity(started.run_id, started.term, name),
            _Listener(self._runtime, self._clock, self._heartbeats, note),
            self._clock,
            self._rendezvous_files,
            replayed.last_seqs,
            SshLogins(config.accepted_keys),
        )

    @property
    def state(self) -> ClusterState:
        """The state of the core. Callers must not change it."""
        return self._runtime.machine.state

    @property
    def pulses(self) -> Mapping[NodeId, Pulse]:
        """What each node in contact said of itself last."""
        return self._heartbeats.pulses

    @property
    def delays_s(self) -> deque[float]:
        """From the arrival of each of the newest events to what followed from it, in seconds."""
        return self._runtime.delays_s

    @property
    def num_written(self) -> int:
        """Bytes that it has appended to the journal."""
        return self._journal.num_written

    @property
    def num_events(self) -> int:
        """Events of the run so far."""
        return self._runtime.num_events

    @property
    def views(self) -> ViewKeeper:
        """The view of the cluster, kept up to date."""
        return self._runtime.views

    def view(self) -> ControllerView:
        """Return this controller as operators see it."""
        return ControllerView(
            pid=self._holder.pid,
            host=self._holder.host,
            term=self._term,
            since=self._holder.since,
            journal_bytes=self._journal.num_bytes,
        )

    @property
    def policy(self) -> Policy:
        """The present policy."""
        return self._runtime.machine.policy

    def _spec_of(self, task: TaskId) -> TaskSpec | None:
        found = self.state.tasks.get(task)
        return found.spec if found else None

    async def read_history(
        self, table: str, *, since: float, until: float | None, name: str | None, limit: int
    ) -> list[dict[str, Any]]:
        """Return the newest rows of a table of the history, oldest first.

        Raises:
            HistoryError: It can't be read.
        """
        return await self._history.read(table, since=since, until=until, name=name, limit=limit)

    def _remember(self, event: Event, instructions: list[Instruction]) -> None:
        self._history.add(entries_of(event, instructions))

    def post(self, body: EventBody) -> None:
        """Have the core handle an event, after the events that wait."""
        self._runtime.post(body)

    async def run(self, publisher: Publisher, drills: DrillGround) -> None:
        """Serve until cancelled. Whenever that happens, the journal is complete for a takeover."""
        try:
            async with asyncio.TaskGroup() as group:
                dependencies = RuntimeDependencies(self.fleet, publisher, drills, self._tables)
                group.create_task(self._clock.run())
                group.create_task(self._runtime.run(dependencies))
                group.create_task(self._tables.run())
                group.create_task(self._compactor.run())
                group.create_task(self._history.run())
                group.create_task(self.fleet.run())
                group.create_task(self.precomputed_plans.run(publisher.state_changed))
        finally:
            self.close()

    def close(self) -> None:
        """Close the files. ``run`` does this at its end."""
        self._opened.close()


def _restored(journal: Path) -> tuple[Machine, ReplayedRun, list[HistoryEntry]]:
    """Return what the former controllers have left, and what was announced since the snapshot."""
    known: list[HistoryEntry] = []

    def remember(event: Event, instructions: list[Instruction]) -> None:
        known.extend(entries_of(event, instructions))

    if not journal.exists():
        return Machine(), ReplayedRun(), known
    machine, replayed = restore(journal, followed=remember)
    return machine, replayed, known


def _addresses(state: ClusterState) -> list[NodeAddress]:
    """Return the addresses of the nodes that the former controllers have left in the cluster."""
    return [
        decode_address(node.spec.access)
        for node in state.nodes.values()
        if node.contact.condition is not NodeCondition.REMOVED
    ]


def _beginning(clock: SystemClock, replayed: ReplayedRun) -> ControllerStarted:
    before = replayed.started
    return ControllerStarted(
        run_id=before.run_id if before else secrets.token_hex(8),
        term=before.term + 1 if before else 1,
        started_wall_s=before.started_wall_s if before else clock.started_wall_s,
    )


@dataclass(frozen=True, slots=True)
class _Listener(FleetListener):
    """Passes what the fleet sees to the runtime, and its notes to the publisher."""

    runtime: Runtime
    clock: LoopClock
    heartbeats: HeartbeatWatch
    to_publisher: Callable[[NodeId, str], None]

    @override
    def post(self, body: EventBody) -> None:
        if isinstance(body, NodeAttached):
            self.heartbeats.begin_session(body.node, body.ranks, self.clock.now())
        self.runtime.post(body)

    @override
    async def has_room(self) -> None:
        await self.runtime.has_room()

    @override
    def take_heartbeat(self, node: NodeId, beat: Heartbeat, received_wall_s: float) -> None:
        policy, now = self.runtime.machine.policy, self.clock.now()
        for change in self.heartbeats.take(node, beat, received_wall_s, now, policy):
            self.runtime.post(change)

    @override
    def take_silence(self, node: NodeId, last_message_at: float) -> None:
        for change in self.heartbeats.take_silence(node, last_message_at):
            self.runtime.post(change)

    @override
    def note(self, node: NodeId, text: str) -> None:
        self.to_publisher(node, text)


def _workdirs(state: ClusterState, config: ControllerConfig) -> set[str]:
    """Return the versions of folders that ranks may still be started with."""
    known = [
        decode_program(task.spec.program) for task in state.tasks.values() if task.spec.program
    ]
    return {program.workdir for program in [*known, *config.programs.values()]}
