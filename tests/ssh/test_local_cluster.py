"""The local cluster over real SSH servers, with processes that daemonise on its nodes."""

import asyncio
import os
import signal
import socket
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest
import pytest_asyncio

from controller.localcluster.local_cluster import LocalCluster, LocalClusterError, ServerKind
from controller.localcluster.process_tree import Process, find_process, is_running
from controller.localcluster.ssh.login import log_in
from controller.localcluster.ssh.openssh import OpenSsh
from nodeagent.protocol.ids import NodeId
from tests.fakes.local_nodes import ask_through, run_daemon, run_on
from tests.fakes.node import until

pytestmark = [pytest.mark.ssh, pytest.mark.asyncio(loop_scope="module")]
needs_openssh = pytest.mark.skipif(OpenSsh.find() is None, reason="no sshd installed")
KINDS = [pytest.param(ServerKind.OPENSSH, marks=needs_openssh), ServerKind.ASYNCSSH]


@pytest_asyncio.fixture(params=KINDS, loop_scope="module")
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[LocalCluster]:
    """Two nodes behind each kind of server."""
    async with LocalCluster.start(2, 2, sshd=request.param.value) as cluster:
        yield cluster


@pytest_asyncio.fixture(params=KINDS, loop_scope="module")
async def lone(request: pytest.FixtureRequest) -> AsyncIterator[LocalCluster]:
    """One node behind each kind of server."""
    async with LocalCluster.start(1, 2, sshd=request.param.value) as cluster:
        yield cluster


@pytest_asyncio.fixture(params=KINDS, scope="module", loop_scope="module")
async def shared(request: pytest.FixtureRequest) -> AsyncIterator[LocalCluster]:
    """One node behind each kind of server, for tests that leave it as it was."""
    async with LocalCluster.start(1, 2, sshd=request.param.value) as cluster:
        yield cluster


async def test_four_nodes_stand_apart_and_are_announced_in_one_line() -> None:
    lines: list[str] = []
    async with LocalCluster.start(4, 2, progress=lines.append) as cluster:
        nodes = cluster.nodes
        assert [node.node for node in nodes] == ["n1", "n2", "n3", "n4"]
        assert len({node.port for node in nodes}) == 4
        assert len({node.host_public_key for node in nodes}) == 4
        directories = [cluster.root, *(node.state_dir for node in nodes)]
        assert [stat.S_IMODE(path.stat().st_mode) for path in directories] == [0o700] * 5
        assert len(os.fsencode(nodes[-1].state_dir / "template.sock")) <= 107
        assert lines[-1].startswith("4 nodes behind ")
        assert lines[-1].endswith("on ports " + ", ".join(str(node.port) for node in nodes))
        pids = [cluster.warden_pid, *(pid for node in nodes for pid in cluster.pids(node))]
    assert not any(find_process(pid) for pid in pids)
    assert not cluster.root.exists()


async def test_a_command_runs_as_the_user_with_a_home_of_the_nodes_own(
    shared: LocalCluster,
) -> None:
    node = shared.nodes[0]
    async with await log_in(shared.nodes[0]) as connection:
        failed = await connection.run(
            'echo "$USER $HOME [$PYTHONPATH$VIRTUAL_ENV]"; echo oh >&2; exit 3'
        )
        assert failed.stdout == f"{node.user} {node.state_dir} []\n"
        assert (failed.exit_status, failed.stderr) == (3, "oh\n")
        killed = await connection.run("kill -KILL $$")
        assert killed.returncode == -signal.SIGKILL


async def test_input_and_output_are_binary_and_large(shared: LocalCluster) -> None:
    data = os.urandom(1 << 20)
    async with await log_in(shared.nodes[0]) as connection:
        echoed = await connection.run("cat", input=data, encoding=None, check=True)
    assert echoed.stdout == data


async def test_another_host_key_is_not_accepted(shared: LocalCluster) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
    impostor = replace(shared.nodes[0], host_public_key=other)
    with pytest.raises(asyncssh.HostKeyNotVerifiable):
        await log_in(impostor)


async def test_neither_another_key_nor_another_user_is_let_in(
    shared: LocalCluster, tmp_path: Path
) -> None:
    node = shared.nodes[0]
    stranger = tmp_path / "key"
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(stranger)
    for wrong in (replace(node, client_key_path=stranger), replace(node, user="nobody")):
        with pytest.raises(asyncssh.PermissionDenied):
            await log_in(wrong)


