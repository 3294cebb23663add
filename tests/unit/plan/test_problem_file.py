"""Problem files: what they mean, and every mistake as one line that names file, place and mend."""

import json
from pathlib import Path
from typing import Any

import pytest

from controller.plan.problem_file import load_problem
from profiles.records import RecordError

TASK: dict[str, Any] = {
    "name": "a",
    "weight": 2.0,
    "workers": 16,
    "faulted": True,
    "min_workers": 8,
    "transition_s": 45,
    "throughput": {"16": 2e15, "8": 1.1e15},
}
PROBLEM: dict[str, Any] = {
    "workers": 100, "worker_mtbf_hours": 2000, "running_s": None, "tasks": [TASK],
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "problem.json"


def mistake(path: Path, text: str) -> str:
    path.write_text(text)
    with pytest.raises(RecordError) as caught:
        load_problem(path)
    [line] = str(caught.value).splitlines()
    assert line.startswith(f"{path}: ")
    return line.removeprefix(f"{path}: ")


def test_a_problem_is_read_as_it_is_meant(path: Path) -> None:
    path.write_text(json.dumps(PROBLEM))
    problem = load_problem(path)
    assert problem.horizon_s == 2000 * 3600 / 100
    [task] = problem.plan_tasks
    assert (task.name, task.weight, task.workers, task.is_faulted) == ("a", 2.0, 16, True)
    assert not task.keeps_running
    assert (task.min_workers, task.transition_s, task.remaining_s) == (8, 45.0, None)
    assert task.rates.sizes.tolist() == [8, 16]
    assert task.rates.at(16) == 2e15


def test_a_given_horizon_stands_for_the_mtbf(path: Path) -> None:
    path.write_text(json.dumps(PROBLEM | {"running_s": 60.5, "worker_mtbf_hours": None}))
    assert load_problem(path).horizon_s == 60.5


def test_a_task_that_keeps_running_is_read_and_nothing_else_than_yes_or_no(path: Path) -> None:
    path.write_text(json.dumps(PROBLEM | {"tasks": [TASK | {"keeps_running": True}]}))
    [task] = load_problem(path).plan_tasks
    assert task.keeps_running
    for wrong in (1, "true", None):
        text = json.dumps(PROBLEM | {"tasks": [TASK | {"keeps_running": wrong}]})
        assert "tasks.0.keeps_running: " in mistake(path, text)


def test_no_workers_and_a_task_without_sizes_are_ordinary(path: Path) -> None:
    path.write_text(json.dumps(PROBLEM | {"workers": 0, "tasks": [TASK | {"throughput": {}}]}))
    assert load_problem(path).horizon_s == 0.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"workers": -1}, "workers: -1 must be greater than or equal to 0"),
        ({"workers": 1.5}, "workers: 1.5 must be a valid integer"),
        ({"workers": True}, "workers: True must be a valid integer"),
        ({"worker_mtbf_hours": 0}, "worker_mtbf_hours: 0 must be greater than 0"),
        ({"worker_mtbf_hours": None}, "give worker_mtbf_hours, or running_s"),
        ({"task": []}, "task: unknown key"),
        ({"tasks": [TASK, TASK]}, "tasks.1.name: 'a' names two tasks"),
        ({"tasks": [TASK | {"name": ""}]}, "tasks.0.name: ''"),
        ({"tasks": [TASK | {"weight": -1}]}, "tasks.0.weight: -1 must be"),
        (
            {"tasks": [TASK | {"weigth": 1}]},
            "tasks.0.weigth: unknown key; known: name, workers, throughput, transition_s, weight,",
        ),
        ({"tasks": [3]}, "tasks.0: 3 must have keys of its own; known: name, workers"),
        ({"tasks": [TASK | {"throughput": {"08": 1.0}}]}, "tasks.0.throughput.08: '08' must be a"),
        ({"tasks": [TASK | {"throughput": {"-8": 1.0}}]}, "decimal digits, 1 or more"),
        ({"tasks": [TASK | {"throughput": {"8": -1.0}}]}, "tasks.0.throughput.8: -1.0 must be"),
        ({"tasks": [TASK | {"throughput": {"8": "1"}}]}, "tasks.0.throughput.8: '1' must be"),
        ({"tasks": {}}, "tasks: {} must be a valid list"),
    ],
)
def test_a_mistake_names_its_place(path: Path, change: dict[str, Any], words: str) -> None:
    assert words in mistake(path, json.dumps(PROBLEM | change))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("{", "not valid JSON: "),
        ("[]", "must be a JSON object"),
        ('{"workers": NaN}', "NaN is no number"),
        ('{"workers": 1, "workers": 2}', "key 'workers' is given twice"),
        ('{"workers": 1, "tasks": [], "running_s": 1e999}', "running_s: inf"),
        ("{}", "workers: is missing"),
        pytest.param("[" * 100_000, "nested too deep", id="nested"),
    ],
)
def test_a_text_that_is_no_problem_is_told_so(path: Path, text: str, words: str) -> None:
    assert words in mistake(path, text)


def test_a_file_that_is_not_there_or_no_text_is_told_so(path: Path) -> None:
    with pytest.raises(RecordError, match="no such file"):
        load_problem(path)
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(RecordError, match="not UTF-8"):
        load_problem(path)
    with pytest.raises(RecordError, match="directory"):
        load_problem(path.parent)


def test_sizes_of_another_layout_cost_a_layout_change(path: Path) -> None:
    keys = {"layout_change_s": 600.0, "layout_change_sizes": [16]}
    path.write_text(json.dumps(PROBLEM | {"tasks": [TASK | keys]}))
    [task] = load_problem(path).plan_tasks
    assert task.transition_to_s(16) == 600.0
    assert task.transition_to_s(8) == TASK["transition_s"]
    for wrong, words in (
        ({**keys, "layout_change_sizes": [5]}, "layout_change_sizes: 5 is no size of throughput"),
        ({"layout_change_sizes": [16]}, "layout_change_sizes needs layout_change_s"),
    ):
        path.write_text(json.dumps(PROBLEM | {"tasks": [TASK | wrong]}))
        with pytest.raises(RecordError, match=words):
            load_problem(path)
