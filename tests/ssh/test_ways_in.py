"""Logins against real servers: jump hosts, host keys, keys with a passphrase, and what refuses."""

import asyncio
import os
import signal
import socket
import struct
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import asyncssh
import psutil
import pytest

from controller.core.events import NodeAttached
from controller.fleet import node_connection
from controller.fleet.address import NodeAddress, SshTarget
from controller.fleet.errors import LinkError, PermanentLinkError, TemporaryLinkError
from controller.fleet.host_keys import AcceptedKeys
from controller.fleet.node_connection import SshLogins
from controller.localcluster.local_cluster import LocalCluster
from controller.localcluster.ssh.openssh import OpenSsh
from controller.localcluster.ssh.ssh_server import log_path
from nodeagent.protocol.ids import NodeId
from tests.fakes.directories import short_directory
from tests.fakes.fleet_recorder import FleetRecorder, running_fleet, without_template
from tests.fakes.login_keys import locked_copy, ssh_agent

pytestmark = [
    pytest.mark.ssh,
    pytest.mark.skipif(OpenSsh.find() is None, reason="no sshd installed"),
]
NUM_NODES = 4


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster.start(NUM_NODES, 1, sshd="openssh") as cluster:
        yield cluster


@pytest.fixture
def addresses(cluster: LocalCluster) -> list[NodeAddress]:
    return [without_template(node) for node in cluster.nodes]


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory whose name is short enough for a socket."""
    with short_directory() as directory:
        yield directory


def num_logins(cluster: LocalCluster, number: int) -> int:
    """Return how often somebody has logged in at a node."""
    return log_path(cluster.nodes[number]).read_text().count("Accepted publickey")


async def failure(address: NodeAddress, accepted: AcceptedKeys | None = None) -> LinkError:
    """Return why a node can't be reached. It is one line."""
    async with SshLogins(accepted) as logins:
        with pytest.raises(LinkError) as refused:
            await logins.open(address)
    assert "\n" not in str(refused.value)
    return refused.value


async def all_failures(logins: SshLogins, addresses: list[NodeAddress]) -> list[LinkError]:
    """Return why none of these nodes can be reached, when all are tried at once."""
    failures: list[LinkError] = []

    async def attempt(address: NodeAddress) -> None:
        with pytest.raises(LinkError) as refused:
            await logins.open(address)
        failures.append(refused.value)

    async with asyncio.TaskGroup() as group:
        for address in addresses:
            group.create_task(attempt(address))
    return failures


async def name_of(address: NodeAddress, accepted: AcceptedKeys | None = None) -> str:
    """Return what a command prints on a node."""
    async with SshLogins(accepted) as logins, await logins.open(address) as connection:
        done = await connection.run("echo here", check=True)
    return str(done.stdout).strip()


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def sessions_of(cluster: LocalCluster, number: int) -> list[int]:
    """Return the processes that serve connections to a node."""
    server = cluster._servers[cluster.nodes[number].node]
    assert server is not None
    return [each.pid for each in psutil.Process(server.pid).children(recursive=True)]


def behind(address: NodeAddress, *jumps: NodeAddress) -> NodeAddress:
    return replace(address, jumps=tuple(jump.ssh for jump in jumps))


async def test_nodes_behind_two_jump_hosts_share_one_connection_to_each(
    cluster: LocalCluster, addresses: list[NodeAddress]
) -> None:
    outer, inner, *targets = addresses
    before = [num_logins(cluster, number) for number in range(NUM_NODES)]
    recorder = FleetRecorder()
    ways = [behind(target, outer, inner) for target in targets]
    async with running_fleet(ways, recorder):
        await recorder.event(NodeAttached, len(targets))
    after = [num_logins(cluster, number) for number in range(NUM_NODES)]
    assert [new - old for old, new in zip(before, after, strict=True)] == [1, 1, 1, 1]
    assert not recorder.notes


