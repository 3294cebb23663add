"""What ``--keep`` accepts, and what it copies."""

import stat
from pathlib import Path

import pytest

from controller.core.rules.evidence import Evidence
from controller.core.state.incident import Cause, Incident
from controller.demo.kept_files import KeptLogs, keep_files, why_unusable
from controller.localcluster.local_node import LocalNode, ServerKind
from nodeagent.protocol.ids import NodeId, TaskId


def local_node(state_dir: Path) -> LocalNode:
    return LocalNode(
        NodeId(state_dir.name), "127.0.0.1", 2200, state_dir, "me", state_dir, "", ServerKind.ASYNCSSH, 2
    )  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The directory of a run that ended before its run file was written."""
    root = tmp_path / "root"
    for name in (
        "journal.jsonl", "events.jsonl", "client_key", "checkpoints/gpt-a/iter_0000004/part", "n1/agent.log",
        "n1/agent.log.1", "n1/host_key", "n1/ranks/gpt-a.1.0.log", "n1/ranks/gpt-a.1.0.exit",
        "n1/ranks/gpt-a.1.0.sock", "n2/kernel.log",
    ):  # fmt: skip
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return root


def kept_names(directory: Path) -> list[str]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return sorted(str(path.relative_to(directory)) for path in files)


def test_journal_event_log_and_logs_are_copied_and_nothing_else(root: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    keep_files(
        kept, root, [local_node(root / "n1"), local_node(root / "n2")], root / "events.jsonl"
    )
    assert kept_names(kept) == [
        "events.jsonl", "journal.jsonl", "n1/agent.log", "n1/agent.log.1", "n1/ranks/gpt-a.1.0.exit",
        "n1/ranks/gpt-a.1.0.log", "n2/kernel.log",
    ]  # fmt: skip
    assert (kept / "n1/agent.log").read_text() == "n1/agent.log"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700


def test_an_event_log_that_was_written_there_stays(root: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "events.jsonl").write_text("an event\n")
    keep_files(kept, root, [], kept / "events.jsonl")
    assert kept_names(kept) == ["events.jsonl", "journal.jsonl"]
    assert (kept / "events.jsonl").read_text() == "an event\n"


def test_only_a_new_or_an_empty_directory_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    assert not why_unusable(tmp_path / "empty")
    assert not why_unusable(tmp_path / "new")
    assert why_unusable(tmp_path).startswith("is not empty")
    assert why_unusable(tmp_path / "file").startswith("is no directory")
    missing = tmp_path / "missing"
    assert why_unusable(missing / "new") == (
        f"there is no directory {missing}; create it or choose another"
    )


def test_each_log_that_an_incident_is_about_is_told_once() -> None:
    first = evidence("n1", 0, "/somewhere/n1/ranks/gpt-a.1.0.log")
    incident = Incident("I-1", TaskId("gpt-a"), {}, 1.0, Cause(1.0), evidence=[first])
    logs = KeptLogs(Path("/kept"))
    [(text, path)] = logs.new([incident])
    assert path == Path("/kept/n1/ranks/gpt-a.1.0.log")
    assert text == f"I-1: the log of rank 0 of gpt-a is kept as {path}"
    assert not logs.new([incident])
    incident.evidence += [evidence("n2", 1, "../../../etc/passwd"), evidence("n2", 2, "")]
    assert [path for _, path in logs.new([incident])] == [Path("/kept/n2/ranks/passwd")]


def evidence(node: str, rank: int, log: str) -> Evidence:
    return Evidence("exit", 1.0, 1.0, NodeId(node), TaskId("gpt-a"), rank, "it ended", log=log)
