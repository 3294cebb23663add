"""``unicron plan solve``: the printed answer, and what it says of a mistake."""

import json
from pathlib import Path
from typing import Any

import pytest

from controller.cli import main

EXAMPLE = Path(__file__).parents[3] / "examples" / "plan" / "128-gpus.json"
FLOORS = EXAMPLE.with_name("keeps-running.json")


def test_the_example_of_the_guide_is_solved(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "solve", str(EXAMPLE), "--json", "--explain"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["assignments"] == {"gpt3-1.3b": 8, "gpt3-70b": 80, "gpt3-7b": 32}
    assert answer["running_s"] == 2000 * 3600 / 120
    assert answer["waf_after"] == pytest.approx(0.5 * 9.6e14 + 4.2e15 + 1.5 * 1.12e16)
    by_name = {task["name"]: task for task in answer["tasks"]}
    assert by_name["gpt3-70b"]["forgone"] == pytest.approx(1.5 * 1.12e16 * 90)
    assert by_name["gpt3-7b"]["forgone"] == 0
    terms = sum(task["earned"] - task["forgone"] for task in answer["tasks"])
    assert answer["objective"] == pytest.approx(terms)
    assert answer["alternatives"][0]["differs"] == {"gpt3-1.3b": 0}
    worths = [each["objective"] for each in answer["alternatives"]]
    assert worths == sorted(worths, reverse=True)
    assert worths[0] < answer["objective"]
    assert answer["solve_s"] > 0


def test_the_table_says_what_changes_and_what_it_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "solve", str(EXAMPLE)]) == 0
    printed = capsys.readouterr().out
    assert "16 -> 8" in printed
    assert "120 of 120 workers assigned" in printed
    assert "gpt3-1.3b shrinks 16 -> 8" in " ".join(printed.split())


def test_a_name_is_printed_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem = json.loads(EXAMPLE.read_text())
    problem["tasks"][0]["name"] = "[/b] mine"
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(problem))
    assert main(["plan", "solve", str(path), "--explain"]) == 0
    assert "[/b] mine" in capsys.readouterr().out


def test_a_mistake_is_one_line_on_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "solve", str(tmp_path / "none.json")]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == f"unicron plan: {tmp_path / 'none.json'}: no such file or directory\n"


