"""Reads drills from the command line, and lists the drills that a demo can run.

A drill on the command line is ``KIND@ITERATION[:key=value,...]``, for instance
``kill-rank@12:task=gpt-a,rank=1`` or ``exception@8:status=ecc_error``. It is due when its task has
committed that iteration. If the target is not given, the core chooses one.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controller.api.views import DrillView
from nodeagent.protocol.ids import NodeId, TaskId
from profiles.drills.drill import Drill
from profiles.drills.drill_catalogue import DRILL_BY_KIND, DRILLS
from profiles.drills.programs import no_loop

NO_NAMESPACES: Final = (
    "the nodes share one network; with --namespaces each gets its own (root and iproute2)"
)
"""Why a drill that needs network namespaces can't be run."""

_KEYS_BY_TARGET: Final = {
    "rank": ("task", "rank"),
    "node": ("task", "node"),
    "controller": ("task",),
}
_MAX_DIGITS: Final = 9


def available_drills(*, has_namespaces: bool) -> tuple[DrillView, ...]:
    """Return the drills that a demo can run, for consoles."""
    return tuple(
        DrillView(
            kind=drill.kind,
            title=drill.title,
            target=drill.target,
            expectation=drill.expected.sentence,
        )
        for drill in DRILLS
        if has_namespaces or not drill.needs_namespaces
    )


class DrillArgumentError(Exception):
    """A drill on the command line is wrong. The text names the allowed values."""


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
        return DRILL_BY_KIND[self.kind].target


def parse_drill(
    text: str,
    *,
    tasks: Mapping[TaskId, int],
    nodes: Sequence[NodeId],
    num_iterations: int | None,
    command_tasks: Collection[TaskId] = (),
    has_namespaces: bool = False,
) -> ScheduledDrill:
    """Return the drill that ``text`` describes.

    Args:
        text: ``KIND@ITERATION[:key=value,...]``.
        tasks: Number of ranks by task. The first task is the default.
        nodes: Nodes of the cluster.
        num_iterations: The tasks' last iteration. The drill must come before it.
        command_tasks: The command tasks.
        has_namespaces: Whether each node has its own network namespace.

    Raises:
        DrillArgumentError: The text has an unknown name, an impossible drill, or a late iteration.
    """
    head, _, tail = text.partition(":")
    family, at, iteration = head.partition("@")
    members = [drill for drill in DRILLS if drill.family == family]
    if not members:
        families = ", ".join(dict.fromkeys(drill.family for drill in DRILLS))
        raise DrillArgumentError(f"--drill {text}: unknown drill {family!r}; known: {families}")
    if not at or not _is_number(iteration) or int(iteration) < 1:
        raise DrillArgumentError(
            f"--drill {text}: write {family}@ITERATION with an iteration of 1 or more"
        )
    if num_iterations is not None and int(iteration) >= num_iterations:
        raise DrillArgumentError(
            f"--drill {text}: must come before the last iteration, {num_iterations}"
        )
    drill, options = _choose(text, members, tail)
    if drill.needs_namespaces and not has_namespaces:
        raise DrillArgumentError(f"--drill {text}: can't be run here: {NO_NAMESPACES}")
    if len(nodes) < drill.min_nodes:
        raise DrillArgumentError(
            f"--drill {text}: needs {drill.min_nodes} nodes; here are {len(nodes)}"
        )
    task = TaskId(options.get("task", next(iter(tasks))))
    if task not in tasks:
        raise DrillArgumentError(f"--drill {text}: no task {task!r}; there are {', '.join(tasks)}")
    rank, node = options.get("rank"), options.get("node")
    if rank is not None and (not _is_number(rank) or int(rank) >= tasks[task]):
        raise DrillArgumentError(f"--drill {text}: rank must be 0 to {tasks[task] - 1} for {task}")
    if node is not None and node not in nodes:
        raise DrillArgumentError(f"--drill {text}: no node {node!r}; there are {', '.join(nodes)}")
    if drill.target == "rank" and drill.needs == "loop" and task in command_tasks:
        raise DrillArgumentError(f"--drill {text}: {no_loop(drill, task)}")
    return ScheduledDrill(
        kind=drill.kind,
        iteration=int(iteration),
        task=task,
        global_rank=int(rank) if rank is not None else None,
        node=NodeId(node) if node is not None else None,
    )


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= _MAX_DIGITS


def _choose(text: str, members: Sequence[Drill], tail: str) -> tuple[Drill, dict[str, str]]:
    """Return the family's member that the options select, and the remaining options."""
    own_keys = tuple(dict.fromkeys(drill.option[0] for drill in members if drill.option))
    allowed = dict.fromkeys(key for drill in members for key in _keys_of(drill))
    options = _parse_options(text, tail, (*own_keys, *allowed))
    chosen = next(((key, options.pop(key)) for key in own_keys if key in options), None)
    for drill in members:
        if drill.option == chosen:
            for key in options:
                _check_key(text, f"{key}={options[key]}", key, (*own_keys, *_keys_of(drill)))
            return drill, options
    values = ", ".join(drill.option[1] for drill in members if drill.option)
    given = f"no {chosen[0]} {chosen[1]!r}" if chosen else f"needs {own_keys[0]}=..."
    raise DrillArgumentError(f"--drill {text}: {given}; there are {values}")


def _keys_of(drill: Drill) -> tuple[str, ...]:
    return _KEYS_BY_TARGET[drill.target]


def _parse_options(text: str, tail: str, allowed: Sequence[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in filter(None, tail.split(",")):
        key, equals, value = part.partition("=")
        _check_key(text, part, key if equals and value else "", allowed)
        if key in options:
            raise DrillArgumentError(f"--drill {text}: {key} is given twice")
        options[key] = value
    return options


def _check_key(text: str, part: str, key: str, allowed: Sequence[str]) -> None:
    if key not in allowed:
        known = ", ".join(f"{name}=..." for name in allowed)
        raise DrillArgumentError(f"--drill {text}: {part!r} is not one of {known}")
