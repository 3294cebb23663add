"""`unicron check` on real servers."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controller.demo.playground import write_cluster_file
from controller.localcluster.local_cluster import LocalCluster
from controller.localcluster.ssh.openssh import OpenSsh
from tests.fakes.playgrounds import unicron

pytestmark = [
    pytest.mark.ssh,
    pytest.mark.skipif(OpenSsh.find() is None, reason="no sshd installed"),
]


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster.start(2, 4, sshd_config=("DisableForwarding yes",)) as cluster:
        yield cluster


def check(path: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        unicron("check", str(path), *options), capture_output=True, text=True, check=False
    )


async def findings(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the findings that do not depend on this machine, and the exit code."""
    done = await asyncio.to_thread(check, path, "--json")
    found = json.loads(done.stdout)["findings"]
    return [
        each for each in found if each["subject"] not in {"disk", "kernel log"}
    ], done.returncode


async def test_a_good_cluster_has_a_table_and_no_finding(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    path = write_cluster_file(tmp_path / "c", None, cluster.nodes)
    found, code = await findings(path)
    assert found == []
    assert code in {0, 1}
    shown = await asyncio.to_thread(check, path)
    assert "bridge" in shown.stdout, "the server forbids forwarding"
    assert "torch 2." in shown.stdout
    assert "2 nodes: 0 errors" in shown.stdout
    assert "[2/2] n" in shown.stderr
    assert not list((tmp_path / "c").rglob(".unicron-check-*"))


async def test_time_limits_and_folders_are_looked_at_too(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    path = write_cluster_file(tmp_path / "c", None, cluster.nodes)
    path.write_text(f"{path.read_text()}\n[policy]\nunreachable_limit_s = 5.0\n")
    [found], code = await findings(path)
    assert (found["subject"], code) == ("time limits", 1)
    broken = tmp_path / "broken.toml"
    broken.write_text("[cluster]\n")
    done = await asyncio.to_thread(check, broken)
    assert done.returncode == 2
    assert str(broken) in done.stderr
