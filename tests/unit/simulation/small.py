"""A small scenario for tests: four nodes of two workers, two tasks, whatever breaks."""

from dataclasses import replace
from pathlib import Path

from controller.simulation.scenarios.scenario import Scenario
from controller.simulation.scenarios.scenario_file import parse_scenario
from controller.simulation.world.event_sequence import EventSequence, SimulatedEvent
from controller.simulation.world.initial_setup import InitialSetup
from profiles.layout import Layout
from profiles.throughput import ThroughputPoint, ThroughputTable

TEXT = """
title = "small"
base = "trace-a"

[ours]
nodes = 4
workers_per_node = 2
days = 2.0
repair = { law = "constant", s = 36000 }
worker_mtbf_hours = 500.0
faults = { kind = "counts" }
tasks = [
  { name = "a", model = "gpt3-1.3b", global_batch = 64 },
  { name = "b", model = "gpt3-1.3b", weight = 1.5, global_batch = 64 },
]

[ours.steps]
park = { law = "constant", s = 0.5 }
regroup = { law = "constant", s = 10 }
restart = { law = "constant", s = 30 }
memory = { law = "constant", s = 5 }
start = { law = "constant", s = 100 }
disk = { law = "constant", s = 60 }
prepare = { law = "constant", s = 50 }
manual = { law = "constant", s = 40 }
operator = { law = "constant", s = 900 }

[ours.baselines]
timeout = { law = "constant", s = 1800 }
resubmit = { law = "constant", s = 500 }
setup = { law = "constant", s = 1000 }
reconfigure = { law = "constant", s = 60 }
morph = { law = "constant", s = 300 }
redundant = 0.25
"""


def small(*changes: tuple[str, str]) -> Scenario:
    """Return the scenario, with parts of its text replaced."""
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse_scenario(text, "small", "small.toml", str(Path.cwd()))


def sequence(*events: SimulatedEvent, duration_s: float = 100_000.0) -> EventSequence:
    """Return a sequence of the small cluster's four nodes."""
    return EventSequence(4, frozenset(), events, (), duration_s)


def event(
    kind: str, at_s: float, node: int, *, slot: int = 0, away_s: float | None = 36_000.0
) -> SimulatedEvent:
    """Return something that is noticed after five seconds, half an interval after a checkpoint."""
    return SimulatedEvent(at_s, kind, node, slot, away_s, 5.0, 1800.0, 0.5)


def with_one_replica(setup: InitialSetup) -> InitialSetup:
    """Return a setup with tasks of one replica at every size, one stage per worker."""
    points = [
        ThroughputPoint(workers=x, flops_per_s=1e14 * x, layout=Layout(tp=1, pp=x, dp=1))
        for x in (2, 4, 6, 8)
    ]
    table = ThroughputTable(points=tuple(points))
    return replace(setup, profiles=tuple(replace(each, table=table) for each in setup.profiles))
