"""Drills: what can be broken on purpose, when, and how it is done on the local cluster.

A drill on the command line reads ``KIND@ITERATION[:key=value,...]``, for instance
``kill-rank@12:task=gpt-a,rank=1``. It is due when its task has committed that iteration. The core
fills in whatever target is not named.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from controller.api.views import DrillView
from controller.core.instructions import CarryOutDrill
from nodeagent.protocol.ids import Generation, NodeId, TaskId

DRILLS: Final[Sequence[DrillView]] = (
    DrillView(
        kind="kill-rank",
        title="Kill a rank",
        target="rank",
        expectation="SEV2 exited_abnormally: a new process takes the rank, its peers go on",
    ),
    DrillView(
        kind="exception",
        title="Raise an exception in a rank",
        target="rank",
        expectation="SEV2 other_software_error: a new process takes the rank, its peers go on",
    ),
    DrillView(
        kind="lose-node",
        title="Lose a node",
        target="node",
        expectation="SEV1 lost_connection: the node is isolated and a plan divides what is left",
    ),
    DrillView(
        kind="kill-agent",
        title="Kill a node's agent",
        target="node",
        expectation="training goes on; a new agent adopts the ranks",
    ),
    DrillView(
        kind="kill-ssh",
        title="Cut a node's SSH connection",
        target="node",
        expectation="training goes on; the node is unreachable for a moment, never lost",
    ),
)


class DrillError(Exception):
    """A drill on the command line can't be understood; the text says what is allowed."""


@dataclass(frozen=True, slots=True)
class ScheduledDrill:
    """A drill that is due once ``task`` has committed ``iteration``."""

    kind: str
    iteration: int
    task: TaskId
    global_rank: int | None = None
    node: NodeId | None = None

    @property
    def target(self) -> str:
        """``rank`` or ``node``."""
        return _DRILL_BY_KIND[self.kind].target


_DRILL_BY_KIND: Final = {drill.kind: drill for drill in DRILLS}
_KEYS_BY_TARGET: Final = {"rank": ("task", "rank"), "node": ("task", "node")}
_MAX_DIGITS: Final = 9


def parse_drill(
    text: str, *, tasks: Mapping[TaskId, int], nodes: Sequence[NodeId], num_iterations: int | None
) -> ScheduledDrill:
    """Read a drill from the command line.

    Args:
        text: ``KIND@ITERATION[:key=value,...]``.
        tasks: Number of ranks by task; the first is the default.
        nodes: Nodes of the cluster.
        num_iterations: Iterations after which tasks end; the drill must come before.

    Raises:
        DrillError: The text names something that does not exist, or too late.
    """
    head, _, tail = text.partition(":")
    kind, at, iteration = head.partition("@")
    if kind not in _DRILL_BY_KIND:
        raise DrillError(
            f"--drill {text}: unknown drill {kind!r}; known: {', '.join(_DRILL_BY_KIND)}"
        )
    if not at or not _is_number(iteration) or int(iteration) < 1:
        raise DrillError(f"--drill {text}: write {kind}@ITERATION with an iteration of 1 or more")
    if num_iterations is not None and int(iteration) >= num_iterations:
        raise DrillError(f"--drill {text}: must come before the last iteration, {num_iterations}")
    options = _parse_options(text, tail, _KEYS_BY_TARGET[_DRILL_BY_KIND[kind].target])
    task = TaskId(options.get("task", next(iter(tasks))))
    if task not in tasks:
        raise DrillError(f"--drill {text}: no task {task!r}; there are {', '.join(tasks)}")
    rank, node = options.get("rank"), options.get("node")
    if rank is not None and (not _is_number(rank) or int(rank) >= tasks[task]):
        raise DrillError(f"--drill {text}: rank must be 0 to {tasks[task] - 1} for {task}")
    if node is not None and node not in nodes:
        raise DrillError(f"--drill {text}: no node {node!r}; there are {', '.join(nodes)}")
    return ScheduledDrill(
        kind=kind,
        iteration=int(iteration),
        task=task,
        global_rank=int(rank) if rank is not None else None,
        node=NodeId(node) if node is not None else None,
    )


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= _MAX_DIGITS


def _parse_options(text: str, tail: str, allowed: Sequence[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in filter(None, tail.split(",")):
        key, equals, value = part.partition("=")
        if key not in allowed or not equals or not value:
            raise DrillError(
                f"--drill {text}: {part!r} is not one of {', '.join(f'{k}=...' for k in allowed)}"
            )
        if key in options:
            raise DrillError(f"--drill {text}: {key} is given twice")
        options[key] = value
    return options


class RankInjector(Protocol):
    """Breaks ranks through their agents."""

    def inject(
        self, node: NodeId, task: TaskId, generation: Generation, global_rank: int, *, kill: bool
    ) -> None:
        """Kill a rank, or have it raise."""
        ...


class NodeBreaker(Protocol):
    """Breaks nodes of the local cluster."""

    async def lose_node(self, node: NodeId) -> None:
        """End every process of the node at once."""
        ...

    async def cut_connections(self, node: NodeId) -> None:
        """End the node's SSH sessions."""
        ...


class LocalDrillGround:
    """Carries drills out on the local cluster, one after the other. ``run`` serves them."""

    def __init__(
        self,
        ranks: RankInjector,
        nodes: NodeBreaker,
        agent_pid: Callable[[NodeId], int | None],
        say: Callable[[str], None],
    ) -> None:
        self._ranks = ranks
        self._nodes = nodes
        self._agent_pid = agent_pid
        self._say = say
        self._queue: asyncio.Queue[CarryOutDrill] = asyncio.Queue()

    def carry_out(self, drill: CarryOutDrill) -> None:
        """Break the named thing, very soon."""
        self._queue.put_nowait(drill)

    async def run(self) -> None:
        """Serve drills until cancelled."""
        while True:
            await self._break(await self._queue.get())

    async def _break(self, drill: CarryOutDrill) -> None:
        match drill.drill:
            case "kill-rank" | "exception":
                assert drill.task is not None
                assert drill.generation is not None
                assert drill.global_rank is not None
                self._ranks.inject(
                    drill.node,
                    drill.task,
                    drill.generation,
                    drill.global_rank,
                    kill=drill.drill == "kill-rank",
                )
            case "lose-node":
                await self._nodes.lose_node(drill.node)
            case "kill-ssh":
                await self._nodes.cut_connections(drill.node)
            case "kill-agent":
                self._kill_agent(drill.node)
            case unknown:
                self._say(f"drill {unknown} can't be run here")

    def _kill_agent(self, node: NodeId) -> None:
        pid = self._agent_pid(node)
        try:
            descriptor = os.pidfd_open(pid) if pid else -1
        except ProcessLookupError:
            descriptor = -1
        if descriptor < 0:
            self._say(f"drill kill-agent: {node} has no living agent")
            return
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)
