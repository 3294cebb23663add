"""Carries out drills on the local cluster. ``profiles.drills.drill_catalogue`` describes them.

A drill on a rank asks the rank's agent for its fault.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Protocol

from typing_extensions import override

from controller.core.instructions import CarryOutDrill
from controller.drills.drill_arguments import NO_NAMESPACES
from controller.drills.memory_limit import kill_for_memory
from controller.localcluster.cluster_errors import LocalClusterError
from controller.ports import DrillGround
from nodeagent.protocol.ids import NodeId, TaskId
from nodeagent.protocol.rank_faults import RankFault
from nodeagent.protocol.regroup import RankRef
from profiles.drills.drill import Drill
from profiles.drills.drill_catalogue import DRILL_BY_KIND
from profiles.drills.kernel_texts import KERNEL_MESSAGES, LINK_FLAP, OOM_KILL

FREEZE_S: Final = 15.0
PARTITION_S: Final = 15.0
_FROZEN_SSH_S: Final = 8.0
_FLAP_PAUSE_S: Final = 0.5

_EXIT_CODE: Final = 3
_SLOW: Final = RankFault(kind="slow", factor=1.5, count=20)
_SPIKE: Final = RankFault(kind="spike", factor=6.0, count=8)

_FAULT_BY_FAMILY: Final = {
    "kill-rank": RankFault(kind="kill"),
    "freeze-rank": RankFault(kind="freeze"),
    "exit-code": RankFault(kind="exit", count=_EXIT_CODE),
    "segfault": RankFault(kind="segfault"),
    "exception": RankFault(kind="raise"),
    "disk-full": RankFault(kind="write_full"),
    "hang-collective": RankFault(kind="hang"),
    "slow-rank": _SLOW,
    "loss-spike": _SPIKE,
}


class DrilledController(Protocol):
    """The controller under drill: knows processes, stages faults in ranks, can be killed."""

    def inject(self, node: NodeId, task: TaskId, rank: RankRef, fault: RankFault) -> None:
        """Stage a fault in a rank."""
        ...

    def agent_pid(self, node: NodeId) -> int | None:
        """Return the process id of a node's agent; None if there is none."""
        ...

    def rank_pid(self, task: TaskId, global_rank: int) -> int | None:
        """Return the process id of a rank; None if there is none."""
        ...

    def kill_controller(self) -> None:
        """End this controller; the next one takes over."""
        ...


class NodeBreaker(Protocol):
    """Breaks nodes of the local cluster."""

    async def lose_node(self, node: NodeId) -> None:
        """Kill every process of the node at once."""
        ...

    @property
    def names(self) -> list[NodeId]:
        """All nodes, in order."""
        ...

    async def cut_connections(self, node: NodeId) -> None:
        """End the node's SSH sessions."""
        ...

    @property
    def has_namespaces(self) -> bool:
        """Whether each node has its own network namespace."""
        ...

    async def unplug(self, node: NodeId) -> None:
        """Take the link of the node's namespace down."""
        ...

    async def plug_in(self, node: NodeId) -> None:
        """Take the link of the node's namespace up."""
        ...

    def freeze(self, node: NodeId, *, only_server: bool) -> None:
        """Freeze every process of the node, or only its SSH server."""
        ...

    def thaw(self, node: NodeId) -> None:
        """Let every frozen process of the node continue."""
        ...

    def log_kernel(self, node: NodeId, text: str) -> None:
        """Append lines to the node's kernel log."""
        ...


