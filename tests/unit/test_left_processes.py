"""A test that fails leaves no process: the next one finds none."""

import subprocess
import sys
from pathlib import Path

TESTS = """
import subprocess

import psutil
import pytest

LEFT = []


@pytest.fixture(scope="session")
def shared():
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_that_fails(shared):
    words = ["sh", "-c", "sleep 60 & echo $!; wait"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    LEFT.extend([process.pid, int(process.stdout.readline())])
    assert not LEFT


def test_after_it(shared):
    assert len(LEFT) == 2
    for pid in LEFT:
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert shared.poll() is None, "a process of a fixture lives on"
"""


def test_a_failed_test_leaves_no_process(tmp_path: Path) -> None:
    path = tmp_path / "test_two.py"
    path.write_text(TESTS)
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.fakes.left_processes",
        "-W",
        "error",
    ]
    done = subprocess.run(
        [*words, "-c", "/dev/null", "--rootdir", str(tmp_path), str(path)],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
