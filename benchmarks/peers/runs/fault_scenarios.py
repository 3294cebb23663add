"""When training breaks, and how: never, once, or three times.

Faults fall half-way between two checkpoints, so that a restart from disk loses what it loses on
average. What stays away for good, a hung rank or a lost node, breaks once: some alternatives
never get it back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from peers.runs.workload_plan import NODE_KINDS, SILENT_KINDS, FaultKind, PlannedFault, Workload

_NUMS_BY_KIND: Final[dict[FaultKind, Sequence[int]]] = {
    "kill": (1, 3),
    "exception": (1, 3),
    "hang": (1,),
    "lost-node": (1,),
    "killed-node": (1,),
}
_LIMIT_S: Final = 60.0
_SILENT_LIMIT_S: Final = 120.0
"""In-process restart has a rank that makes no progress killed after 90 s by default."""

SCENARIOS: Final = (
    "none",
    *(f"{kind}-{number}" for kind, numbers in _NUMS_BY_KIND.items() for number in numbers),
)
"""All names."""


@dataclass(frozen=True, slots=True)
class FaultScenario:
    """Faults of one kind.

    Attributes:
        name: ``none``, or kind and number.
        recovery_limit_s: How long it may take to recover; other limits are the same for all.
    """

    name: str
    faults: Sequence[PlannedFault]
    recovery_limit_s: float = _LIMIT_S


def scenarios(workload: Workload, global_rank: int) -> list[FaultScenario]:
    """Return all scenarios: faults of ``global_rank``, and of the last node.

    Raises:
        ValueError: The workload has no room for three faults between checkpoints, or can't go on
            with the ranks of one node.
    """
    if workload.num_micro_batches % workload.num_ranks_per_node:
        raise ValueError(
            f"--micro-batches {workload.num_micro_batches}: must be a multiple of the"
            f" {workload.num_ranks_per_node} ranks that a lost node leaves"
        )
    made = [FaultScenario("none", ())]
    for kind, numbers in _NUMS_BY_KIND.items():
        rank = workload.num_ranks_per_node if kind in NODE_KINDS else global_rank
        limit_s = _SILENT_LIMIT_S if kind in SILENT_KINDS | NODE_KINDS else _LIMIT_S
        for num_faults in numbers:
            faults = [
                PlannedFault(i, rank, 1, kind) for i in _fault_iterations(workload, num_faults)
            ]
            made.append(FaultScenario(f"{kind}-{num_faults}", faults, limit_s))
    return made


def _fault_iterations(workload: Workload, num_faults: int) -> list[int]:
    interval = workload.checkpoint_interval
    found = []
    for number in range(num_faults):
        middle = (2 * number + 1) * workload.num_iterations // (2 * num_faults)
        found.append(middle // interval * interval + interval // 2)
    if len(set(found)) < num_faults or found[-1] >= workload.num_iterations:
        raise ValueError(
            f"--iterations {workload.num_iterations}: three faults, each half-way between"
            f" checkpoints every {interval}, need at least {6 * interval}"
        )
    return found
