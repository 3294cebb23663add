"""Scenarios: shipped files, defaults, and mistakes."""

from collections import Counter
from pathlib import Path

import pytest

from controller.simulation.scenarios.scenario_file import load_scenario, parse_scenario, shipped
from controller.simulation.world.event_sequence import draw_events
from controller.simulation.world.initial_setup import setup_of
from profiles.records import RecordError
from tests.unit.simulation.small import TEXT, small


@pytest.mark.parametrize("name", shipped())
def test_shipped_scenarios_can_be_read_and_every_value_has_an_origin(name: str) -> None:
    scenario = load_scenario(name)
    assert set(scenario.origins.values()) == {"paper", "ours"}
    values = scenario.values.model_dump()
    for key in scenario.origins:
        group, _, name = key.partition(".")
        assert not name or name in values[group]
    for group in ("detection", "steps", "baselines"):
        assert {key for key in scenario.origins if key.startswith(f"{group}.")} == {
            f"{group}.{name}" for name in values[group]
        }
    sequence = draw_events(scenario, 1)
    assert sequence.events
    assert all(0 <= what.node < sequence.num_nodes for what in sequence.events)


def test_what_is_not_given_is_that_of_the_base() -> None:
    base, scenario = load_scenario("trace-a"), small()
    assert scenario.values.hardware == base.values.hardware
    assert scenario.origins["hardware"] == "paper"
    assert scenario.origins["nodes"] == "ours"
    assert scenario.values.detection == base.values.detection


def test_one_value_of_a_group_can_be_changed_alone() -> None:
    text = 'title = "t"\nbase = "trace-a"\n[ours.steps]\npark = { law = "constant", s = 9.0 }\n'
    scenario, base = parse_scenario(text, "t", "t.toml", "."), load_scenario("trace-a")
    assert scenario.values.steps.park.mean_s == 9.0
    assert scenario.values.steps.regroup == base.values.steps.regroup


def test_another_law_changes_nothing_but_what_it_is_of() -> None:
    usual = draw_events(small(('counts" }', 'counts", node_lost = 5, process = 5 }')), 1)
    law = '{ law = "uniform", low_s = 5.0, high_s = 9.0 }'
    text = ('repair = { law = "constant", s = 36000 }', f"repair = {law}")
    other = draw_events(small(('counts" }', 'counts", node_lost = 5, process = 5 }'), text), 1)
    assert [(one.at_s, one.node, one.slot) for one in usual.events] == [
        (one.at_s, one.node, one.slot) for one in other.events
    ]


def test_counts_are_kept_and_the_seed_decides_the_rest() -> None:
    scenario = load_scenario("trace-b")
    kinds = Counter(what.kind for what in draw_events(scenario, 1).events)
    assert kinds == {"node_lost": 13, "hardware": 13, "process": 20, "network": 60}
    assert draw_events(scenario, 1) == draw_events(scenario, 1)
    assert draw_events(scenario, 1) != draw_events(scenario, 2)


def test_rates_come_out_on_average() -> None:
    scenario = small(
        ('faults = { kind = "counts" }', 'faults = { kind = "rates", process = 500.0 }'),
        ("days = 2.0", "days = 400.0"),
    )
    count = len(draw_events(scenario, 1).events)
    assert count == pytest.approx(800, rel=0.15)  # 500 in 1,000 days of each of four nodes


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("nodes = 4", "nodes = -4", "nodes: -4 must be greater than or equal to 0"),
        ("nodes = 4", "nodes = 0", "nodes: must be 1 or more"),
        ("nodes = 4", "nodez = 4", "nodez: unknown key"),
        ("nodes = 4", "nodes = 4\nnodes = 5", "not valid TOML"),
        ("days = 2.0", "days = nan", "days: "),
        ("days = 2.0", "days = inf", "days: "),
        ("weight = 1.5", "weight = -1.5", "tasks.1.weight: -1.5 must be greater than 0"),
        ('name = "b"', 'name = "a"', "tasks.1.name: 'a' names two tasks"),
        ('"gpt3-1.3b", global', '"gpt9", global', "task a: model: no model is called 'gpt9'"),
        ('base = "trace-a"', 'base = "trace-z"', "base: 'trace-z' must be a shipped scenario"),
        ("s = 36000 }", "days = 3 }", "repair.*unknown key"),
        (
            'law = "constant", s = 36000',
            'law = "weird", s = 36000',
            "repair.law: 'weird' must be one of",
        ),
        ('law = "constant", s = 36000', "s = 36000", "repair.law: is missing; known: constant, "),
        ('law = "constant", s = 36000', 'law = "constant", x = 3', "repair.x: .*; known: law, s$"),
        ('{ law = "constant", s = 36000 }', "3", "repair: 3 must have keys of its own"),
        ('name = "b"', 'nam = "b"', "tasks.1.nam: unknown key; known: name, model, weight"),
        ("weight = 1.5", "weight = nan", "tasks.1.weight: nan must be a finite number"),
        ("nodes = 4", f"nodes = 0x1{'0' * 5000}", "nodes: so large a number must be"),
        ("nodes = 4", "nodes = 4\ndetection = 3", r"detection: 3 must be a section, \[ours"),
        ("nodes = 4", "nodes = 4\nhardware = 'v100'", "hardware: 'v100': unknown GPU"),
        ('kind = "counts"', 'kind = "trace", trace = "no.csv"', "faults.trace: .*no.csv: no such"),
        ('kind = "counts"', 'kind = "trace", trace = ""', "faults.trace: '' must end in"),
        ('kind = "counts"', 'kind = "trace", trace = "\\u0000.csv"', "faults.trace: .*NUL"),
        ('title = "small"', "title = 3", "title: must be a text"),
        (
            'law = "constant", s = 36000',
            'law = "uniform", low_s = 9, high_s = 3',
            "is above high_s",
        ),
        (
            'kind = "counts"',
            'kind = "rates", network = 1e12',
            "faults.network: 1e.12 are more than",
        ),
    ],
)
def test_mistakes_are_one_line_with_the_place(old: str, new: str, words: str) -> None:
    with pytest.raises(RecordError, match=words) as caught:
        _begin(old, new)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("small.toml: ")


