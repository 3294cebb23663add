"""``unicron profile``: printed answers, the contract of ``check --json``, and errors."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from controller.cli import main
from controller.plan.problem_file import load_problem
from profiles.layout import Layout
from profiles.records import RecordError
from profiles.table_file import load_table
from profiles.task_profiles import with_points_of_file

PUBLISHED = Path(__file__).parents[3] / "profiles" / "data" / "throughput" / "published.jsonl"
POINT: dict[str, Any] = {
    "id": "a", "model": "GPT-3 175B", "layers": 96, "hidden": 12288, "heads": 96, "seq": 2048,
    "vocab": 51200, "gpus": 384, "gpu_type": "A100-80GB", "tp": 8, "pp": 12, "dp": 4,
    "micro_batch": 1, "global_batch": 1536, "recompute": "full", "precision": "fp16",
    "framework": "Megatron-LM PTD-P", "series": "s", "model_tflops_per_gpu": 114.8,
}  # fmt: skip
SHAPE: dict[str, Any] = {
    "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "gated": True,
    "seq": 8192, "vocab": 128256, "tied": False,
}  # fmt: skip
ESTIMATE = ["profile", "estimate", "--hardware", "h100-80g"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "points.jsonl"


def checked(
    path: Path, capsys: pytest.CaptureFixture[str], *points: dict[str, Any]
) -> dict[str, Any]:
    path.write_text("\n".join(json.dumps(point) for point in points) + "\n")
    assert main(["profile", "check", str(path), "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def mistake(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["profile", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    [line] = printed.err.splitlines()
    return line


def test_check_tells_every_point_with_its_signed_error(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = checked(path, capsys, POINT, POINT | {"id": "b", "model_tflops_per_gpu": 1000.0})
    assert set(answer) == {"points", "median_error", "p90_error"}
    near, far = answer["points"]
    assert (near["id"], near["measured"], near["layout"]) == ("a", 114.8, "tp8 pp12 dp4")
    assert near["error"] == pytest.approx(near["predicted"] / 114.8 - 1)
    assert abs(near["error"]) < 0.15
    assert far["error"] < -0.8
    sizes = sorted(abs(point["error"]) for point in answer["points"])
    assert answer["median_error"] == pytest.approx(sum(sizes) / 2)
    assert answer["p90_error"] == pytest.approx(0.1 * sizes[0] + 0.9 * sizes[1])


@pytest.mark.parametrize(
    "key", ["layers", "hidden", "heads", "seq", "vocab", "gpus", "gpu_type", "global_batch"]
)
def test_a_point_without_shape_gpus_or_batch_has_a_reason(
    path: Path, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    answer = checked(path, capsys, POINT | {key: None}, POINT | {"id": "b"})
    lacking, whole = answer["points"]
    assert (lacking["predicted"], lacking["error"]) == (None, None)
    assert lacking["reason"] == f"{key} not given"
    assert answer["median_error"] == pytest.approx(abs(whole["error"]))


@pytest.mark.parametrize(("key", "name"), [("gpu_type", "MI250X"), ("precision", "int4")])
def test_a_point_with_a_name_that_is_not_known_has_a_reason_and_the_others_are_predicted(
    path: Path, capsys: pytest.CaptureFixture[str], key: str, name: str
) -> None:
    answer = checked(path, capsys, POINT | {key: name}, POINT | {"id": "b"})
    unknown, known = answer["points"]
    assert (unknown["predicted"], unknown["error"]) == (None, None)
    assert unknown["reason"].startswith(f"{key}: {name!r} is not known; known: ")
    assert known["predicted"] > 0


def test_everything_else_may_be_unknown(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needed = {"id", "layers", "hidden", "heads", "seq", "vocab", "gpus", "gpu_type", "global_batch"}
    bare = {key: value for key, value in POINT.items() if key in needed}
    [row] = checked(path, capsys, bare)["points"]
    assert row["predicted"] > 0
    assert (row["measured"], row["error"]) == (None, None)
    assert row["reason"] == "model_tflops_per_gpu not given"


@pytest.mark.parametrize(
    "change",
    [
        {"gpus": 12289, "global_batch": 8, "tp": None, "pp": None, "dp": None},
        {"gpus": 8},
        {"micro_batch": 4096},
        {"tp": 16, "pp": 96, "gpus": 1536},
        {"pp": 7},
        {"pp": None},
        {"tp": None},
        {"recompute": "none", "gpus": 96, "dp": 1},
        {"precision": "fp8", "gpu_type": "H100-80GB-SXM"},
    ],
)
def test_an_odd_point_is_predicted_too(
    path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any]
) -> None:
    [row] = checked(path, capsys, POINT | change)["points"]
    assert math.isfinite(row["error"])
    assert row["predicted"] > 0


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"tp": 1, "pp": 192, "dp": 2}, "192 stages for 96 layers"),
        ({"tp": 3, "pp": 5, "dp": 7, "gpus": 1024}, "tp3 pp5 dp68 has 1020 of 1024 GPUs; dp 7 is named, and 68 taken"),
    ],
)  # fmt: skip
def test_a_layout_that_can_not_be_does_not_fit_and_a_note_says_why(
    path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], note: str
) -> None:
    [row, usual] = checked(path, capsys, POINT | change, POINT | {"id": "b"})["points"]
    assert not row["fits"]
    assert row["note"].startswith(note)
    assert usual["fits"]
    assert "note" not in usual


def test_the_published_points_are_predicted_within_bounds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["profile", "check", str(PUBLISHED), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["points"]) == 93
    assert all(point["error"] is not None for point in answer["points"])
    assert answer["median_error"] <= 0.04
    assert answer["p90_error"] <= 0.10


def test_a_point_that_does_not_fit_is_marked_in_json_and_table(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    large = POINT | {"gpus": 8, "tp": 1, "pp": 1, "dp": 8}
    [row] = checked(path, capsys, large)["points"]
    assert not row["fits"]
    assert "does not fit: needs at least" in row["note"]
    assert main(["profile", "check", str(path)]) == 0
    assert "does not fit" in " ".join(capsys.readouterr().out.split())


def test_figures_of_causal_operations_are_compared_with_causal_predictions(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = {**SHAPE, "id": "a", "gpus": 8, "gpu_type": "H100-80GB-SXM", "global_batch": 128}
    del whole["tied"]
    [plain] = checked(path, capsys, whole | {"model_tflops_per_gpu": 400.0})["points"]
    causal = whole | {"flops": "causal", "model_tflops_per_gpu": 400.0}
    [half] = checked(path, capsys, causal)["points"]
    weights = 32 * (2 * 4096**2 * 1.25 + 3 * 4096 * 14336) + 128256 * 4096
    square = 2 * 32 * 8192 * 4096
    share = (weights + square / 2) / (weights + square)
    assert half["predicted"] == pytest.approx(plain["predicted"] * share)
    assert half["error"] == pytest.approx((plain["error"] + 1) * share - 1)
    assert (plain["flops"], half["flops"]) == ("megatron", "causal")


def test_a_point_with_context_parallelism_counts_its_gpus(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    point = POINT | {"framework": "Megatron-Core", "cp": 2, "dp": 2, "precision": "bf16"}
    [row] = checked(path, capsys, point)["points"]
    assert row["layout"] == "tp8 pp12 dp2 cp2"
    assert row["unmeasured"] == ["context parallelism"]


def test_fp8_and_context_parallelism_are_planned_and_unmeasured_hardware_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--model", "llama3-8b", "--workers", "8,12", "--json"]
    rates = {}
    for precision in ("bf16", "fp8"):
        assert main([*ESTIMATE, *arguments, "--precision", precision]) == 0
        answer = json.loads(capsys.readouterr().out)
        rates[precision] = answer["throughput"]["8"]
        assert answer["unmeasured"] == []
    assert 1.2 < rates["fp8"] / rates["bf16"] < 1.9
    assert main([*ESTIMATE, *arguments, "--context-parallel", "8"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [row["cp"] for row in answer["layouts"]] == [8]
    assert answer["left_out"] == {"12": "not a multiple of 8, the context-parallel size"}
    assert main(["profile", "estimate", "--hardware", "mi300x-192g", *arguments[:4]]) == 0
    assert "not measured: mi300x-192g" in capsys.readouterr().out


def test_a_table_with_context_parallelism_is_shown_and_no_task_takes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "long.json"
    sizes = ["--model", "llama3-8b", "--workers", "8,16", "--output", str(table)]
    assert main([*ESTIMATE, *sizes, "--context-parallel", "4"]) == 0
    assert re.search(r"\bcp\b", capsys.readouterr().out)
    assert main(["profile", "show", str(table)]) == 0
    assert "cp4" in capsys.readouterr().out
    assert [point.layout.num_workers for point in load_table(table).points] == [8, 16]
    with pytest.raises(RecordError, match="8 workers: tp2 pp1 dp1 cp4: Unicron trains no task"):
        with_points_of_file({"throughput": {"file": table.name}}, tmp_path)
    assert main([*ESTIMATE, *sizes[:-1], str(tmp_path / "short.json")]) == 0
    assert not re.search(r"\bcp\b", capsys.readouterr().out)
    assert "cp" not in (tmp_path / "short.json").read_text()
    with_points_of_file({"throughput": {"file": "short.json"}}, tmp_path)


def test_check_prints_a_table(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_text(f"{json.dumps(POINT)}\n{json.dumps(POINT | {'id': 'b', 'seq': None})}\n")
    assert main(["profile", "check", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "114.8" in printed
    assert "seq not given" in printed
    assert "median error" in printed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no point in it"),
        ("{", "line 1: not valid JSON"),
        ("[]", "line 1: must be a JSON object"),
        (json.dumps(POINT) + "\n" + json.dumps(POINT), "line 2: id: 'a' stands in line 1 too"),
        ('{"id": "a", "id": "b"}', "line 1: key 'id' is given twice"),
        ('{"id": "a", "gpus": NaN}', "line 1: gpus: NaN is no number"),
        ('{"id": "a", "params_b": 1e999}', "line 1: params_b: inf"),
        ('{"gpus": 8}', "line 1: id: is missing"),
        (json.dumps(POINT | {"gpu": 8}), "line 1: gpu: unknown key; known: id,"),
        (json.dumps(POINT | {"gpus": -8}), "line 1: gpus: -8 must be greater"),
        (json.dumps(POINT | {"gpus": "8"}), "line 1: gpus: '8' must be"),
        (json.dumps(POINT | {"tp": 1.5}), "line 1: tp: 1.5 must be"),
        (json.dumps(POINT | {"model_tflops_per_gpu": -1.0}), "model_tflops_per_gpu: -1.0 must be"),
        (json.dumps(POINT | {"recompute": "some"}), "line 1: recompute: 'some' must be"),
    ],
)
def test_a_mistake_in_a_point_names_its_line(
    path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    path.write_text(text)
    line = mistake(capsys, "check", str(path), "--json")
    assert line.startswith(f"unicron profile: {path}: ")
    assert words in line


def test_a_file_of_points_that_can_not_be_read_is_told_so(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no such file" in mistake(capsys, "check", str(path))
    path.write_bytes(b"\xff\xfe")
    assert "not UTF-8" in mistake(capsys, "check", str(path))
    assert "directory" in mistake(capsys, "check", str(path.parent))


def test_estimate_gives_a_throughput_table_that_the_planner_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*ESTIMATE, "--model", "gpt3-7b", "--workers", "16,8,32", "--json"]
    assert main(arguments) == 0
    answer = json.loads(capsys.readouterr().out)
    assert list(answer["throughput"]) == ["8", "16", "32"]
    for row in answer["layouts"]:
        assert Layout(row["tp"], row["pp"], row["dp"]).num_workers == row["workers"]
        assert answer["throughput"][str(row["workers"])] == row["flops_per_s"]
        assert row["memory_gib"] < 80
    task = {"name": "a", "workers": 32, "transition_s": 45, "throughput": answer["throughput"]}
    problem = tmp_path / "problem.json"
    problem.write_text(json.dumps({"workers": 16, "running_s": 3600, "tasks": [task]}))
    [planned] = load_problem(problem).plan_tasks
    assert planned.rates.at(16) == answer["throughput"]["16"]


def test_sizes_that_a_model_does_not_fit_on_are_left_out_with_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*ESTIMATE, "--model", "gpt3-175b", "--workers", "8,64", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert list(answer["throughput"]) == ["64"]
    assert "GiB" in answer["left_out"]["8"]
    assert main([*ESTIMATE, "--model", "gpt3-175b", "--workers", "8,64"]) == 0
    assert "8 workers: needs" in capsys.readouterr().out


def test_more_workers_than_samples_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--model", "gpt3-7b", "--workers", "10007", "--global-batch", "8", "--json"]
    assert main([*ESTIMATE, *arguments]) == 0
    assert "more replicas" in json.loads(capsys.readouterr().out)["left_out"]["10007"]


def test_a_shape_from_a_file_is_the_model_of_the_same_shape(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "shape.json"
    path.write_text(json.dumps(SHAPE))
    answers = []
    for model in (str(path), "llama3-8b"):
        assert main([*ESTIMATE, "--model", model, "--workers", "64", "--json"]) == 0
        answers.append(json.loads(capsys.readouterr().out)["throughput"])
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layers": 0}, "layers: 0 must be"),
        ({"hidden": -4096}, "hidden: -4096 must be"),
        ({"heads": 33}, "hidden 4096 is not a multiple of heads 33"),
        ({"kv_heads": 5}, "heads 32 is not a multiple of kv_heads 5"),
        ({"gated": 1}, "gated: 1 must be"),
        ({"vocabulary": 5}, "vocabulary: unknown key"),
        ({"seq": None}, "seq: None must be"),
    ],
)
def test_a_mistake_in_a_shape_names_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], words: str
) -> None:
    path = tmp_path / "shape.json"
    path.write_text(json.dumps(SHAPE | change))
    line = mistake(capsys, *ESTIMATE[1:], "--model", str(path))
    assert f"{path}: {words}" in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--model", "gpt3-7"],
            "no model is called 'gpt3-7', and no file; did you mean 'gpt3-7b'?",
        ),
        (["--model", "m" * 300], "no model is called 'mmm"),
        (["--model", "missing.json"], "missing.json: no such file"),
        (["--model", "gpt3-7b", "--hardware", "tpu"], "--hardware 'tpu': unknown GPU; known: a100"),
        (["--model", "gpt3-7b", "--workers", "8,-1"], "--workers: '-1' must be a whole number"),
        (["--model", "gpt3-7b", "--workers", "8,8"], "8 is given twice"),
        (["--model", "gpt3-7b", "--workers", "inf"], "--workers: 'inf' must be"),
        (["--model", "gpt3-7b", "--workers", ""], "--workers: '' must be"),
        (["--model", "gpt3-7b", "--global-batch", "nan"], "--global-batch: 'nan' must be"),
        (["--model", "gpt3-7b", "--seq", "0"], "--seq: '0' must be"),
        (["--model", ""], "the name of the model is empty"),
        (["--model", "gpt3-7b", "--workers", " 8"], "--workers: ' 8' must be"),
        (["--model", "gpt3-7b", "--workers", "08"], "--workers: '08' must be"),
        (["--model", "gpt3-7b", "--workers", "٣"], "--workers: '٣' must be"),
        (["--model", "gpt3-7b", "--global-batch", "08"], "--global-batch: '08' must be"),
        (["--model", "gpt3-7b", "--hardware", "a100", "--precision", "fp8"], "a100-80g has no fp8"),
        (["--model", "gpt3-7b", "--context-parallel", "0"], "--context-parallel: '0' must be"),
        (["--model", "gpt3-7b", "--context-parallel", "3"], "2048 tokens are not a multiple of 6"),
        (
            ["--model", "gpt3-7b", "--context-parallel", "2", "--stack", "classic"],
            "--context-parallel 2: the stack classic has none",
        ),
        (
            ["--model", "gpt3-7b", "--output", "a.yaml"],
            "--output a.yaml: tables are JSON",
        ),
    ],
)
def test_a_mistake_in_an_argument_names_it(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert words in mistake(capsys, *ESTIMATE[1:], *arguments)