async def test_a_lost_connection_to_a_jump_host_is_made_anew(
    cluster: LocalCluster, addresses: list[NodeAddress]
) -> None:
    outer, _, *targets = addresses
    recorder = FleetRecorder()
    async with running_fleet([behind(target, outer) for target in targets], recorder):
        await recorder.event(NodeAttached, 2)
        before = num_logins(cluster, 0)
        await cluster.cut_connections(NodeId("n1"))
        await recorder.event(NodeAttached, 4)
    assert num_logins(cluster, 0) == before + 1


async def test_a_jump_host_that_refuses_is_asked_once_for_all(
    cluster: LocalCluster, addresses: list[NodeAddress]
) -> None:
    outer, _, *targets = addresses
    wrong = replace(outer, ssh=replace(outer.ssh, user="nobody"))
    log = log_path(cluster.nodes[0])
    before = log.read_text().count("user nobody")
    async with SshLogins() as logins:
        failures = await all_failures(logins, [behind(target, wrong) for target in targets * 20])
    (text,) = {str(each).partition(": ")[2] for each in failures}
    assert text.startswith(f"the jump host {outer.ssh.place}: the login as nobody with ")
    assert "(ssh-copy-id), or name another user or identity" in text
    assert all(
        isinstance(each, PermanentLinkError) and each.retry_after_s >= 30 for each in failures
    )
    assert log.read_text().count("user nobody") - before <= 2  # lines about one login


async def test_few_logins_are_under_way_through_a_jump_host(
    addresses: list[NodeAddress], monkeypatch: pytest.MonkeyPatch
) -> None:
    outer, _, target, _ = addresses
    under_way, most = 0, 0
    handshake = SshLogins._handshake

    async def watched(self: SshLogins, to: SshTarget, **ways: object) -> object:
        nonlocal under_way, most
        if to == outer.ssh:
            return await handshake(self, to, **ways)  # type: ignore[arg-type]
        under_way += 1
        most = max(most, under_way)
        try:
            return await handshake(self, to, **ways)  # type: ignore[arg-type]
        finally:
            under_way -= 1

    monkeypatch.setattr(SshLogins, "_handshake", watched)
    async with SshLogins() as logins:
        async with asyncio.TaskGroup() as group:
            opened = [group.create_task(logins.open(behind(target, outer))) for _ in range(24)]
        for each in opened:
            each.result().abort()
    assert most == 8


async def test_a_jump_host_that_forwards_nothing_is_named() -> None:
    # The jump host is a server of its own, so that the nodes keep their forwarding.
    lines = ("AllowTcpForwarding no",)
    async with LocalCluster.start(2, 1, sshd_config=lines) as closed:
        jump, target = map(without_template, closed.nodes)
        error = await failure(behind(target, jump))
    assert isinstance(error, PermanentLinkError)
    assert f"the jump host does not forward to {target.ssh.place}" in str(error)
    assert "AllowTcpForwarding" in str(error)


async def test_hashed_names_and_authorities_in_known_hosts_are_believed(
    addresses: list[NodeAddress], cluster: LocalCluster, tmp_path: Path
) -> None:
    ssh = addresses[0].ssh
    hashed = tmp_path / "hashed"
    hashed.write_text(ssh.known_hosts_line)
    run("ssh-keygen", "-q", "-H", "-f", str(hashed))
    assert "127.0.0.1" not in hashed.read_text()
    known = replace(ssh, host_key="", known_hosts=(str(tmp_path / "none"), str(hashed)))
    assert await name_of(replace(addresses[0], ssh=known)) == "here"
    other = replace(known, known_hosts=(str(tmp_path / "none"),))
    error = await failure(replace(addresses[0], ssh=other))
    assert "no known_hosts file has the host key SHA256:" in str(error)
    assert "--accept-new" in str(error)


