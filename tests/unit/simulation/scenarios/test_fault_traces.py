"""Traces of faults, shipped and a user's own."""

import json
from pathlib import Path

import pytest

from controller.simulation.scenarios.fault_traces import (
    load_trace,
    parse_faults,
    parse_spot,
    repair_times_s,
)
from profiles.records import RecordError


def fault(node: str, day: float, kind: str) -> dict[str, object]:
    return {"node_id": node, "event_time": day, "event_type": f"fault_{kind}"}


def test_faults_are_read_in_the_order_of_the_file() -> None:
    rows = [
        fault("x", 1.0, "start"),
        fault("x", 1.0, "end"),  # it has no length
        fault("y", 2.0, "start"),
        fault("y", 2.5, "start"),  # two at a time: away until the last is over
        fault("y", 3.0, "end"),
        fault("y", 4.0, "end"),
        fault("x", 5.0, "start"),
    ]
    trace = parse_faults(json.dumps(rows), "trace.json")
    days = [
        (one.node, one.begin_s / 86400, one.end_s and one.end_s / 86400) for one in trace.absences
    ]
    assert days == [("x", 1.0, 1.0), ("y", 2.0, 4.0), ("x", 5.0, None)]


def test_spot_nodes_are_away_until_they_come() -> None:
    trace = parse_spot("0,add,a\n5000,add,b\n9000,remove,a\n12000,add,a\n", "trace.csv")
    assert trace.nodes == ("a", "b")
    assert [(one.node, one.begin_s, one.end_s) for one in trace.absences] == [
        ("b", -1.0, 5.0),
        ("a", 9.0, 12.0),
    ]


def test_spot_nodes_that_are_removed_first_are_there_from_the_beginning() -> None:
    trace = parse_spot("0,add,b\n5000,remove,a\n9000,add,a\n", "trace.csv")
    assert trace.nodes == ("a", "b")
    assert [(one.node, one.begin_s, one.end_s) for one in trace.absences] == [("a", 5.0, 9.0)]


def test_shipped_trace_is_the_published_one() -> None:
    trace = load_trace("stepfun", Path())
    times = sorted(repair_times_s("stepfun"))
    assert len(trace.nodes) == 231
    assert 0.7 * 86400 < times[len(times) // 2] < 1.1 * 86400
    assert trace.end_s / 86400 == pytest.approx(348.98, abs=0.01)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("[]", "one or more"),
        ("{}", "list of faults, one or more, or an object with gap_seconds and data"),
        ('[{"node_id": "x"}]', "trace.json: 0: must have node_id .* event_time"),
        (json.dumps([fault("x", -1.0, "start")]), "event_time in days, 0 or more"),
        (json.dumps([fault("x", 2.0, "start"), fault("x", 1.0, "end")]), "returns before"),
        (json.dumps([fault("x", 1.0, "end")]), "trace.json: 0: 'x' returns, but it is not away"),
        (json.dumps([fault("", 1.0, "start")]), "trace.json: 0: must have node_id"),
        (json.dumps([fault("x", 10**400, "start")]), "trace.json: 0: must have .* below 1e"),
        (
            json.dumps([fault("x", 3, "start"), fault("x", 4, "end"), fault("x", 2, "start")]),
            "trace.json: 2: 'x' leaves before its previous event, at 345600 s",
        ),
    ],
)
def test_bad_faults_are_one_clear_error(text: str, words: str) -> None:
    with pytest.raises(RecordError, match=words):
        parse_faults(text, "trace.json")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("1,add", "trace.csv:1"),
        ("0,add,a\nx,remove,a", "trace.csv:2"),
        ("0,add,", "trace.csv:1: '0,add,' must be milliseconds"),
        ("0,add,a\0b", "trace.csv:1: .* must be milliseconds"),
        ("٣,add,a", "trace.csv:1: .* must be milliseconds"),
        ('0,add,a\n1,add,"b', "trace.csv:2: not valid CSV"),
        ("0,add,a\n5,add,a", "trace.csv:2: 'a' is added while it is present"),
        ("5,add,a\n5,remove,a\n6,remove,a", "trace.csv:3: 'a' is removed while it is away"),
        ("5000,add,a\n0,remove,a", "trace.csv:2: 'a' leaves before its previous event, at 5 s"),
        ("0,add,a\n9,remove,a\n5,add,a", "trace.csv:3: 'a' returns before its previous event"),
    ],
)
def test_bad_spot_lines_name_their_line(text: str, words: str) -> None:
    with pytest.raises(RecordError, match=words):
        parse_spot(text, "trace.csv")


def test_unknown_trace_says_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="stepfun"):
        load_trace("nothing", tmp_path)
    with pytest.raises(RecordError, match="no such file"):
        load_trace("nothing.json", tmp_path)
