"""Losing a node of the recovery benchmark, with real processes, and ending what is left of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness.result_pages import ROOT


@pytest.mark.parametrize("kind", ["lost-node", "killed-node"])
def test_a_lost_node_takes_all_of_its_processes_and_no_others_and_none_is_left_in_the_end(
    kind: str, tmp_path: Path
) -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")])

    done = subprocess.run(
        [sys.executable, "-m", "tests.fakes.lost_node", str(tmp_path), kind],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