async def test_a_revoked_host_key_is_refused(addresses: list[NodeAddress], tmp_path: Path) -> None:
    ssh, known = addresses[0].ssh, tmp_path / "known"
    known.write_text(f"{ssh.known_hosts_line}@revoked * {ssh.host_key}\n")
    revoked = replace(ssh, host_key="", known_hosts=(str(known),))
    error = await failure(replace(addresses[0], ssh=revoked))
    assert "known_hosts revokes the host key of [127.0.0.1]:" in str(error)


async def test_a_certificate_of_an_authority_is_believed(tmp_path: Path) -> None:
    authority = asyncssh.generate_private_key("ssh-ed25519")
    # A key of another kind beside the one by which the local cluster knows the server.
    host = asyncssh.generate_private_key("ecdsa-sha2-nistp256")
    host.write_private_key(tmp_path / "host")
    (tmp_path / "host").chmod(0o600)
    certificate = authority.generate_host_certificate(host, "node", principals=["127.0.0.1"])
    certificate.write_certificate(tmp_path / "host-cert.pub")
    lines = (f"HostKey {tmp_path}/host", f"HostCertificate {tmp_path}/host-cert.pub")
    known = tmp_path / "known"
    known.write_text(f"@cert-authority [127.0.0.1]:* {authority.export_public_key().decode()}")
    async with LocalCluster.start(1, 1, sshd_config=lines) as cluster:
        address = without_template(cluster.nodes[0])
        address = replace(address, ssh=replace(address.ssh, host_key="", known_hosts=(str(known),)))
        assert await name_of(address) == "here"
        stranger = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
        known.write_text(f"@cert-authority [127.0.0.1]:* {stranger}")
        assert "no known_hosts file has the host key" in str(await failure(address))


async def test_a_fingerprint_pins_the_host_key(addresses: list[NodeAddress]) -> None:
    ssh = addresses[0].ssh
    fingerprint = asyncssh.import_public_key(ssh.host_key).get_fingerprint()
    pinned = replace(addresses[0], ssh=replace(ssh, host_key=fingerprint))
    assert await name_of(pinned) == "here"
    stranger = asyncssh.generate_private_key("ssh-ed25519").get_fingerprint()
    error = await failure(replace(pinned, ssh=replace(ssh, host_key=stranger)))
    assert f"the host key is {fingerprint}, and the cluster file pins {stranger}" in str(error)


async def test_new_hosts_are_accepted_once_and_hold_from_then_on(
    addresses: list[NodeAddress], tmp_path: Path
) -> None:
    ssh = replace(addresses[0].ssh, host_key="")
    address = replace(addresses[0], ssh=ssh)
    told: list[str] = []
    file = tmp_path / "known_hosts"
    fingerprint = asyncssh.import_public_key(addresses[0].ssh.host_key).get_fingerprint()
    strict = AcceptedKeys(file)
    assert "no known_hosts file has" in str(await failure(address, strict))
    assert not file.exists()
    assert (
        await name_of(address, AcceptedKeys(file, accepts_new=True, announce=told.append)) == "here"
    )
    assert told == [f"accepts the host key {fingerprint} of {ssh.place}"]
    assert file.stat().st_mode & 0o777 == 0o600
    assert await name_of(address, strict) == "here"
    # Another key of a host that is known is never accepted.
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    file.write_text(f"{ssh.name_in_known_hosts} {other}")
    error = await failure(address, AcceptedKeys(file, accepts_new=True, announce=told.append))
    assert f"the host key has changed: it is {fingerprint}, and was SHA256:" in str(error)
    assert f"ssh-keygen -R '[127.0.0.1]:{ssh.port}' -f {file}" in str(error)
    assert len(told) == 1
    assert error.retry_after_s >= 30


