"""Other ways to handle failures, each a model of its own. None of them moves workers between tasks.

They meet the same faults as Unicron, from the same initial split. What each of them does:

megatron          A collective's timeout tells of a fault, or the loss of a node at once. The task is
                  submitted again and goes on from its newest checkpoint, once all of its nodes are
                  repaired: it stands still until then (arXiv 2401.00134, figure 2).
megatron-spare    The same with a node in reserve, beyond those of the cluster where it has none.
megatron-elastic  The same, but it is submitted with what is left, and again once there is a node for
                  one that is away: repaired, or free.
oobleck           Goes on with other pipeline templates, state in place (SOSP 2023, arXiv 2309.08125).
varuna            Morphs into another configuration from its newest checkpoint (EuroSys 2022).
bamboo            Goes on in place, since each stage computes its successor's too (NSDI 2023).
equal, by-weight, by-size   Unicron's own recovery with a split that is never changed.

Oobleck, Varuna and Bamboo have no tensor parallelism, no distributed optimizer and recompute all
activations; their throughput is estimated for that.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from controller.simulation.scenarios.scenario import Values
from controller.simulation.world.happenings import Happening

Split = Literal["planner", "equal", "by-weight", "by-size"]
Duration = Callable[[Values, random.Random], float]
"""Draws how long something takes, seconds."""


def _by_timeout(what: Happening) -> float:
    """Only the loss of a node shows at once: its connections break, and its launcher is gone."""
    return what.detected_s if what.kind in {"node_lost", "slow"} else what.timeout_s


def _own(what: Happening) -> float:
    return what.detected_s


def _resubmit_s(values: Values, dice: random.Random) -> float:
    return values.others.resubmit.draw(dice) + values.others.setup.draw(dice)


def _reconfigure_s(values: Values, dice: random.Random) -> float:
    return values.others.reconfigure.draw(dice)


def _morph_s(values: Values, dice: random.Random) -> float:
    return values.others.morph.draw(dice)


def _unicron_s(values: Values, dice: random.Random) -> float:
    return values.steps.park.draw(dice) + values.steps.restart.draw(dice)


def _manual_s(values: Values, dice: random.Random) -> float:
    return values.steps.manual.draw(dice)


def _full(_values: Values) -> float:
    return 1.0


def _redundant(values: Values) -> float:
    return 1.0 / (1.0 + values.others.redundant)


@dataclass(frozen=True, slots=True)
class Baseline:
    """How a baseline handles failures.

    Attributes:
        name: Of the policy.
        source: Where it is described.
        shrinks: Whether it goes on with what is left, and takes back what is repaired; a free node of
            the cluster serves as well, up to the size that it had at first.
        num_spares: Nodes in reserve, where the cluster has none.
        is_pipelined: Whether it has pipelines and replicas only.
        split: What it begins with.
        notices_s: From a fault until it knows, seconds.
        recovery_s: From there until it trains, seconds, recomputation left out.
        change_s: What a change by hand takes.
        recomputes: Whether it goes on from its newest checkpoint after any fault.
        finds_state: Whether it goes on from where it was while some rank holds the state, like Unicron.
        speed: Of training, as a part of what its layout allows.
    """

    name: str
    source: str
    recovery_s: Duration
    change_s: Duration
    shrinks: bool = True
    num_spares: int = 0
    is_pipelined: bool = False
    split: Split = "planner"
    notices_s: Callable[[Happening], float] = _own
    recomputes: bool = False
    finds_state: bool = False
    speed: Callable[[Values], float] = _full


def _megatron(name: str, *, shrinks: bool = False, num_spares: int = 0) -> Baseline:
    return Baseline(
        name,
        "arXiv 2401.00134, figure 2",
        _resubmit_s,
        _resubmit_s,
        shrinks=shrinks,
        num_spares=num_spares,
        notices_s=_by_timeout,
        recomputes=True,
    )


def _static(split: Split) -> Baseline:
    source = "arXiv 2401.00134, section 7"
    return Baseline(split, source, _unicron_s, _manual_s, split=split, finds_state=True)


BASELINES: Final[Mapping[str, Baseline]] = {
    each.name: each
    for each in (
        _megatron("megatron"),
        _megatron("megatron-spare", num_spares=1),
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
