"""A command that prints nothing: a stopped process of it is found at any time, and healed."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.demo_runs import command, events_of
from tests.fakes.polling import wait_until

pytestmark = [
    pytest.mark.drill,
    pytest.mark.ssh,
    pytest.mark.timeout(120),
]

LIMIT_S = 60.0
SETTINGS = """\
[policy]
command_settle_s = 1.0
command_proof_s = 1.0
"""
TASKS = '''\
[[task]]
name = "mute"
weight = 1.0
workers = 2
min_workers = 2

[task.command]
argv = ["python", "-c", """
import os, time
time.sleep(4)
open('{ripe}', 'w').close()
while not os.path.exists('{end}'):
    time.sleep(0.05)
"""]

[task.throughput]
points = [{{ workers = 2, flops_per_s = 1.0, layout = {{ tp = 1, pp = 1, dp = 2 }} }}]
'''


def events(log: Path, kind: str) -> list[Any]:
    return [one for one in events_of(log) if one["kind"] == kind and one["source"] == "mute"]


def test_a_stopped_process_is_found_long_after_the_start_and_no_recovery_time_is_made_up(
    short_tmp: Path, tmp_path: Path
) -> None:
    log, ripe, end = (tmp_path / name for name in ("events.jsonl", "ripe", "end"))
    (tmp_path / "tasks.toml").write_text(TASKS.format(end=end, ripe=ripe))
    (tmp_path / "settings.toml").write_text(SETTINGS)
    demo = subprocess.Popen(
        command(
            "--headless", "--json", "--auto-heal", "--event-log", str(log), "--nodes", "1",
            "--tasks", str(tmp_path / "tasks.toml"), "--settings", str(tmp_path / "settings.toml"),
            "--workers-per-node", "2", "--iterations", "1000", "--time-limit", "90",
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TMPDIR": str(short_tmp)},
    )  # fmt: skip
    try:
        # Its processes have lived for longer than they need to count as running, and as proven.
        wait_until(ripe.exists, limit_s=LIMIT_S)
        assert len(events(log, "running")) == 1
        [pid] = [one["pid"] for one in events(log, "rank_started") if one["rank"] == 1]
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: len(events(log, "running")) == 2, limit_s=LIMIT_S)
        end.touch()
        output, _ = demo.communicate(timeout=LIMIT_S)
    finally:
        demo.kill()
        demo.wait()
    assert demo.returncode == 0
    [incident] = json.loads(output)["incidents"]
    assert (incident["status"], incident["rank"]) == ("task_hang", 1)
    assert "stopped by a signal" in incident["reason"]
    assert (incident["action"], incident["state"]) == ("restart", "resolved")
    assert incident["recovery_s"] is None
    [resolved] = [one for one in events_of(log) if one["kind"] == "resolved"]
    assert (
        resolved["text"]
        == "resolved: the processes of mute live; when it trained again is not known"
    )
    assert resolved["took_s"] is None