def solved(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["plan", *words, "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_waiting_costs_what_the_faulted_task_would_do(capsys: pytest.CaptureFixture[str]) -> None:
    answer = solved(capsys, "solve", str(EXAMPLE), "--explain")
    training = 0.5 * 1.8e15 + 4.2e15
    assert answer["waiting"]["weighted_flop_per_min"] == pytest.approx(
        60 * (answer["waf_after"] - training)
    )
    assert answer["waiting"]["gpu_hours_per_min"] == (120 - 16 - 32) / 60


def printed_words(capsys: pytest.CaptureFixture[str], problem: Path) -> str:
    """Return what is printed, with single spaces: the width of the terminal breaks lines."""
    assert main(["plan", "solve", str(problem), "--explain"]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_the_cost_of_waiting_is_gpu_time_and_a_share_of_the_cluster(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The example had 128 GPUs before its fault. The plan gives back 75 % of their WAF."""
    full = 0.5 * 1.8e15 + 4.2e15 + 1.5 * 1.12e16
    lost = 0.5 * 9.6e14 + 4.2e15 + 1.5 * 1.12e16 - (0.5 * 1.8e15 + 4.2e15)
    minutes, share = 128 * lost / full, 100 * lost / full
    cost = f"waiting costs {minutes:.1f} GPU-minutes ({share:.0f}% of the cluster), if faulted"
    assert cost in printed_words(capsys, EXAMPLE)


@pytest.mark.parametrize(
    ("task", "cost"),
    [
        ({"workers": 0, "throughput": {"2000": 1.0}}, "2,000 GPU-minutes (100% of the cluster)"),
        (
            {"workers": 1000, "throughput": {"1000": 1.0, "2000": 1.00001}},
            "under 0.1 GPU-minutes (0% of the cluster)",
        ),
        ({"workers": 2000, "throughput": {"2000": 1.0}}, "waiting costs no throughput"),
    ],
)
def test_the_cost_of_waiting_is_printed_for_every_kind_of_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], task: dict[str, Any], cost: str
) -> None:
    path = tmp_path / "problem.json"
    whole = {"workers": 2000, "running_s": 1e9, "tasks": [{"name": "a", "transition_s": 0, **task}]}
    path.write_text(json.dumps(whole))
    assert cost in printed_words(capsys, path)


def test_what_other_estimates_would_change_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Growing from 8 to 16 gives 1 FLOP/s more and costs 10 FLOP: it pays after ten seconds."""
    task = {"name": "a", "workers": 8, "transition_s": 10, "throughput": {"8": 1.0, "16": 2.0}}
    path = tmp_path / "problem.json"
    path.write_text(json.dumps({"workers": 16, "running_s": 50, "tasks": [task]}))
    answer = solved(capsys, "solve", str(path), "--explain")
    assert answer["assignments"] == {"a": 16}
    differing = {(each["estimate"], each["factor"]) for each in answer["sensitivity"]}
    assert differing == {
        ("MTBF", 0.01), ("MTBF", 0.1), ("transition time", 10.0), ("transition time", 100.0),
    }  # fmt: skip
    assert {each["differs"]["a"] for each in answer["sensitivity"]} == {8}


def test_what_if_changes_what_it_says_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    lost = solved(capsys, "what-if", str(EXAMPLE), "--lose", "40", "--fault", "gpt3-7b")
    assert lost["workers"] == 80
    assert sum(lost["assignments"].values()) <= 80
    by_name = {task["name"]: task for task in lost["tasks"]}
    assert by_name["gpt3-7b"]["faulted"]
    gained = solved(capsys, "what-if", str(EXAMPLE), "--add", "8", "--finish", "gpt3-1.3b")
    assert gained["workers"] == 128
    assert gained["assignments"] == {"gpt3-70b": 80, "gpt3-7b": 48}
    heavy = solved(capsys, "what-if", str(EXAMPLE), "--weight", "gpt3-1.3b=100")
    assert heavy["assignments"]["gpt3-1.3b"] == 32


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--lose", "121"], "--lose 121: there are only 120 workers"),
        (["--fault", "b"], "there is no task 'b'; tasks: gpt3-1.3b, gpt3-7b, gpt3-70b"),
        (["--lose", "-1"], "'-1' is not a number of workers"),
        (["--weight", "gpt3-7b=-1"], "is not TASK=WEIGHT with a weight from 0 to 1e+30"),
        (["--weight", "gpt3-7b=nan"], "is not TASK=WEIGHT with a weight from 0 to 1e+30"),
        (["--weight", "gpt3-7b=1e999"], "is not TASK=WEIGHT"),
        (["--weight", "gpt3-7b=٣"], "is not TASK=WEIGHT"),
        (["--weight", "gpt3-7b=1_0"], "is not TASK=WEIGHT"),
        (["--weight", "gpt3-7b= 2"], "is not TASK=WEIGHT"),
        (["--lose", "08"], "'08' is not a number of workers"),
        (["--add", "9" * 5000], "9999 is not a number of workers"),
        (
            ["--add", "999999999999"],
            "--add 999999999999: makes 1000000000119 workers; at most 10000000",
        ),
        (["--finish", "gpt3-7b", "--fault", "gpt3-7b"], "--fault: gpt3-7b finishes too; leave out"),
        (["--finish", "gpt3-7b", "--weight", "gpt3-7b=2"], "--weight: gpt3-7b finishes too; leave"),
        (
            ["--finish", "gpt3-7b", "--keeps-running", "gpt3-7b"],
            "--keeps-running: gpt3-7b finishes",
        ),
        (["--keeps-running", "b"], "there is no task 'b'; tasks: gpt3-1.3b, gpt3-7b, gpt3-70b"),
        (["--keeps-running", "gpt3-7b=0"], "'gpt3-7b=0' is not TASK, TASK=yes or TASK=no"),
        (["--keeps-running", "gpt3-7b"] * 2, "--keeps-running: gpt3-7b is given twice"),
        (["--fault", "a\nb"], "there is no task 'a\\nb'; tasks:"),
        (["--connect", ""], "argument --connect: the file name is empty: give the path of a file"),
    ],
)
def test_a_change_that_can_not_be_is_told_in_words(
    capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    try:
        code = main(["plan", "what-if", str(EXAMPLE), *words])
    except SystemExit as error:  # argparse
        code = int(error.code or 0)
    assert code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert told in line


def test_losing_8_of_128_gpus_stops_no_task_that_keeps_running(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By the paper's rule two tasks stop, one of them healthy: the third has twice the weight."""
    marks = ("--keeps-running", "llama-8b=no", "--keeps-running", "llama-13b=no")
    free = solved(capsys, "what-if", str(FLOORS), *marks, "--explain")
    assert free["assignments"] == {"llama-13b": 0, "llama-70b": 120, "llama-8b": 0}
    assert free["floors"] is None
    answer = solved(capsys, "solve", str(FLOORS), "--explain")
    assert answer["assignments"] == {"llama-13b": 16, "llama-70b": 96, "llama-8b": 8}
    share = 1 - answer["objective"] / free["objective"]
    assert answer["floors"]["share"] == pytest.approx(share)
    assert answer["floors"]["objective"] == free["objective"]
    assert answer["floors"]["without_room"] == []
    cost = (
        "keeps_running costs 8.3 % of the optimum, which has llama-13b 0, llama-70b 120, llama-8b 0"
    )
    assert cost in printed_words(capsys, FLOORS)


def test_floors_without_room_go_by_weight_and_the_answer_names_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    few = ("what-if", str(FLOORS), "--lose", "100", "--explain")
    answer = solved(capsys, *few)
    assert answer["assignments"] == {"llama-13b": 16, "llama-70b": 0, "llama-8b": 0}
    assert "llama-8b stops 16 -> 0 (keeps_running, but there is no room for 8)" in answer["why"]
    assert answer["floors"]["without_room"] == ["llama-8b"]
    assert answer["floors"]["verdict"].endswith("; llama-8b: no room")
    turned = solved(capsys, *few, "--weight", "llama-8b=1.1")
    assert turned["assignments"] == {"llama-13b": 0, "llama-70b": 0, "llama-8b": 16}
    both = solved(capsys, "what-if", str(FLOORS), "--lose", "96")
    assert both["assignments"] == {"llama-13b": 16, "llama-70b": 0, "llama-8b": 8}


def test_floors_that_change_nothing_cost_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    answer = solved(capsys, "what-if", str(EXAMPLE), "--keeps-running", "gpt3-7b=yes", "--explain")
    assert answer["assignments"] == solved(capsys, "solve", str(EXAMPLE))["assignments"]
    assert answer["floors"]["share"] == 0
    assert answer["floors"]["verdict"].startswith("keeps_running costs nothing")


@pytest.mark.parametrize("written", ["2", "0.5", ".5", "5.", "1e2", "1.5E-3", "0"])
def test_a_weight_is_any_plain_decimal_number(
    capsys: pytest.CaptureFixture[str], written: str
) -> None:
    assert solved(capsys, "what-if", str(EXAMPLE), "--weight", f"gpt3-7b={written}", "--lose", "0")


def test_an_empty_name_is_no_directory(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "solve", ""])
    assert "the file name is empty" in capsys.readouterr().err


def test_a_path_with_an_end_of_line_is_told_in_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "solve", "a\nb"]) == 2
    assert capsys.readouterr().err == "unicron plan: a\\nb: no such file or directory\n"
