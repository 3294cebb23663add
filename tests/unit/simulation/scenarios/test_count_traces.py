"""Counts of nodes per tick as a trace, the laws of durations, and nodes that no trace names."""

import json
import random
from pathlib import Path

import pytest

from controller.simulation.scenarios.duration_laws import Gamma, Weibull
from controller.simulation.scenarios.fault_traces import Trace, parse_faults, parse_spot
from controller.simulation.scenarios.scenario_file import load_scenario, parse_scenario
from controller.simulation.world.event_sequence import draw_events
from profiles.records import RecordError
from tests.unit.simulation.small import small

COUNTS = [3, 4, 2, 2, 0, 4]


def _present(trace: Trace, at_s: float) -> int:
    away = sum(
        each.begin_s <= at_s and (each.end_s is None or at_s < each.end_s)
        for each in trace.absences
    )
    return len(trace.nodes) - away


@pytest.mark.parametrize(
    "trace",
    [
        parse_faults(json.dumps({"metadata": {"gap_seconds": 60}, "data": COUNTS}), "x.json"),
        parse_spot("".join(f"{n * 60_000},{c}\n" for n, c in enumerate(COUNTS)), "x.csv"),
        parse_spot(
            "minutes,nodes\n" + "".join(f"{n}.0,{c}\n" for n, c in enumerate(COUNTS)), "x.csv"
        ),
        parse_spot(
            "timestamp,available\n"
            + "".join(f"2026-11-25T08:{n:02d}:00Z,{c}\n" for n, c in enumerate(COUNTS)),
            "x.csv",
        ),
        parse_spot(
            "".join(f"2026-11-25 08:{n:02d}:00,{c}\n" for n, c in enumerate(COUNTS)), "x.csv"
        ),
    ],
)
def test_nodes_of_a_count_trace_are_present_as_counted(trace: Trace) -> None:
    assert len(trace.nodes) == 4
    assert [_present(trace, 60.0 * n) for n in range(len(COUNTS))] == COUNTS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"data": [1]}', "gap_seconds"),
        ('{"gap_seconds": 60, "data": [1, -1]}', "data.1"),
        ('{"gap_seconds": 60, "data": [0, 0]}', "all counts are 0"),
        ('{"gap_seconds": 60, "data": []}', "data: must be a list"),
    ],
)
def test_bad_counts_are_refused_with_their_place(text: str, words: str) -> None:
    with pytest.raises(RecordError, match=words):
        parse_faults(text, "x.json")


def test_a_heading_without_counts_is_refused() -> None:
    with pytest.raises(RecordError, match=r"x\.csv:1: has a heading only"):
        parse_spot("time,count\n", "x.csv")


@pytest.mark.parametrize(
    "text",
    [
        "0,3\n0,4\n",
        "0,3\n60,x\n",
        "0,3\n60,add,n\n",
        "time,count\n8:00,3\n",
        "2026-11-25,3\n2026-11-24,4\n",
    ],
)
def test_bad_lines_of_counts_are_refused(text: str) -> None:
    with pytest.raises(RecordError, match=r"x\.csv:2"):
        parse_spot(text, "x.csv")


@pytest.mark.parametrize(
    "law",
    [
        Weibull(law="weibull", scale_s=600.0, shape=1.7),
        Gamma(law="gamma", scale_s=300.0, shape=0.8),
    ],
)
def test_drawn_durations_have_the_mean_of_the_law(law: Weibull | Gamma) -> None:
    rng = random.Random(1)
    drawn = [law.draw(rng) for _ in range(20_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(law.mean_s, rel=0.03)


def test_healthy_nodes_are_added_to_those_of_the_trace(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("0,remove,a\n60000,add,a\n120000,remove,b\n")
    text = (
        'base = "trace-a"\n[ours]\nnodes = 0\nhealthy_nodes = 19\n'
        'faults = { kind = "trace", trace = "t.csv" }\n'
    )
    scenario = parse_scenario(text, "mine", "mine.toml", str(tmp_path))
    assert scenario.title == "trace-a with other values"
    sequence = draw_events(scenario, 1)
    assert sequence.num_nodes == 21
    assert {event.node for event in sequence.events} <= {0, 1}


def test_healthy_nodes_need_a_trace() -> None:
    with pytest.raises(RecordError, match="healthy_nodes: is for traces"):
        small(("nodes = 4", "nodes = 4\nhealthy_nodes = 1"))


def test_days_beyond_the_scenario_are_counted_as_cut(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('base = "stepfun"\n[ours]\ndays = 100.0\n[paper]\n')
    sequence = draw_events(load_scenario(str(file)), 1)
    assert sequence.duration_s == pytest.approx(100 * 86400)
    assert 200 < sequence.cut_s / 86400 < 260
