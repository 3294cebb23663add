"""Other ways to handle failures. Each is a model of its own; none moves workers between tasks.

All baselines get the same faults as Unicron and begin with the same split. What each one does:

megatron           A collective's timeout reveals a fault; a lost node shows at once. The task
                   stands still until all of its nodes are repaired. Then it is submitted again and
                   restarts from its newest checkpoint (arXiv 2401.00134, figure 2).
megatron-standby   The same with a standby node: the cluster's own, or one beyond the cluster.
megatron-elastic   The same, but the task is submitted with the nodes that are left. It is submitted
                   again when a node can replace a missing one: a repaired node or a free node.
oobleck            Continues with other pipeline templates, state in place (SOSP 2023,
                   arXiv 2309.08125).
varuna             Morphs into another configuration from its newest checkpoint (EuroSys 2022).
bamboo             Continues in place: each stage also computes its successor's work (NSDI 2023).
equal, by-weight, by-size   Unicron's own recovery with a split that never changes.

Oobleck, Varuna and Bamboo have no tensor parallelism and no distributed optimizer, and recompute
all activations. Their throughput is estimated under these conditions.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from controller.simulation.scenarios.scenario import Values
from controller.simulation.world.event_sequence import SimulatedEvent

Split = Literal["planner", "equal", "by-weight", "by-size"]
Duration = Callable[[Values, random.Random], float]
"""Draws a duration, in seconds."""


def _by_timeout(event: SimulatedEvent) -> float:
    """A lost node shows at once, since its connections break; other faults show by the timeout."""
    return event.detected_s if event.kind in {"node_lost", "slow"} else event.timeout_s


def _own(event: SimulatedEvent) -> float:
    return event.detected_s


def _resubmit_s(values: Values, rng: random.Random) -> float:
    return values.baselines.resubmit.draw(rng) + values.baselines.setup.draw(rng)


def _reconfigure_s(values: Values, rng: random.Random) -> float:
    return values.baselines.reconfigure.draw(rng)


def _morph_s(values: Values, rng: random.Random) -> float:
    return values.baselines.morph.draw(rng)


def _unicron_s(values: Values, rng: random.Random) -> float:
    return values.steps.park.draw(rng) + values.steps.restart.draw(rng)


def _manual_s(values: Values, rng: random.Random) -> float:
    return values.steps.manual.draw(rng)


def _full(_values: Values) -> float:
    return 1.0


def _redundant(values: Values) -> float:
    return 1.0 / (1.0 + values.baselines.redundant)


@dataclass(frozen=True, slots=True)
class Baseline:
    """How a baseline handles failures.

    Attributes:
        name: The policy's name.
        source: The publication that describes it.
        recovery_s: Draws the seconds from detection to training, without recomputation.
        change_s: Draws the seconds that a change by hand takes.
        shrinks: Whether the task continues on the nodes that are left. It takes repaired or free
            nodes of the cluster until it has its first size again.
        num_standby_nodes: Standby nodes beyond the cluster, if the cluster has none of its own.
        is_pipelined: Whether it has pipelines and replicas only.
        split: The split that it begins with.
        notices_s: Seconds from an event to its detection.
        recomputes: Whether it restarts from its newest checkpoint after every fault.
        finds_state: Whether it keeps its progress while some rank holds the state, like Unicron.
        speed: Training speed, as a fraction of the speed that its layout allows.
        seed_name: The name that seeds its random draws; empty for ``name``.
    """

    name: str
    source: str
    recovery_s: Duration
    change_s: Duration
    shrinks: bool = True
    num_standby_nodes: int = 0
    is_pipelined: bool = False
    split: Split = "planner"
    notices_s: Callable[[SimulatedEvent], float] = _own
    recomputes: bool = False
    finds_state: bool = False
    speed: Callable[[Values], float] = _full
    seed_name: str = ""


def _megatron(
    name: str, *, shrinks: bool = False, num_standby_nodes: int = 0, seed_name: str = ""
) -> Baseline:
    return Baseline(
        name,
        "arXiv 2401.00134, figure 2",
        _resubmit_s,
        _resubmit_s,
        shrinks=shrinks,
        num_standby_nodes=num_standby_nodes,
        notices_s=_by_timeout,
        recomputes=True,
        seed_name=seed_name,
    )


def _static(split: Split) -> Baseline:
    source = "arXiv 2401.00134, section 7"
    return Baseline(split, source, _unicron_s, _manual_s, split=split, finds_state=True)


BASELINES: Final[Mapping[str, Baseline]] = {
    each.name: each
    for each in (
        _megatron("megatron"),
        # The seed is the policy's earlier name: the figures in docs/evaluation.md keep their draws.
        _megatron("megatron-standby", num_standby_nodes=1, seed_name="megatron-spare"),
        _megatron("megatron-elastic", shrinks=True),
        Baseline("oobleck", "arXiv 2309.08125", _reconfigure_s, _reconfigure_s, is_pipelined=True),
        Baseline("varuna", "EuroSys 2022", _morph_s, _morph_s, is_pipelined=True, recomputes=True),
        Baseline(
            "bamboo",
            "NSDI 2023",
            _reconfigure_s,
            _reconfigure_s,
            is_pipelined=True,
            speed=_redundant,
        ),
        _static("equal"),
        _static("by-weight"),
        _static("by-size"),
    )
}
