"""A few rows of the drill matrix, as a user runs them: real nodes, real ranks."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.drill, pytest.mark.ranks, pytest.mark.ssh, pytest.mark.timeout(600)]


def drill(tmp: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "controller.cli", "drill", *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp)},
    )


@pytest.mark.thorough  # the matrix is data of unit/drill_matrix, and the drill one of test_demo
def test_rows_agree_with_what_is_expected(short_tmp: Path) -> None:
    kinds = ("kill-rank", "kernel-log:line=xid-79")
    options = ("--json", "--no-namespaces", "--only", *kinds, "partition")
    finished = drill(short_tmp, "matrix", *options)
    found: dict[str, Any] = json.loads(finished.stdout)
    rows = {row["kind"]: row for row in found["rows"]}
    assert tuple(rows) == kinds
    assert not any(row["disagreements"] for row in rows.values()), finished.stderr
    assert finished.returncode == 0
    killed = rows["kill-rank"]
    assert killed["observed"]["action"] == "restart"
    assert 0 < killed["detection_s"] < killed["recovery_s"]
    [not_run] = found["not_run"]
    assert not_run["kind"] == "partition"
    assert "--namespaces" in not_run["reason"]


def test_wrong_options_start_nothing(short_tmp: Path) -> None:
    finished = drill(short_tmp, "matrix", "--only", "earthquake")
    assert finished.returncode == 2
    assert finished.stderr.startswith("unicron drill: --only earthquake: unknown")
    assert finished.stderr.count("\n") == 1
