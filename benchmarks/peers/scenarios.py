"""When training breaks: never, once, or three times, by a kill or by an exception.

Faults fall half-way between two checkpoints, so that a restart from disk loses what it loses on
average.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from peers.plan import Fault, FaultKind, Workload


@dataclass(frozen=True, slots=True)
class Scenario:
    """Faults of one kind; ``name`` is ``none``, or kind and number."""

    name: str
    faults: Sequence[Fault]


def scenarios(workload: Workload, global_rank: int) -> list[Scenario]:
    """Return all scenarios for faults of ``global_rank``.

    Raises:
        ValueError: The workload has no room for three faults between checkpoints.
    """
    made = [Scenario("none", ())]
    kinds: tuple[FaultKind, FaultKind] = ("kill", "exception")
    for kind in kinds:
        for num_faults in (1, 3):
            iterations = _fault_iterations(workload, num_faults)
            if len(set(iterations)) < num_faults or iterations[-1] >= workload.num_iterations:
                raise ValueError(
                    f"--iterations {workload.num_iterations}: three faults, each half-way between"
                    f" checkpoints every {workload.checkpoint_interval}, need at least"
                    f" {6 * workload.checkpoint_interval}"
                )
            faults = [Fault(i, global_rank, 1, kind) for i in iterations]
            made.append(Scenario(f"{kind}-{num_faults}", faults))
    return made


def _fault_iterations(workload: Workload, num_faults: int) -> list[int]:
    interval = workload.checkpoint_interval
    found = []
    for number in range(num_faults):
        middle = (2 * number + 1) * workload.num_iterations // (2 * num_faults)
        found.append(middle // interval * interval + interval // 2)
    return found