async def test_nothing_is_forwarded_from_the_node_to_the_client(shared: LocalCluster) -> None:
    async with await log_in(shared.nodes[0]) as connection:
        with pytest.raises(asyncssh.ChannelListenError):
            await connection.forward_remote_port("127.0.0.1", 0, "127.0.0.1", 1)


async def test_asyncssh_forwards_only_to_sockets_of_its_own_node() -> None:
    async with LocalCluster.start(2, 1, sshd="asyncssh") as cluster:
        first, second = cluster.nodes
        await run_daemon(second)
        (first.state_dir / "link.sock").symlink_to(second.state_dir / "echo.sock")
        async with await log_in(first) as connection:
            for path in (second.state_dir / "echo.sock", first.state_dir / "link.sock"):
                with pytest.raises(asyncssh.ChannelOpenError):
                    await connection.open_unix_connection(str(path))


async def test_data_flows_both_ways_through_a_unix_socket_on_the_node(
    lone: LocalCluster,
) -> None:
    node = lone.nodes[0]
    await run_daemon(node)
    async with await log_in(node) as connection:
        reader, writer = await connection.open_unix_connection(str(node.state_dir / "echo.sock"))
        for text in (b"one", b"two", b"x" * 200_000):
            writer.write(text + b"\n")
            assert await reader.readline() == text.upper() + b"\n"
        writer.write(b"last\n")
        writer.write_eof()
        assert await reader.read() == b"LAST\n"


async def test_a_cut_ends_sessions_and_leaves_listener_and_daemon_alone(
    cluster: LocalCluster,
) -> None:
    node, other = cluster.nodes
    daemon = await run_daemon(node)
    async with await log_in(node) as connection, await log_in(other) as spared:
        assert await ask_through(connection, node, "before") == "BEFORE"
        reader, _ = await connection.open_unix_connection(str(node.state_dir / "echo.sock"))
        await cluster.cut_connections(node)
        async with asyncio.timeout(5):
            await connection.wait_closed()
        with pytest.raises(asyncssh.ConnectionLost):
            await reader.readexactly(1)
        assert await run_on(spared, "echo here") == "here"
    async with await log_in(node) as connection:
        assert await ask_through(connection, node, "after") == "AFTER"
    assert is_running(daemon)


async def test_a_cut_does_not_end_a_command_that_uses_no_pipe(lone: LocalCluster) -> None:
    node = lone.nodes[0]
    done = node.state_dir / "done"
    command = f"echo $$; until [ -e {node.state_dir}/go ]; do sleep 0.01; done; touch {done}"
    async with (
        await log_in(node) as connection,
        connection.create_process(command) as process,
    ):
        await process.stdout.readline()
        await lone.cut_connections(node)
        await connection.wait_closed()
    (node.state_dir / "go").touch()
    await until(done.exists, "the command went on")


async def test_a_lost_node_is_dead_in_every_process_and_stays_dead(cluster: LocalCluster) -> None:
    lost, other = cluster.nodes
    daemons = [await run_daemon(node) for node in cluster.nodes]
    async with (
        await log_in(lost) as connection,
        # A loop that forks as fast as it can must not outrun the kill.
        connection.create_process("while :; do /bin/true & done"),
    ):
        # Listener, daemon and its child, the loop.
        pids = await until(
            lambda: pids if len(pids := cluster.pids(lost)) >= 4 else None, "the loop runs"
        )
        assert daemons[0].pid in pids
        await cluster.lose_node(lost)
        assert cluster.pids(lost) == []
        assert not any(find_process(pid) for pid in pids)
        async with asyncio.timeout(5):
            await connection.wait_closed()
    with pytest.raises(ConnectionRefusedError):
        await log_in(lost)
    assert is_running(daemons[1])
    assert daemons[1].pid in cluster.pids(other)
    await cluster.lose_node(lost)


async def test_a_restored_node_is_empty_and_the_same(lone: LocalCluster) -> None:
    node = lone.nodes[0]
    await run_daemon(node)
    await lone.lose_node(node)
    assert (node.state_dir / "daemon.pid").exists()
    await lone.restore_node(node.node)
    assert {path.name for path in node.state_dir.iterdir()} <= {"sshd.log"}
    async with await log_in(node) as connection:
        assert await run_on(connection, "echo back") == "back"


