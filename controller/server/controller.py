"""A controller put together: the core, its journal, the runtime, and the fleet.

Where the journal holds the events of a controller that ended, killed perhaps, the new one takes
over: it rebuilds the state, asks every node what lives there, and goes on. Training does not notice.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from controller.clock import SystemClock
from controller.core.cluster_spec import spec_of
from controller.core.events import ControllerStarted, EventBody
from controller.core.machine import Machine
from controller.core.rules.policy import Policy
from controller.core.state.cluster import ClusterState
from controller.core.state.node import NodeSpec
from controller.core.state.task import TaskSpec
from controller.fleet.address import NodeAddress
from controller.fleet.node_link import Identity
from controller.fleet.node_links import SshFleet
from controller.ports import Audience, DrillGround
from controller.server.precomputed_plans import PrecomputedPlans
from controller.server.rank_launches import TaskProgram
from controller.server.runtime import Runtime, RuntimeDependencies
from controller.store.journal import Journal, read_journal
from controller.store.measured_tables import MeasuredTables
from controller.store.rendezvous_files import RendezvousFiles
from controller.store.replay import ReplayedRun, fingerprint, replay
from controller.store.run_file import save_spec
from nodeagent.protocol.ids import NodeId, TaskId


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """What a controller is made for; its successors are given the same.

    Attributes:
        addresses: The nodes, and how they are reached.
        tasks: The tasks.
        programs: What the ranks of each task run.
        policy: What operators decided in advance.
        tables: Directory of the measured throughput tables; None is ``profiles`` beside the journal.
        failure_domains: What a node shares with others that fail together with it, where that is known.
    """

    addresses: Sequence[NodeAddress]
    tasks: Sequence[TaskSpec]
    programs: Mapping[TaskId, TaskProgram]
    policy: Policy
    tables: Path | None = None
    failure_domains: Mapping[NodeId, str] = field(default_factory=dict)


class Controller:
    """One controller of a run. ``run`` serves it until cancelled.

    Args:
        charter: What it is for.
        journal: Its file; with the events of another controller, that one's work is taken over. What the
            run is of is written beside it.
        clock: The clock of the run; set on where a predecessor's stood.
        note: Takes lines about a node that can't be reached, or a table that can't be kept.

    Raises:
        JournalError: The journal is damaged, was written for other nodes, tasks or policy, or does not
            begin with the start of a controller.
        ValueError: The tasks do not fit the nodes.
        OSError: The journal can't be opened, or nothing be written beside it.
    """

    def __init__(
        self,
        config: ControllerConfig,
        journal: Path,
        clock: SystemClock,
        note: Callable[[str, str], None],
    ) -> None:
        machine = Machine(
            [
                NodeSpec(
                    a.node,
                    f"{a.host}:{a.port}",
                    a.num_workers,
                    config.failure_domains.get(a.node, ""),
                )
                for a in config.addresses
            ],
            config.tasks,
            config.policy,
        )
        replayed = replay(machine, read_journal(journal)) if journal.exists() else ReplayedRun()
        started = _beginning(machine, clock, replayed)
        clock.go_on(started.started_wall_s, replayed.at)
        save_spec(spec_of(machine), journal.parent)
        self._journal = Journal(journal)
        self._runtime = Runtime(machine, self._journal, clock, config.programs, replayed=replayed)
        self.precomputed_plans = PrecomputedPlans(
            machine, self._runtime.has_news, lambda text: note("planner", text)
        )
        self._runtime.post(started)
        self._rendezvous_files = RendezvousFiles(journal.parent / "rendezvous", note)
        if started.term == 1:
            self._rendezvous_files.clear()
        self.fleet = SshFleet(
            config.addresses,
            Identity(started.run_id, started.term),
            _Listener(self._runtime.post, note),
            clock,
            self._rendezvous_files,
            replayed.last_seqs,
        )
        directory = config.tables or journal.parent / "profiles"
        self._tables = MeasuredTables(directory, config.tasks, note)
        for task, generation in replayed.ended.items():
            self.fleet.drop_rendezvous(task, generation)

    @property
    def state(self) -> ClusterState:
        """What the core knows now; not to be changed."""
        return self._runtime.machine.state

    def post(self, body: EventBody) -> None:
        """Tell the core of something."""
        self._runtime.post(body)

    async def run(self, audience: Audience, drills: DrillGround) -> None:
        """Serve until cancelled. Cancelled at any instant it leaves a journal to go on from."""
        try:
            async with asyncio.TaskGroup() as group:
                dependencies = RuntimeDependencies(self.fleet, audience, drills, self._tables)
                group.create_task(self._runtime.run(dependencies))
                group.create_task(self._tables.run())
                group.create_task(self.fleet.run())
                group.create_task(self.precomputed_plans.run(audience.state_changed))
        finally:
            self._rendezvous_files.close()
            self._journal.close()


def _beginning(machine: Machine, clock: SystemClock, replayed: ReplayedRun) -> ControllerStarted:
    before = replayed.started
    return ControllerStarted(
        run_id=before.run_id if before else secrets.token_hex(8),
        term=before.term + 1 if before else 1,
        started_wall_s=before.started_wall_s if before else clock.started_wall_s,
        nodes=tuple(machine.state.nodes),
        tasks=tuple(machine.state.tasks),
        fingerprint=fingerprint(machine),
    )


@dataclass(frozen=True, slots=True)
class _Listener:
    """Where the fleet's events and notes go."""

    post: Callable[[EventBody], None]
    note: Callable[[NodeId, str], None]
