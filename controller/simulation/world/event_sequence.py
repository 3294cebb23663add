"""Draws the faults and other events of one run from a seed. They are the same for all policies."""

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from controller.simulation.scenarios.duration_laws import seeded_random
from controller.simulation.scenarios.fault_traces import Trace, load_trace
from controller.simulation.scenarios.scenario import (
    EVENT_KINDS,
    FaultCounts,
    FaultRates,
    Scenario,
    TracedFaults,
)
from profiles.records import RecordError

_DAY_S: Final = 86400.0
_MAX_FAULTS: Final = 10**6


@dataclass(frozen=True, slots=True)
class SimulatedEvent:
    """One fault, or one change by hand.

    Attributes:
        at_s: Its time, in seconds since the start.
        kind: One of ``EVENT_KINDS``.
        node: The node's number.
        slot: The worker on the node.
        away_s: How long the node is away or in repair; None if it does not return. Used only for
            the kinds that take the node.
        detected_s: Seconds from the fault to its detection by the controller.
        timeout_s: Seconds to its detection by a collective's timeout.
        since_checkpoint: Age of the newest checkpoint on disk, as a fraction of the interval.
    """

    at_s: float
    kind: str
    node: int
    slot: int
    away_s: float | None
    detected_s: float
    timeout_s: float
    since_checkpoint: float


@dataclass(frozen=True, slots=True)
class EventSequence:
    """All events of a run.

    Attributes:
        num_nodes: Nodes of the cluster, with those that are away at the start.
        absent: The numbers of nodes that are away at the start.
        events: All events, in the order of time.
        returns: When absent nodes arrive: (seconds, node).
        duration_s: The length of the run.
        cut_s: How much longer the trace is.
    """

    num_nodes: int
    absent: frozenset[int]
    events: tuple[SimulatedEvent, ...]
    returns: tuple[tuple[float, int], ...]
    duration_s: float
    cut_s: float = 0.0


def draw_events(scenario: Scenario, seed: int) -> EventSequence:
    """Return the events of a scenario for a seed.

    Raises:
        RecordError: The trace can't be read, or has no node.
    """
    values = scenario.values
    faults = values.faults
    if isinstance(faults, TracedFaults):
        trace = _trace_of(scenario, faults)
        return _traced(scenario, faults, trace, seed)
    found = [
        _draw_event(scenario, kind, at_s, node, f"{seed}:{kind}:{number}")
        for kind in EVENT_KINDS
        for number, (at_s, node) in enumerate(
            _moments(scenario, faults, kind, seeded_random("moments", seed, kind))
        )
    ]
    return EventSequence(
        num_nodes=values.nodes + values.standby_nodes,
        absent=frozenset(),
        events=tuple(sorted(found, key=_order)),
        returns=(),
        duration_s=values.days * _DAY_S,
    )


def _trace_of(scenario: Scenario, faults: TracedFaults) -> Trace:
    try:
        return load_trace(faults.trace, Path(scenario.directory))
    except RecordError as error:
        raise RecordError(f"{scenario.place}: faults.trace: {error}") from error


def _order(event: SimulatedEvent) -> tuple[float, int, str]:
    return event.at_s, event.node, event.kind


def _moments(
    scenario: Scenario, faults: FaultCounts | FaultRates, kind: str, rng: random.Random
) -> list[tuple[float, int]]:
    """Return the times and nodes of all events of one kind."""
    values, amount = scenario.values, getattr(faults, kind)
    num_nodes, duration_s = values.nodes + values.standby_nodes, values.days * _DAY_S
    if isinstance(faults, FaultCounts):
        return [(rng.uniform(0.0, duration_s), rng.randrange(num_nodes)) for _ in range(amount)]
    rate_s = amount * num_nodes / 1000.0 / _DAY_S
    if rate_s * duration_s > _MAX_FAULTS:
        raise RecordError(
            f"{scenario.place}: faults.{kind}: {amount:g} are more than {_MAX_FAULTS} over the time"
        )
    moments, at_s = list[tuple[float, int]](), 0.0
    while rate_s > 0 and (at_s := at_s + rng.expovariate(rate_s)) < duration_s:
        moments.append((at_s, rng.randrange(num_nodes)))
    return moments


def _draw_event(scenario: Scenario, kind: str, at_s: float, node: int, name: str) -> SimulatedEvent:
    """Draw the other values, each from its own seed, so that a law changes one value only."""
    values = scenario.values
    detected_s = 0.0
    if kind != "manual":
        detected_s = getattr(values.detection, kind).draw(seeded_random("detection", name))
    rng = seeded_random("place", name)
    return SimulatedEvent(
        at_s=at_s,
        kind=kind,
        node=node,
        slot=int(rng.random() * values.workers_per_node),
        away_s=values.repair.draw(seeded_random("repair", name)),
        detected_s=detected_s,
        timeout_s=values.baselines.timeout.draw(seeded_random("timeout", name)),
        since_checkpoint=rng.random(),
    )


def _traced(scenario: Scenario, faults: TracedFaults, trace: Trace, seed: int) -> EventSequence:
    values = scenario.values
    num_nodes = (values.nodes or len(trace.nodes)) + values.healthy_nodes + values.standby_nodes
    if num_nodes < len(trace.nodes):
        raise RecordError(
            f"{scenario.place}: nodes, standby_nodes: {num_nodes} are fewer than the {len(trace.nodes)}"
            " of the trace"
        )
    numbers = {node: number for number, node in enumerate(trace.nodes)}
    begin_s = faults.begin_s
    duration_s = min(values.days * _DAY_S, trace.end_s - begin_s)
    if duration_s <= 0:
        raise RecordError(f"{scenario.place}: {_nothing_left(faults, trace)}")
    events: list[SimulatedEvent] = []
    returns: list[tuple[float, int]] = []
    absent: set[int] = set()
    for number, absence in enumerate(trace.absences):
        node, end_s = numbers[absence.node], absence.end_s
        if end_s is not None and end_s <= begin_s and absence.begin_s < begin_s:
            continue
        if absence.begin_s < begin_s:
            absent.add(node)
            if end_s is not None:
                returns.append((end_s - begin_s, node))
            continue
        if absence.begin_s >= begin_s + duration_s:
            continue
        name = f"{seed}:trace:{number}"
        is_hardware = seeded_random("kind", name).random() < faults.hardware_share
        kind = "hardware" if is_hardware else "node_lost"
        drawn = _draw_event(scenario, kind, absence.begin_s - begin_s, node, name)
        away_s = None if end_s is None else end_s - absence.begin_s
        events.append(replace(drawn, away_s=away_s))
    return EventSequence(
        num_nodes,
        frozenset(absent),
        tuple(sorted(events, key=_order)),
        tuple(sorted(returns)),
        duration_s,
        trace.end_s - begin_s - duration_s,
    )


def _nothing_left(faults: TracedFaults, trace: Trace) -> str:
    if faults.begin_s:
        return f"faults.begin_s: {faults.begin_s:g} must be below {trace.end_s:g}, the trace's end"
    return f"the trace {faults.trace} ends at 0 s; give a longer trace"
