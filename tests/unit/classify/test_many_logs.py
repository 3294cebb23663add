"""``unicron classify`` with several files and directories."""

import fcntl
import json
import lzma
import os
import signal
import subprocess
import sys
import termios
import time
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typing_extensions import override

from controller.classify.log_inputs import logs_in
from controller.classify.log_reading import classify_logs
from controller.cli import main
from controller.clock import SystemClock

_XID = "NVRM: Xid (PCI:0000:1b:00): 79, pid=7, GPU has fallen off the bus.\n"
_FAULT = "RuntimeError: CUDA error: an illegal memory access was encountered\n"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return the directory of a run with four logs, two of which can't be read to their ends."""
    folder = tmp_path / "run"
    (folder / "node1").mkdir(parents=True)
    (folder / "a.log").write_text("step 1 loss 2.0\n")
    (folder / "b.log.xz").write_bytes(lzma.compress(_XID.encode() * 2)[:-4])
    (folder / "node1" / "rank0.log").write_text(f"step 1 loss 2.0\n{_FAULT}")
    (folder / "node1" / "state.pt").write_bytes(b"PK\x03\x04" + bytes(99))
    (folder / ".hidden.log").write_text(_XID)
    (folder / ".git").mkdir()
    (folder / ".git" / "x.log").write_text(_XID)
    return folder


def _names(*paths: Path) -> list[str]:
    return [Path(log.path).name for log in logs_in(map(str, paths))]


def test_every_file_of_a_directory_has_its_row_and_the_unreadable_ones_an_error(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["classify", str(run)]) == 2
    out, err = capsys.readouterr()
    assert f"==> {run}/node1/rank0.log <==\nline 2  SEV2  illegal_memory_access" in out
    rows = [line.split() for line in out[out.index("       lines") :].splitlines()]
    assert rows[0] == ["lines", "findings", "SEV1", "SEV2", "SEV3", "file"]
    assert rows[1] == ["1", f"{run}/a.log"]
    assert rows[2][:4] == ["2", "1", "1", f"{run}/b.log.xz"]
    assert rows[3][:4] == ["2", "1", "1", f"{run}/node1/rank0.log"]
    assert rows[4] == ["0", f"{run}/node1/state.pt", "(NOT", "READ)"]
    assert rows[5] == ["5", "2", "1", "1", "total"]
    assert out.endswith("2 findings in 2 of 4 files; 2 could not be read to the end\n")
    assert [line.split(": ")[1] for line in err.splitlines()] == [
        f"{run}/b.log.xz",
        f"{run}/node1/state.pt",
    ]


def test_json_is_one_object_for_each_file(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["classify", "--json", str(run), "nowhere.log"]) == 2
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [Path(report["file"]).name for report in reports] == [
        "a.log", "b.log.xz", "rank0.log", "state.pt", "nowhere.log",
    ]  # fmt: skip
    assert [len(report["findings"]) for report in reports] == [0, 1, 1, 0, 0]
    assert [sorted(report) for report in reports[::2]] == [
        ["file", "findings", "num_lines"],
        ["file", "findings", "num_lines"],
        ["error", "file", "findings", "num_lines"],
    ]
    assert "cut off" in reports[1]["error"]


def test_several_readable_files_are_exit_code_0(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["classify", str(run / "a.log"), str(run / "node1" / "rank0.log")]) == 0
    assert "1 finding in 1 of 2 files\n" in capsys.readouterr().out


def test_directories_are_listed_sorted_and_without_hidden_files(run: Path) -> None:
    assert _names(run) == ["a.log", "b.log.xz", "rank0.log", "state.pt"]
    assert _names(run / ".hidden.log") == [".hidden.log"]


def test_links_are_followed_once_and_their_loops_end(run: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "pod.log").write_text(_XID)
    (elsewhere / "back").symlink_to(run)
    (run / "A-link").symlink_to("a.log")
    (run / "latest").symlink_to("node1")
    (run / "node1" / "up").symlink_to("..")
    (run / "pods").symlink_to(elsewhere)
    (run / "gone").symlink_to("nothing")
    os.mkfifo(run / "pipe")
    assert _names(run) == ["a.log", "b.log.xz", "gone", "rank0.log", "state.pt", "pod.log"]


def test_a_directory_without_logs_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["classify", str(tmp_path)]) == 2
    assert "holds no log" in capsys.readouterr().err


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_progress_bar_comes_after_two_seconds_and_only_on_a_terminal(
    is_terminal: bool, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = [_drawn(run, seconds_a_look, is_terminal=is_terminal) for seconds_a_look in (0.1, 1.0)]
    assert "a.log" not in shown[0]
    assert ("rank0.log" in shown[1]) is is_terminal


def _drawn(run: Path, seconds_a_look: float, *, is_terminal: bool) -> str:
    screen = StringIO()
    console = Console(file=screen, force_terminal=is_terminal, width=150)
    clock = _Ticking(seconds_a_look)
    assert classify_logs([str(run)], is_json=False, clock=clock, console=console) == 2
    return screen.getvalue()


class _Ticking(SystemClock):
    """A clock on which every look takes some time."""

    def __init__(self, seconds_a_look: float) -> None:
        super().__init__()
        self._seconds_a_look = seconds_a_look
        self._at = 0.0

    @override
    def now(self) -> float:
        self._at += self._seconds_a_look
        return self._at


def test_ctrl_c_ends_at_once_and_prints_what_is_done(run: Path) -> None:
    arguments = [str(run / "a.log"), "-", str(run / "node1")]
    with subprocess.Popen(
        [sys.executable, "-m", "controller.cli", "classify", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(_XID.encode())
        process.stdin.flush()
        _wait_until_it_reads(process)
        sent_at = time.perf_counter()
        process.send_signal(signal.SIGINT)
        process.wait(20)
        assert time.perf_counter() - sent_at < 2
        assert process.stdout is not None
        assert process.stderr is not None
        out, err = process.stdout.read().decode(), process.stderr.read().decode()
    assert process.returncode == 130
    assert "line 1  SEV1  gpu_driver_error" in out
    assert "standard input  (gpu_driver_error in line 1; interrupted)" in out
    assert err == "unicron classify: interrupted: 1 of 4 files read to the end\n"


def _wait_until_it_reads(process: "subprocess.Popen[bytes]") -> None:
    """Wait until ``process`` has taken in its input and waits for more."""
    while process.poll() is None:
        assert process.stdin is not None
        num_left = fcntl.ioctl(process.stdin, termios.FIONREAD, bytes(4))
        if not any(num_left):
            return
        time.sleep(0.05)
