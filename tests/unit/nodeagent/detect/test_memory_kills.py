"""Kills for memory are told from plain ones, by counts and by the kernel's own words."""

import pytest

from nodeagent.detect.memory_kills import NODE, RECENT_S, MemoryKills, kills_in

GROUP = "/sys/fs/cgroup/training"


def named(pid: int) -> bytes:
    return b"[ 1.0] Memory cgroup out of memory: Killed process %d (python) total-vm:9kB" % pid


@pytest.mark.parametrize(
    "line",
    [
        named(42),
        b"Out of memory: Killed process 42 (python3) total-vm:1kB, anon-rss:1kB, UID:0 pgtables:1kB",
        b"[9.1] Out of memory: Kill process 42 (python) score 905 or sacrifice child",
        b"Out of memory (oom_kill_allocating_task): Killed process 42 (python) total-vm:1kB",
        b"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=python,pid=42,uid=1000",
        b"oom_reaper: reaped process 42 (python), now anon-rss:0kB",
    ],
)
def test_kernel_names_the_process(line: bytes) -> None:
    kills = MemoryKills()
    kills.take_lines([b"eth0: link up", line, b"\xff process"], 1.0)
    assert kills.is_killed(42, None, 1.0) is True


def test_without_a_risen_count_a_kill_is_a_plain_one_at_once() -> None:
    kills = MemoryKills()
    kills.take_count(NODE, 7, 0.0)
    kills.take_count(NODE, 7, 5.0)
    assert kills.is_killed(42, None, 5.0) is False


def test_with_a_risen_count_the_log_is_waited_for() -> None:
    kills = MemoryKills()
    kills.take_count(NODE, 7, 0.0)
    kills.take_count(NODE, 8, 5.0)
    assert kills.is_killed(42, None, 5.0) is None
    kills.take_lines([named(42)], 5.5)
    assert kills.is_killed(42, None, 5.5) is True
    assert kills.is_killed(43, None, 5.5) is None
    assert kills.decide(43, None, 6.0) is False


def test_rise_of_long_ago_delays_nothing() -> None:
    kills = MemoryKills()
    kills.take_count(NODE, 7, 0.0)
    kills.take_count(NODE, 8, 1.0)
    assert kills.is_killed(42, None, 1.0 + RECENT_S + 0.1) is False


def test_own_group_knows_better_than_the_node() -> None:
    kills = MemoryKills()
    for count, now_s in ((0, 0.0), (3, 1.0)):
        kills.take_count(NODE, count, now_s)
        kills.take_count(GROUP, 0, now_s)
    assert kills.is_killed(42, GROUP, 1.0) is False


def test_risen_count_of_the_own_group_decides_where_the_log_is_silent() -> None:
    kills = MemoryKills()
    kills.take_count(GROUP, 0, 0.0)
    kills.take_count(GROUP, 1, 1.0)
    assert kills.is_killed(42, GROUP, 1.0) is None
    assert kills.decide(42, GROUP, 2.0) is True
    # One kill explains one end.
    assert kills.decide(43, GROUP, 2.0) is False


def test_log_that_names_another_process_is_believed() -> None:
    kills = MemoryKills()
    kills.take_count(GROUP, 0, 0.0)
    kills.take_count(GROUP, 1, 1.0)
    kills.take_lines([named(7)], 1.0)
    assert kills.decide(42, GROUP, 2.0) is False


def test_group_that_is_forgotten_begins_anew() -> None:
    kills = MemoryKills()
    kills.take_count(GROUP, 0, 0.0)
    kills.take_count(GROUP, 1, 1.0)
    kills.forget(GROUP)
    kills.take_count(GROUP, 5, 2.0)
    assert kills.is_killed(42, GROUP, 2.0) is False


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("low 0\nhigh 3\nmax 17\noom 2\noom_kill 1\noom_group_kill 0\n", 1),
        ("oom_kill_disable 0\nunder_oom 0\noom_kill 4\n", 4),
        ("pgfault 12\n", None),
        ("", None),
    ],
)
def test_counts_are_read_in_every_format(text: str, count: int | None) -> None:
    assert kills_in(text) == count
