"""``unicron plan solve``: the printed answer, and what it says of a mistake."""

import json
from pathlib import Path

import pytest

from controller.cli import main

EXAMPLE = Path(__file__).parents[3] / "examples" / "plan" / "128-gpus.json"


def test_the_example_of_the_guide_is_solved(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "solve", str(EXAMPLE), "--json", "--runner-up"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["assignments"] == {"gpt3-1.3b": 8, "gpt3-70b": 80, "gpt3-7b": 32}
    assert answer["running_s"] == 2000 * 3600 / 120
    assert answer["waf_after"] == pytest.approx(0.5 * 9.6e14 + 4.2e15 + 1.5 * 1.12e16)
    by_name = {task["name"]: task for task in answer["tasks"]}
    assert by_name["gpt3-70b"]["forgone"] == pytest.approx(1.5 * 1.12e16 * 90)
    assert by_name["gpt3-7b"]["forgone"] == 0
    terms = sum(task["earned"] - task["forgone"] for task in answer["tasks"])
    assert answer["objective"] == pytest.approx(terms)
    assert answer["runner_up"]["assignments"]["gpt3-1.3b"] == 0
    assert answer["runner_up"]["objective"] < answer["objective"]
    assert answer["solve_s"] > 0


def test_the_table_says_what_changes_and_what_it_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "solve", str(EXAMPLE)]) == 0
    printed = capsys.readouterr().out
    assert "16 -> 8" in printed
    assert "120 of 120 workers given" in printed
    assert "gpt3-1.3b shrinks 16 -> 8" in " ".join(printed.split())


def test_a_mistake_is_one_line_on_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "solve", str(tmp_path / "none.json")]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == f"unicron plan: {tmp_path / 'none.json'}: no such file or directory\n"
