"""``unicron run`` up to the start: what it refuses, and what a dry run prints."""

import json
from pathlib import Path

import pytest

from controller.cli import main

_FILE = """\
[cluster]
name = "llm-a"
checkpoint_dir = "/ckpt"
run_dir = "run"
[[nodes]]
hosts = "n[1-2]"
workers = 2
identity = "key"
host_key = "ssh-ed25519 AAAA"
labels = { row = "4" }
[[task]]
name = "gpt"
weight = 1.0
workers = 1
min_workers = 1
[task.command]
argv = ["python", "train.py"]
[task.throughput]
points = [{ workers = 1, flops_per_s = 3.0e9, layout = { tp = 1, pp = 1, dp = 1 } }]
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key").touch()
    found = tmp_path / "cluster.toml"
    found.write_text(_FILE)
    return found


def test_a_dry_run_prints_the_cluster_and_writes_nothing(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(path), "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "n2" in text
    assert "python train.py" in text
    assert "plans wait for approval" in text
    assert main(["run", str(path), "--dry-run", "--json", "--auto-heal"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["is_auto_heal"]
    assert found["socket"] == str(path.parent / "run" / "api.sock")
    assert [node["workers"] for node in found["nodes"]] == [2, 2]
    assert found["nodes"][0]["labels"] == {"row": "4"}
    assert found["tasks"][0]["checkpoint_dir"] == "/ckpt/gpt"
    assert sorted(each.name for each in path.parent.iterdir()) == ["cluster.toml", "key"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--json"], "unicron run: --json prints what --dry-run has found: add --dry-run"),
        (
            ["--event-log", "nowhere/e.jsonl"],
            (
                "unicron run: --event-log nowhere/e.jsonl: there is no directory HERE/nowhere; create it or"
                " choose another"
            ),
        ),
        (["--event-log", "."], "unicron run: --event-log .: is a directory; give a file name"),
    ],
)
def test_wrong_options_start_nothing(
    path: Path, capsys: pytest.CaptureFixture[str], words: list[str], expected: str
) -> None:
    assert main(["run", str(path), *words]) == 2
    assert capsys.readouterr().err == expected.replace("HERE", str(path.parent)) + "\n"
    assert not (path.parent / "run").exists()


def test_a_run_directory_that_can_not_be_made_is_one_line(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path.parent / "run").write_text("a file")
    assert main(["run", str(path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"unicron run: {path.parent / 'run'}")
    assert error.count("\n") == 1
