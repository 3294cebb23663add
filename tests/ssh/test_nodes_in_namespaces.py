"""Nodes in network namespaces of their own: cut off without a reset, healed, and nothing left.

They need root and iproute2; nothing smaller than the kernel can show what a cut link does.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.localcluster.cluster_errors import LocalClusterError
from controller.localcluster.interpreter import module_argv, module_environment
from controller.localcluster.local_cluster import LocalCluster
from controller.localcluster.local_node import LocalNode
from controller.localcluster.namespaces import UPLINK_PREFIX
from controller.localcluster.process_tree import find_process, is_running
from controller.localcluster.ssh.login import log_in
from nodeagent.probes.peer import PeerAnswer
from tests.fakes.local_nodes import ask_through, no_leftovers, run_daemon, run_on
from tests.fakes.node import until


def has_namespaces() -> bool:
    """Whether this machine lets us make them."""
    unshare = shutil.which("unshare")
    if os.geteuid() != 0 or shutil.which("ip") is None or unshare is None:
        return False
    links = "ip link add name b type bridge && ip link add name u type veth peer name v"
    tried = subprocess.run([unshare, "-n", "sh", "-c", links], capture_output=True, check=False)
    return tried.returncode == 0


pytestmark = [
    pytest.mark.ssh,
    pytest.mark.skipif(not has_namespaces(), reason="no network namespaces here"),
]
REPO = Path(__file__).parents[2]
PROBE = "import asyncio, sys; from nodeagent.probes.peer import probe_ssh; "
PROBE += "print(asyncio.run(probe_ssh([sys.argv[1]], int(sys.argv[2]), float(sys.argv[3]))))"
SILENT_AFTER_S = 1.0
ANSWER_LIMIT_S = 10.0


def uplinks() -> set[str]:
    """Return the demo's interfaces in our own namespace."""
    return {
        link.name
        for link in Path("/sys/class/net").iterdir()
        if link.name.startswith(UPLINK_PREFIX)
    }


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    before = uplinks()
    with no_leftovers():
        yield
    assert uplinks() <= before


async def seen_from(
    peer: LocalNode, node: LocalNode, limit_s: float = ANSWER_LIMIT_S
) -> PeerAnswer:
    """Return what a probe of ``node`` finds that runs on ``peer``, within ``limit_s``."""
    async with await log_in(peer) as connection:
        probe = f"cd {REPO} && {sys.executable} -c '{PROBE}' {node.host} {node.port} {limit_s}"
        said = await run_on(connection, probe)
    return PeerAnswer(said)


async def test_a_node_that_is_cut_off_is_silent_and_goes_on_when_it_is_joined_again() -> None:
    lines: list[str] = []
    async with LocalCluster.start(2, 1, network="namespaces", progress=lines.append) as cluster:
        one, two = cluster.nodes
        assert cluster.has_namespaces
        assert f"in network namespaces of their own, at {one.host}:{one.port}" in lines[-1]
        assert len(uplinks()) >= 1
        daemon = await run_daemon(one)
        async with await log_in(one) as connection:
            await cluster.unplug(one)
            assert await seen_from(two, one, SILENT_AFTER_S) is PeerAnswer.SILENT
            async with asyncio.TaskGroup() as group:
                asked = group.create_task(ask_through(connection, one, "hello"))
                assert not (await asyncio.wait([asked], timeout=0.3))[0]
                await cluster.plug_in(one)
            assert asked.result()  # it was sent again: the connection was never reset
        assert await seen_from(two, one) is PeerAnswer.ANSWERED
        assert is_running(daemon)

        await cluster.unplug(one)
        await cluster.restore_node(one)
        assert await seen_from(two, one) is PeerAnswer.ANSWERED


async def test_nodes_on_the_loopback_can_not_be_cut_off() -> None:
    async with LocalCluster.start(1, 1) as cluster:
        assert not cluster.has_namespaces
        with pytest.raises(
            LocalClusterError, match="unplug of node n1 failed: n1: the nodes share one network"
        ):
            await cluster.unplug(cluster.nodes[0])


async def test_nothing_is_left_of_namespaces_when_demo_and_warden_are_killed() -> None:
    before = uplinks()
    owner = subprocess.Popen(  # noqa: ASYNC220 - a fork, and done
        [*module_argv("tests.fakes.demo_owner"), "auto", "namespaces"],
        env={**os.environ, **module_environment()},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert owner.stdout is not None
    try:
        facts = json.loads(await asyncio.to_thread(owner.stdout.readline))
        processes = [each for pid in facts["pids"] if (each := find_process(pid)) is not None]
        assert uplinks() - before
        owner.kill()
        os.kill(facts["warden"], signal.SIGKILL)
        await until(
            lambda: not any(is_running(each) for each in processes) and uplinks() <= before,
            "no process and no link is left",
        )
        assert not os.path.exists(facts["root"])  # noqa: ASYNC240, PTH110 - no disk to wait for
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()
