"""The files that tell an agent about its ranks."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from nodeagent.process_tools.process_files import ProcessFiles, start_ticks
from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.rank_launch import RankLaunch, TrainingSpec
from profiles.layout import Layout
from profiles.model import ModelShape


def launch_of(task: str) -> RankLaunch:
    shape = ModelShape(num_layers=1, hidden_size=8, num_attention_heads=1, seq_length=8)
    return RankLaunch(
        task=TaskId(task),
        generation=Generation(4),
        global_rank=2,
        worker=1,
        layout=Layout(dp=4),
        training=TrainingSpec(model=shape, checkpoint_dir="unused"),
    )


@pytest.fixture
def files(tmp_path: Path) -> ProcessFiles:
    (tmp_path / "ranks").mkdir()
    return ProcessFiles.of(tmp_path, launch_of("gpt-a"))


def test_start_record_names_launch_and_process(files: ProcessFiles, tmp_path: Path) -> None:
    files.write_start(launch_of("gpt-a"), os.getpid())
    record = json.loads((tmp_path / "ranks" / "gpt-a.4.2.json").read_text())
    assert RankLaunch.model_validate(record["launch"]) == launch_of("gpt-a")
    assert record["pid"] == os.getpid()
    assert record["start_ticks"] == start_ticks(os.getpid())


@pytest.mark.parametrize(
    ("command", "exit_code", "signal_number"),
    [("exit 0", 0, None), ("exit 7", 7, None), ("kill -9 $$", None, 9)],
)
def test_exit_record_tells_code_from_signal(
    files: ProcessFiles,
    tmp_path: Path,
    command: str,
    exit_code: int | None,
    signal_number: int | None,
) -> None:
    process = subprocess.Popen(["/bin/sh", "-c", command])
    _, status = os.waitpid(process.pid, 0)
    process.returncode = 0  # reaped here; Popen must not wait for it again
    files.write_exit(process.pid, status, 12.5)
    record = json.loads((tmp_path / "ranks" / "gpt-a.4.2.exit").read_text())
    assert record == {
        "pid": process.pid,
        "exit_code": exit_code,
        "signal": signal_number,
        "is_core_dumped": False,
        "wall_s": 12.5,
    }


def test_exit_record_tells_of_a_dumped_core(files: ProcessFiles, tmp_path: Path) -> None:
    core_dumped = 0x80
    files.write_exit(7, signal.SIGSEGV | core_dumped, 12.5)
    record = json.loads((tmp_path / "ranks" / "gpt-a.4.2.exit").read_text())
    assert (record["signal"], record["is_core_dumped"]) == (signal.SIGSEGV, True)


def test_what_was_cleared_is_gone_and_clearing_twice_is_harmless(
    files: ProcessFiles, tmp_path: Path
) -> None:
    files.write_exit(1, 0, 0.0)
    files.attached.touch()
    files.clear()
    files.clear()
    assert list((tmp_path / "ranks").iterdir()) == []


@pytest.mark.parametrize("task", ["", "a/b", "../x", "a\0b"])
def test_task_name_that_is_no_file_name_is_refused(tmp_path: Path, task: str) -> None:
    with pytest.raises(ValueError, match="can't be part of a file name"):
        ProcessFiles.of(tmp_path, launch_of(task))


def test_start_ticks_of_no_process_raises() -> None:
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    with pytest.raises(FileNotFoundError):
        start_ticks(process.pid)
