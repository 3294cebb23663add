"""Control groups of both versions, inside and outside containers."""

from pathlib import Path

import pytest

from nodeagent.probes.control_groups import (
    memory_group,
    memory_limit_bytes,
    memory_used_bytes,
    num_kills,
    num_kills_of_node,
)
from tests.fakes.text_files import write


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return tmp_path / "proc"


@pytest.fixture
def cgroup(tmp_path: Path) -> Path:
    return tmp_path / "cgroup"


def test_version_2(proc: Path, cgroup: Path) -> None:
    write(proc / "42/cgroup", "0::/user.slice/job\n")
    group = cgroup / "user.slice/job"
    write(group / "memory.events", "oom 2\noom_kill 1\n")
    write(group / "memory.max", "1000\n")
    write(group / "memory.current", "900\n")
    write(group / "memory.stat", "anon 500\ninactive_file 300\n")
    assert memory_group(42, proc, cgroup) == group
    assert (num_kills(group), memory_limit_bytes(group), memory_used_bytes(group)) == (1, 1000, 600)


def test_version_1_beside_an_empty_version_2(proc: Path, cgroup: Path) -> None:
    write(proc / "42/cgroup", "9:cpu:/\n4:memory:/jobs/a\n0::/\n")
    group = cgroup / "memory/jobs/a"
    write(group / "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    write(group / "memory.limit_in_bytes", "9223372036854771712\n")
    write(group / "memory.usage_in_bytes", "900\n")
    assert memory_group(42, proc, cgroup) == group
    assert (num_kills(group), memory_limit_bytes(group)) == (3, None)
    assert memory_used_bytes(group) == 900


def test_container_that_sees_only_its_own_group(proc: Path, cgroup: Path) -> None:
    write(proc / "42/cgroup", "4:memory:/docker/0123\n")
    write(cgroup / "memory/memory.oom_control", "oom_kill 0\n")
    assert memory_group(42, proc, cgroup) == cgroup / "memory"


def test_what_is_not_there_is_unknown(proc: Path, cgroup: Path) -> None:
    assert memory_group(42, proc, cgroup) is None
    write(proc / "42/cgroup", "nonsense\n0::/\n")
    assert memory_group(42, proc, cgroup) is None
    assert num_kills(cgroup) is None
    assert memory_limit_bytes(cgroup) is None
    assert memory_used_bytes(cgroup) is None
    assert num_kills_of_node(proc) is None


def test_node_counts_since_boot(proc: Path) -> None:
    write(proc / "vmstat", "nr_free_pages 1\noom_kill 12\nswap_ra 0\n")
    assert num_kills_of_node(proc) == 12
