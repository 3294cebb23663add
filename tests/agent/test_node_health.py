"""Real agent process: what it finds on its node, and how it tells a rank's ends apart."""

import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from nodeagent.protocol.findings import NodeFinding
from nodeagent.protocol.observations import RankExited, RankStarted
from tests.fakes.fake_rank import Script, launch
from tests.fakes.node import AgentNode, FakeController, record_pids, until
from tests.fakes.text_files import append

XID = "[ 812.4] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"
LINK_DOWN = "[ 900.1] mlx5_core 0000:5e:00.0 eth2: Link down\n"
DISK = "[ 950.0] EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: bad header\n"


@pytest.fixture
def kernel_log(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.log"
    path.write_text(XID.replace("3b:00", "86:00"))
    return path


@pytest.fixture
async def node(kernel_log: Path) -> AsyncIterator[AgentNode]:
    """A node whose agent follows a file as the kernel log."""
    node = AgentNode("--kernel-log", str(kernel_log))
    try:
        await node.start()
        yield node
    finally:
        node.remove()


async def messages(controller: FakeController, count: int) -> list[NodeFinding]:
    """Wait for ``count`` findings of the kernel log, and return them."""

    def found() -> list[NodeFinding] | None:
        observations = [report.observation for report in controller.reports]
        findings = [one for one in observations if isinstance(one, NodeFinding)]
        in_kernel_log = [one for one in findings if one.probe == "kernel log"]
        return in_kernel_log if len(in_kernel_log) == count else None

    return await until(found, f"{count} findings of the kernel log")


async def test_kernel_log_is_followed_while_it_is_rotated(
    node: AgentNode, kernel_log: Path
) -> None:
    async with node.controller() as controller:
        append(kernel_log, b"\xff\xfe rubbish\n" + b"x" * 90_000 + b"\n" + XID.encode())
        await messages(controller, 1)
        # All of it comes between two looks.
        assert node.process is not None
        node.process.send_signal(signal.SIGSTOP)
        os.rename(kernel_log, kernel_log.with_suffix(".1"))  # noqa: PTH104 - as a rotation does it
        append(kernel_log.with_suffix(".1"), LINK_DOWN)
        append(kernel_log, "[ 949.0] usb 1-1: new high-speed USB device\n" + DISK)
        node.process.send_signal(signal.SIGCONT)
        await messages(controller, 2)
        os.truncate(kernel_log, 0)
        append(kernel_log, XID.replace("3b:00", "5d:00"))
        found = await messages(controller, 3)
        assert found[0].subject == "PCI 0000:3b:00"
        assert LINK_DOWN.strip() in found[1].text
        assert DISK.strip() in found[1].text
        assert found[2].subject == "PCI 0000:5d:00"


async def test_finding_is_kept_for_a_controller_that_is_away(
    node: AgentNode, kernel_log: Path
) -> None:
    async with node.controller() as controller:
        await controller.welcome()
    append(kernel_log, XID)
    await until(
        lambda: 'finding probe="kernel log" sign=message' in node.log,
        "the finding in the agent's log",
    )
    async with node.controller() as controller:
        await messages(controller, 1)


async def test_agent_says_what_its_probes_do(node: AgentNode, kernel_log: Path) -> None:
    probes = ("gpu", "disk", "memory", "network", "kernel log")
    shown = ("gpu", "disk", "memory", "network", '"kernel log"')
    await until(lambda: all(f"probe={probe} " in node.log for probe in shown), "a line of each")
    status = await node.status()
    assert status.probes.keys() == set(probes)
    assert status.probes["kernel log"] == f"follows {kernel_log}"
    assert "/dev/shm" in status.probes["disk"]


async def test_kill_that_the_kernel_log_explains_is_one_for_memory(
    node: AgentNode, kernel_log: Path
) -> None:
    async with node.controller() as controller:
        await controller.start_ranks(launch(Script()), launch(Script(), global_rank=1, worker=1))
        await controller.reported(RankStarted, 2)
        pids = record_pids(node)
        victim, other = pids["gpt-a.1.0"], pids["gpt-a.1.1"]
        append(
            kernel_log, f"[ 970.0] Out of memory: Killed process {victim} (python) total-vm:1kB\n"
        )
        for pid in (victim, other):
            os.kill(pid, signal.SIGKILL)
        exits = await controller.reported(RankExited, 2)
        ends = {one.pid: (one.signal, one.is_out_of_memory) for one in exits}
        assert ends == {victim: (signal.SIGKILL, True), other: (signal.SIGKILL, False)}
        [finding] = await messages(controller, 1)
        assert str(victim) in finding.text


async def test_agent_of_a_node_without_such_a_file_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / "later.log"
    node = AgentNode("--kernel-log", str(path))
    try:
        await node.start()
        await until(lambda: "No such file" in node.log, "the reason in the agent's log")
        async with node.controller() as controller:
            append(path, XID)
            await messages(controller, 1)
    finally:
        node.remove()


def memory_groups() -> Path | None:
    """Where a control group with a limit can be made, if this user may."""
    if os.geteuid() != 0:
        return None
    root = Path("/sys/fs/cgroup")
    if (root / "memory/memory.oom_control").exists():
        return root / "memory"
    controllers = root / "cgroup.subtree_control"
    has_memory = controllers.exists() and "memory" in controllers.read_text().split()
    return root if has_memory else None


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """A control group of 64 MB in which a process can be killed for memory."""
    root = memory_groups()
    if root is None:
        pytest.skip("no memory control group can be made here")
    group = root / f"unicron-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no memory control group can be made here: {error}")
    for name in ("memory.max", "memory.limit_in_bytes"):
        if (group / name).exists():
            (group / name).write_text("64M")
    if (group / "memory.swap.max").exists():
        (group / "memory.swap.max").write_text("0")
    yield group
    group.rmdir()


@pytest.mark.parametrize("has_log", [True, False])
async def test_rank_that_the_kernel_kills_for_memory_is_told_apart(
    memory_group: Path, tmp_path: Path, *, has_log: bool
) -> None:
    # Without the log only the count of the control group can tell.
    node = AgentNode(*(() if has_log else ("--kernel-log", str(tmp_path / "silent.log"))))
    try:
        await node.start()
        async with node.controller() as controller:
            hungry = Script(num_iterations=20, hungry_in=str(memory_group))
            await controller.start_ranks(launch(hungry))
            exited = await controller.first(RankExited)
            assert (exited.signal, exited.is_out_of_memory) == (signal.SIGKILL, True)
    finally:
        node.remove()
