"""However the demo ends, nothing of it is left: no process, no socket, no directory."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from controller.store.run_file import read_run
from tests.fakes.demo_runs import command, events_of, processes_under
from tests.fakes.polling import wait_until

pytestmark = [pytest.mark.drill, pytest.mark.ranks, pytest.mark.ssh, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        (signal.SIGTERM, 143),
        # The same lines take it as SIGTERM.
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.thorough),
        (signal.SIGKILL, -9),
    ],
)
def test_nothing_survives_a_signal(
    short_tmp: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    kept = tmp_path / "kept"
    demo = subprocess.Popen(
        command("--nodes", "2", "--workers-per-node", "4", "--keep", str(kept)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(short_tmp)},
    )
    try:
        assert demo.stderr is not None
        for line in demo.stderr:
            if "starts generation" in line:
                break
        assert processes_under(short_tmp), "the demo has started something that could be left"
        demo.send_signal(number)
        _, rest = demo.communicate(timeout=60)
    finally:
        demo.kill()
        demo.communicate()
    assert demo.returncode == code
    assert "Traceback" not in rest
    wait_until(lambda: not processes_under(short_tmp), limit_s=20)
    wait_until(lambda: not list(short_tmp.iterdir()), limit_s=20)
    if number is signal.SIGKILL:
        assert not kept.exists(), "no code runs after SIGKILL"
        return
    machine, _ = read_run(kept)
    assert any(task.generation == 1 for task in machine.state.tasks.values())
    assert any(event["kind"] == "start" for event in events_of(kept / "events.jsonl"))
    assert (kept / "n1" / "agent.log").exists()


def test_a_second_demo_runs_beside_the_first(short_tmp: Path) -> None:
    demos = [
        subprocess.Popen(
            command("--nodes", "2", "--workers-per-node", "4"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(short_tmp)},
        )
        for _ in range(2)
    ]
    try:
        for demo in demos:
            assert demo.stderr is not None
            assert any("attached" in line for line in demo.stderr)
    finally:
        for demo in demos:
            demo.send_signal(signal.SIGINT)
        for demo in demos:
            demo.communicate(timeout=60)
    assert [demo.returncode for demo in demos] == [130, 130]
    assert processes_under(short_tmp) == []