class DrillExecutor(DrillGround):
    """Carries out drills on the local cluster, several at once if needed. ``run`` serves them.

    Args:
        controller: The controller, its agents and ranks.
        nodes: Breaks nodes.
        notify: Takes a line about a drill that can't be carried out, or in another way than it
            should.
        memory_kill: Makes the kernel kill a process for memory; returns whether it did.
    """

    def __init__(
        self,
        controller: DrilledController,
        nodes: NodeBreaker,
        notify: Callable[[str], None],
        memory_kill: Callable[[int], Awaitable[bool]] = kill_for_memory,
    ) -> None:
        self._controller = controller
        self._nodes = nodes
        self._notify = notify
        self._memory_kill = memory_kill
        self._queue: asyncio.Queue[CarryOutDrill] = asyncio.Queue()

    @override
    def carry_out(self, drill: CarryOutDrill) -> None:
        self._queue.put_nowait(drill)

    async def run(self) -> None:
        """Serve drills until cancelled, each in its own task, since some take seconds."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._break(await self._queue.get()))

    async def _break(self, order: CarryOutDrill) -> None:
        drill = DRILL_BY_KIND.get(order.drill)
        if drill is None:
            self._notify(f"drill {order.drill} can't be run here")
            return
        if drill.needs_namespaces and not self._nodes.has_namespaces:
            self._notify(f"drill {order.drill} can't be run here: {NO_NAMESPACES}")
            return
        if drill.target == "controller":
            self._controller.kill_controller()
            return
        assert order.node is not None
        try:
            if drill.target == "rank":
                await self._break_rank(drill, order, order.node)
            else:
                await self._break_node(drill, order.node)
        except (LocalClusterError, OSError) as error:
            self._notify(f"drill {drill.kind} on {order.node} failed: {error}")

    async def _break_rank(self, drill: Drill, order: CarryOutDrill, node: NodeId) -> None:
        assert order.task is not None
        assert order.generation is not None
        assert order.global_rank is not None
        is_memory_kill = drill.family == "memory-kill"
        words = OOM_KILL if is_memory_kill else ""
        if drill.family == "kernel-log" and drill.option:
            words = KERNEL_MESSAGES[drill.option[1]].text
        if words:
            pid = self._controller.rank_pid(order.task, order.global_rank)
            if pid is None:
                self._notify(f"drill {drill.kind}: rank {order.global_rank} has no process")
                return
            name = _name_of(pid)
            self._nodes.log_kernel(node, words.format(pid=pid, name=name))
            if is_memory_kill:
                await self._kill_for_memory(drill, pid)
                return
        rank = RankRef(generation=order.generation, global_rank=order.global_rank)
        self._controller.inject(node, order.task, rank, _fault_of(drill))

    async def _kill_for_memory(self, drill: Drill, pid: int) -> None:
        """Make the kernel kill the process; if it does not, send SIGKILL after the kernel's lines.

        Not through the agent: it would know that the kernel did not kill this process.
        """
        if await self._memory_kill(pid):
            return
        self._notify(
            f"drill {drill.kind}: the kernel did not kill the process in a memory cgroup (this needs"
            " root); it gets SIGKILL instead, after the kernel's log lines"
        )
        if not _kill(pid):
            self._notify(f"drill {drill.kind}: process {pid} is gone")

    async def _break_node(self, drill: Drill, node: NodeId) -> None:
        match drill.family:
            case "kernel-log" if drill.option:
                self._nodes.log_kernel(node, KERNEL_MESSAGES[drill.option[1]].text)
            case "link-flap":
                self._nodes.log_kernel(node, LINK_FLAP)
                await asyncio.sleep(_FLAP_PAUSE_S)
                self._nodes.log_kernel(node, LINK_FLAP)
            case "lose-node":
                await self._nodes.lose_node(node)
            case "lose-two-nodes":
                names = self._nodes.names
                if len(names) < drill.min_nodes:
                    raise LocalClusterError(f"it needs {drill.min_nodes} nodes")
                other = names[(names.index(node) + 1) % len(names)]
                async with asyncio.TaskGroup() as group:
                    for each in (node, other):
                        group.create_task(self._nodes.lose_node(each))
            case "freeze-node":
                await self._freeze(node, FREEZE_S, only_server=False)
            case "partition":
                await self._partition(node)
            case "freeze-ssh":
                await self._freeze(node, _FROZEN_SSH_S, only_server=True)
            case "kill-ssh":
                await self._nodes.cut_connections(node)
            case "kill-agent":
                self._kill_agent(node)
            case family:
                raise LocalClusterError(f"the drill {family} has no implementation")

    async def _freeze(self, node: NodeId, duration_s: float, *, only_server: bool) -> None:
        self._nodes.freeze(node, only_server=only_server)
        try:
            await asyncio.sleep(duration_s)
        finally:
            self._nodes.thaw(node)

    async def _partition(self, node: NodeId) -> None:
        await self._nodes.unplug(node)
        try:
            await asyncio.sleep(PARTITION_S)
        finally:
            await self._nodes.plug_in(node)

    def _kill_agent(self, node: NodeId) -> None:
        pid = self._controller.agent_pid(node)
        if pid is None or not _kill(pid):
            self._notify(f"drill kill-agent: node {node} has no running agent")


def _kill(pid: int) -> bool:
    """Send SIGKILL; return whether the process existed."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def _name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _fault_of(drill: Drill) -> RankFault:
    """Return the fault that ``drill`` stages in a rank. The rank's agent carries it out."""
    match drill.option:
        case ("status", status):
            return RankFault(kind="raise", status=status)
        case ("times", times):
            return RankFault(kind="nan", count=int(times))
        case ("line", name):
            return RankFault(kind="raise", status=KERNEL_MESSAGES[name].raises or "")
        case _:
            return _FAULT_BY_FAMILY[drill.family]