async def test_a_killed_host_process_takes_its_node_down_and_nothing_else(
    cluster: LocalCluster,
) -> None:
    node = cluster.nodes[0]
    daemons = [await run_daemon(each) for each in cluster.nodes]
    host_pid = cluster.host_pid(node)
    assert host_pid is not None
    os.kill(host_pid, signal.SIGKILL)
    await until(lambda: not is_running(daemons[0]), "the orphans of the host are dead")
    assert cluster.host_pid(node) is None
    assert cluster.pids(node) == []
    await cluster.lose_node(node)
    await cluster.restore_node(node)
    assert is_running(daemons[1])


async def test_orders_for_several_nodes_at_once_are_all_carried_out(cluster: LocalCluster) -> None:
    async with asyncio.TaskGroup() as group:
        for node in cluster.nodes:
            group.create_task(cluster.lose_node(node))
    assert [cluster.pids(node) for node in cluster.nodes] == [[], []]


async def test_an_unknown_node_is_one_clear_error(shared: LocalCluster) -> None:
    with pytest.raises(LocalClusterError, match="there is no node n9; nodes: n1 to n1"):
        await shared.lose_node(NodeId("n9"))


async def test_a_busy_port_is_one_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LocalClusterError) as caught:
            async with LocalCluster.start(1, 1, base_port=port):
                pass
    assert str(caught.value) == (
        f"port {port} on 127.0.0.1 is in use (node n1): choose another --base-port or leave it out"
    )


async def test_a_given_root_is_used_and_removed_but_never_an_existing_one(tmp_path: Path) -> None:
    root = Path("/tmp") / f"unicron-test-{os.getpid()}"
    async with LocalCluster.start(1, 1, root=root, sshd="asyncssh") as cluster:
        assert cluster.root == root
        assert cluster.nodes[0].state_dir == root / "n1"
    assert not root.exists()
    root.mkdir()
    try:
        with pytest.raises(LocalClusterError, match=f"File exists: {root}"):
            async with LocalCluster.start(1, 1, root=root):
                pass
        assert root.exists()
    finally:
        root.rmdir()


def _broken_sshd(directory: Path) -> None:
    program = directory / "sshd"
    program.write_text("#!/bin/sh\necho 'this sshd is broken' >&2\nexit 255\n")
    program.chmod(0o755)


async def test_an_sshd_that_cannot_serve_is_replaced_and_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _broken_sshd(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    lines: list[str] = []
    async with LocalCluster.start(1, 1, progress=lines.append) as cluster:
        assert cluster.nodes[0].server is ServerKind.ASYNCSSH
    assert lines[0] == (
        f"OpenSSH ({tmp_path}/sshd) can't serve here: this sshd is broken;"
        " using asyncssh's server instead"
    )
    assert lines[1].startswith("1 node behind AsyncSSH ")
    with pytest.raises(LocalClusterError, match=r"can't serve here: this sshd is broken$"):
        async with LocalCluster.start(1, 1, sshd="openssh"):
            pass


@needs_openssh
async def test_a_server_that_ends_is_reported_with_the_last_line_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "sshd"  # accepts the configuration, then ends instead of serving
    program.write_text('#!/bin/sh\n[ "$1" = -t ] && exit 0\necho "no entropy" >&2\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(LocalClusterError, match=r"the server ended \(node n1: no entropy\)"):
        async with LocalCluster.start(2, 1, sshd="openssh"):
            pass


async def test_after_the_wardens_death_orders_fail_clearly(cluster: LocalCluster) -> None:
    daemon = await run_daemon(cluster.nodes[0])
    os.kill(cluster.warden_pid, signal.SIGKILL)
    with pytest.raises(LocalClusterError, match="warden of the demo's processes has ended"):
        await cluster.lose_node(cluster.nodes[0])
    assert not is_running(daemon)
    assert not cluster.root.exists()


async def test_an_exception_in_the_demo_passes_through_and_leaves_nothing() -> None:
    seen: list[tuple[Path, Process]] = []

    async def fail() -> None:
        async with LocalCluster.start(1, 1) as cluster:
            seen.append((cluster.root, await run_daemon(cluster.nodes[0])))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    ((root, daemon),) = seen
    assert not is_running(daemon)
    assert not root.exists()