async def test_a_key_with_a_passphrase_needs_an_agent_that_holds_it(
    addresses: list[NodeAddress], monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    plain = Path(addresses[0].ssh.client_key)
    locked = locked_copy(plain, directory / "locked")
    address = replace(addresses[0], ssh=replace(addresses[0].ssh, client_key=str(locked)))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    text = str(await failure(address))
    assert (
        f"{locked} has a passphrase, which nobody can type here, and SSH_AUTH_SOCK is not set"
        in text
    )
    assert f"ssh-add {locked}" in text
    with ssh_agent(directory) as place:
        monkeypatch.setenv("SSH_AUTH_SOCK", place)
        assert "the ssh-agent does not hold it" in str(await failure(address))
        run("ssh-add", "-q", str(plain))
        assert await name_of(address) == "here"
        without = replace(address, ssh=replace(address.ssh, client_key=""))
        assert await name_of(without) == "here"
    assert "does not answer" in str(await failure(address))


async def test_a_crowded_server_is_named_with_its_setting() -> None:
    async with LocalCluster.start(1, 1, sshd_config=("MaxStartups 1:100:1",)) as cluster:
        address = without_template(cluster.nodes[0])
        with socket.create_connection((address.ssh.host, address.ssh.port)) as waiting:
            assert waiting.recv(8).startswith(b"SSH-")
            error = await failure(address)
        assert isinstance(error, TemporaryLinkError)
        assert "larger MaxStartups in sshd_config" in str(error)
        assert 2 <= error.retry_after_s <= 10
        # The other one has gone, and the link tries again.
        recorder = FleetRecorder()
        async with running_fleet([address], recorder):
            await recorder.event(NodeAttached)


RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing resets


@pytest.mark.parametrize("says", [b"", b"Not allowed at this time\r\n", RESET])
async def test_a_server_that_penalises_this_address_is_left_alone_for_a_while(
    addresses: list[NodeAddress], says: bytes
) -> None:
    """As OpenSSH 9.8 and later do with addresses whose logins have failed."""
    num_asked = 0

    def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal num_asked
        num_asked += 1
        if says == RESET:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        else:
            writer.write(says)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        address = replace(addresses[0], ssh=replace(addresses[0].ssh, port=port))
        error = await failure(address)
        assert isinstance(error, TemporaryLinkError)
        assert "PerSourcePenaltyExemptList" in str(error)
        assert error.retry_after_s >= 30
        recorder = FleetRecorder()
        async with running_fleet([address], recorder):
            await recorder.noted()
            await asyncio.sleep(3.0)
        assert num_asked == 2
        # Through a jump host nobody sees what the server said.
        behind_jump = await failure(behind(address, addresses[1]))
        assert "PerSourcePenaltyExemptList" in str(behind_jump)


async def test_a_machine_that_says_nothing_runs_into_the_limit(
    addresses: list[NodeAddress], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_connection, "CONNECT_LIMIT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        ssh = replace(addresses[0].ssh, port=silent.getsockname()[1])
        direct = replace(addresses[0], ssh=ssh)
        assert str(await failure(direct)).endswith(": no answer in time")
        assert str(await failure(behind(direct, addresses[1]))).endswith(": no answer in time")


async def test_a_frozen_jump_host_is_noticed_and_left(
    cluster: LocalCluster, addresses: list[NodeAddress], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection stays open and says nothing: keepalives end it."""
    monkeypatch.setattr(node_connection, "_KEEPALIVE_S", 0.3)
    monkeypatch.setattr(node_connection, "CONNECT_LIMIT_S", 1.0)
    jump, target = addresses[0], addresses[1]
    async with SshLogins() as logins:
        async with await logins.open(behind(target, jump)):
            sessions = sessions_of(cluster, 0)
            for pid in sessions:
                os.kill(pid, signal.SIGSTOP)
            try:
                with pytest.raises(LinkError):
                    await logins.open(behind(target, jump))
                await asyncio.sleep(1.5)
            finally:
                for pid in sessions:
                    os.kill(pid, signal.SIGCONT)
        before = num_logins(cluster, 0)
        async with await logins.open(behind(target, jump)) as connection:
            assert str((await connection.run("echo here")).stdout) == "here\n"
    assert num_logins(cluster, 0) == before + 1, "the frozen connection was left"