def test_a_title_may_be_absent_with_a_base_only() -> None:
    assert small(('title = "small"', "")).title == "trace-a with other values"
    with pytest.raises(RecordError, match=r"title: .*only a file with a base may leave it out"):
        parse_scenario("[ours]\nnodes = 4\n", "mine", "mine.toml", ".")


def _begin(old: str, new: str) -> None:
    scenario = small((old, new))
    setup_of(scenario, draw_events(scenario, 1))


def test_a_value_stands_in_one_section_alone() -> None:
    text = TEXT + "\n[paper]\nnodes = 4\n"
    with pytest.raises(RecordError, match="nodes: stands in"):
        parse_scenario(text, "small", "small.toml", ".")


def test_empty_file_and_unknown_name(tmp_path: Path) -> None:
    file = tmp_path / "empty.toml"
    file.write_text("")
    with pytest.raises(RecordError, match=r"empty.toml: is empty"):
        load_scenario(str(file))
    with pytest.raises(RecordError, match="no such scenario; scenarios:"):
        load_scenario("nothing")
    with pytest.raises(RecordError, match="no such scenario; scenarios:"):
        load_scenario("a" * 300)


@pytest.mark.parametrize("group", ["detection", "steps", "baselines"])
@pytest.mark.parametrize("value", ["3", "[1]", "'x'"])
def test_a_group_is_a_section(group: str, value: str) -> None:
    text = f"title = 't'\nbase = 'trace-a'\n[ours]\n{group} = {value}\n"
    with pytest.raises(
        RecordError, match=rf"t.toml: {group}: .* must be a section, \[ours.{group}"
    ):
        parse_scenario(text, "t", "t.toml", ".")


def test_a_trace_without_the_nodes_at_first_says_where_to_begin(tmp_path: Path) -> None:
    file = tmp_path / "late.csv"
    file.write_text("480000,add,a\n900000,remove,a\n")
    scenario = load_scenario(str(file))
    with pytest.raises(RecordError) as caught:
        setup_of(scenario, draw_events(scenario, 1))
    assert str(caught.value).startswith(
        f"{file}: the 6 tasks do not fit on the 0 workers of 0 nodes"
    )
    assert "give a later faults.begin_s" in str(caught.value)


def test_one_task_that_does_not_fit_is_one() -> None:
    text = """
title = "t"
base = "trace-a"
[ours]
nodes = 1
tasks = [{ name = "a", model = "gpt3-7b", min_workers = 1000, global_batch = 64 }]
"""
    scenario = parse_scenario(text, "t", "t.toml", ".")
    with pytest.raises(
        RecordError, match=r"t.toml: the task does not fit on the 8 workers of 1 node;"
    ):
        setup_of(scenario, draw_events(scenario, 1))


def test_a_trace_that_is_over_at_once_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "short.csv"
    file.write_text("0,add,a\n")
    with pytest.raises(RecordError, match=r"short.csv: the trace short.csv ends at 0 s"):
        draw_events(load_scenario(str(file)), 1)
