"""``unicron run`` up to the start: its refusals, and the output of a dry run."""

import json
import resource
from pathlib import Path

import asyncssh
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
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(tmp_path / "key")
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


def test_a_key_that_can_not_be_used_is_refused_or_said_beforehand(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(path.parent / "key", "pkcs8-pem", passphrase="secret")
    assert main(["run", str(path), "--dry-run"]) == 0
    said = capsys.readouterr().err
    assert "warning: identity on n1, n2: " in said
    assert "key has a passphrase, so that the login needs your ssh-agent" in said
    (path.parent / "key").write_text("no key")
    assert main(["run", str(path), "--auto-heal"]) == 2
    said = capsys.readouterr().err
    assert "error: identity on n1, n2: " in said
    assert "is no private key that can be read" in said
    assert "unicron run: this can't work: nothing was started" in said
    assert not (path.parent / "run").exists()


def test_time_limits_that_do_not_fit_are_said_beforehand(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_text(f"{path.read_text()}\n[policy]\nunreachable_limit_s = 5.0\n")
    assert main(["run", str(path), "--dry-run"]) == 0
    assert "warning: time limits: unreachable_limit_s = 5: " in capsys.readouterr().err


def test_too_few_open_files_for_the_nodes_are_refused(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (128, 200))
    assert main(["run", str(path)]) == 2
    assert "the controller may open 200 files, and needs 258" in capsys.readouterr().err
