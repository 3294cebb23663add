"""The fleet against nodes of the local cluster: bootstrap, sessions, and every way to lose them."""

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from controller.clock import SystemClock
from controller.core.events import (
    CommandFailed,
    ContactLost,
    NodeAttached,
    Observed,
    PeerProbed,
    RankCommandKind,
    StopCarriedOut,
)
from controller.core.instructions import ProbeNode
from controller.fleet import node_connection
from controller.fleet.address import NodeAddress
from controller.fleet.bundle import build_bundle
from controller.fleet.node_links import SshFleet
from controller.localcluster.local_cluster import LocalCluster, ServerKind
from controller.localcluster.ssh.openssh import OpenSsh
from nodeagent.protocol.codec import encode
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.messages import PROTOCOL_VERSION, Refuse
from nodeagent.protocol.observations import (
    CheckpointSaved,
    IterationCommitted,
    RankExited,
    RankRaised,
    RankStarted,
)
from nodeagent.protocol.orders import StopOrder
from nodeagent.protocol.rank_faults import RankFault
from nodeagent.protocol.regroup import RankRef
from nodeagent.protocol.rendezvous import StoreCall
from tests.fakes.fake_rank import Script, launch
from tests.fakes.fleet_recorder import (
    CountingClock,
    FleetRecorder,
    address_of,
    running_fleet,
    without_template,
    write_python,
)
from tests.fakes.node import num_unacknowledged, status_of, until

pytestmark = pytest.mark.ssh
needs_openssh = pytest.mark.skipif(OpenSsh.find() is None, reason="no sshd installed")
KINDS = [pytest.param(ServerKind.OPENSSH, marks=needs_openssh), ServerKind.ASYNCSSH]

A, G1 = TaskId("gpt-a"), Generation(1)
RANK = RankRef(generation=G1, global_rank=0)
N1, N2 = NodeId("n1"), NodeId("n2")
FAKE_RANKS = ("--template-module", "tests.fakes.fake_template")
HARDENED = ("DisableForwarding yes", "MaxSessions 1")
VERSION = build_bundle().version


@pytest.fixture(params=["socket", pytest.param("bridge", marks=pytest.mark.thorough)])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[LocalCluster]:
    """Two nodes that have never seen an agent; some forbid forwarding."""
    lines = HARDENED if request.param == "bridge" else ()
    async with LocalCluster.start(2, 2, sshd_config=lines) as cluster:
        yield cluster


@pytest.fixture
def address(cluster: LocalCluster) -> NodeAddress:
    """The first node; its agent starts no template."""
    return without_template(cluster.nodes[0])


@pytest.fixture
def with_ranks(cluster: LocalCluster, tmp_path: Path) -> NodeAddress:
    """The first node; its agent forks fake ranks."""
    return address_of(cluster.nodes[0], write_python(tmp_path / "python", *FAKE_RANKS))


@pytest.fixture
def recorder() -> FleetRecorder:
    return FleetRecorder()


async def train(fleet: SshFleet, recorder: FleetRecorder, script: Script) -> None:
    """Have a fake rank follow ``script`` on n1."""
    await recorder.event(NodeAttached)
    fleet.start_ranks(N1, [launch(script)])
    await recorder.event(Observed)


# --- bootstrap -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_an_agent_is_put_on_an_empty_node_and_attaches(
    kind: ServerKind, recorder: FleetRecorder
) -> None:
    async with LocalCluster.start(2, 2, sshd=kind.value) as cluster:
        addresses = [without_template(node) for node in cluster.nodes]
        async with running_fleet(addresses, recorder):
            await recorder.until(lambda: {node for node, _ in recorder.beats} == {N1, N2})
            attached = {event.node: event for event in recorder.of(NodeAttached)}
            assert attached.keys() == {N1, N2}
            for node in cluster.nodes:
                assert not (node.state_dir / "template.log").exists()
                event = attached[node.node]
                assert event.agent_pid in cluster.pids(node)
                assert event.ranks == ()
        assert not recorder.of(ContactLost)
        assert not recorder.notes


async def test_a_living_agent_is_used_and_so_is_code_that_is_there_already(
    address: NodeAddress,
) -> None:
    code = Path(address.state_dir) / "agent"
    attached = []
    for term in (1, 2, 3):
        recorder = FleetRecorder()
        async with running_fleet([address], recorder, term=term):
            attached.append(await recorder.event(NodeAttached))
        assert [path.name for path in code.iterdir()] == [VERSION]
        (code / VERSION / "marker").touch(exist_ok=True)
        if term == 2:
            os.kill(attached[-1].agent_pid, signal.SIGKILL)
    first, second, third = attached
    assert first == second
    assert third.agent_id != first.agent_id
    assert (code / VERSION / "marker").exists()


async def test_a_copy_that_was_broken_off_is_replaced(
    address: NodeAddress, recorder: FleetRecorder
) -> None:
    code = Path(address.state_dir) / "agent"
    half = code / f"{VERSION}.half.tmp" / "nodeagent" / "old"
    half.mkdir(parents=True)
    (half / "junk.py").write_text("broken off")
    (code / f"{VERSION}.half.tmp" / "__main__.py").write_text("import sy")
    os.utime(code / f"{VERSION}.half.tmp", (0, 0))
    async with running_fleet([address], recorder):
        await recorder.event(NodeAttached)
    assert [path.name for path in code.iterdir()] == [VERSION]
    copied = {
        str(path.relative_to(code / VERSION)): path.read_bytes()
        for path in (code / VERSION).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert copied == build_bundle().files


# Over a bridge `start` answers first, and replaces it unasked.
@pytest.mark.parametrize("cluster", ["socket"], indirect=True)
async def test_an_agent_of_another_protocol_version_is_replaced(
    address: NodeAddress, recorder: FleetRecorder
) -> None:
    refusal = Refuse(version=PROTOCOL_VERSION + 1, reason="the controller speaks version 1")

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(encode(refusal))
        writer.close()

    old_agent = await asyncio.start_unix_server(refuse, address.agent_socket)
    async with old_agent, running_fleet([address], recorder):
        note = await recorder.noted()
        await recorder.event(NodeAttached)
    assert note == "the agent on n1 refuses: the controller speaks version 1"
    assert len(recorder.notes) == 1


# --- what an operator has to mend ------------------------------------------------------------


def new_key() -> asyncssh.SSHKey:
    return asyncssh.generate_private_key("ssh-ed25519")


async def test_what_keeps_a_node_out_is_said_in_one_line(
    address: NodeAddress, recorder: FleetRecorder, tmp_path: Path
) -> None:
    stranger, damaged, file = tmp_path / "stranger", tmp_path / "damaged", tmp_path / "file"
    new_key().write_private_key(stranger)
    damaged.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n?\n")
    file.touch()
    at, version = f"at 127.0.0.1:{address.ssh.port}", f"agent/{VERSION}"
    spoilt: dict[NodeId, tuple[dict[str, Any], str]] = {
        NodeId("impostor"): (
            {"host_key": new_key().export_public_key().decode()},
            f"connecting to impostor {at}: the host key is SHA256:",
        ),
        NodeId("stranger"): (
            {"client_key": str(stranger)},
            f"connecting to stranger {at}: the login as {address.ssh.user} with {stranger} is refused: ",
        ),
        NodeId("nobody"): (
            {"user": "nobody"},
            f"connecting to nobody {at}: the login as nobody with {address.ssh.client_key} is refused: ",
        ),
        NodeId("damaged"): (
            {"client_key": str(damaged)},
            f"connecting to damaged {at}: the login key can't be used: ",
        ),
        NodeId("keyless"): (
            {"client_key": "/nowhere/key"},
            f"connecting to keyless {at}: [Errno 2] No such file or directory: '/nowhere/key'",
        ),
        NodeId("pythonless"): (
            {"python": "/nowhere/python3"},
            (
                f"copying the agent to {address.state_dir}/{version} on pythonless: there is no interpreter"
                " /nowhere/python3: name another one as python, in [ssh] or [[nodes]]"
            ),
        ),
        NodeId("below-a-file"): (
            {"state_dir": f"{file}/state"},
            (
                f"copying the agent to {file}/state/{version} on below-a-file: {file}/state/agent:"
                " Not a directory; name another place as state_dir"
            ),
        ),
    }
    addresses = [
        replace(address, node=node, **change)
        if change.keys() <= {"python", "state_dir"}
        else replace(address, node=node, ssh=replace(address.ssh, **change))
        for node, (change, _) in spoilt.items()
    ]
    async with running_fleet(addresses, recorder):
        await recorder.noted(len(spoilt))
    notes = dict(recorder.notes)
    assert notes.keys() == spoilt.keys()
    for node, (_, words) in spoilt.items():
        assert notes[node].startswith(words)
        assert "\n" not in notes[node]
    assert not recorder.events


# Over a bridge `start` answers first, in other words.
@pytest.mark.parametrize("cluster", ["socket"], indirect=True)
async def test_an_agent_of_another_node_is_refused_in_its_words(
    address: NodeAddress, recorder: FleetRecorder
) -> None:
    async with running_fleet([address], recorder):
        await recorder.event(NodeAttached)
    mistaken = FleetRecorder()
    async with running_fleet([replace(address, node=N2)], mistaken):
        assert await mistaken.noted() == "the agent on n2 refuses: this is node n1, not n2"
    assert not mistaken.events


# --- contact lost and found ------------------------------------------------------------------


async def test_a_cut_connection_comes_back_to_the_same_agent(
    cluster: LocalCluster, address: NodeAddress, recorder: FleetRecorder
) -> None:
    async with running_fleet([address], recorder):
        before = await recorder.event(NodeAttached)
        await cluster.cut_connections(N1)
        after = await recorder.event(NodeAttached, 2)
    assert (after.agent_id, after.agent_pid) == (before.agent_id, before.agent_pid)
    [lost] = recorder.of(ContactLost)
    assert lost.node == N1
    assert lost.reason
    kinds = [type(event) for event in recorder.events]
    assert kinds == [NodeAttached, ContactLost, NodeAttached]
    assert not recorder.notes


async def test_a_killed_agent_is_replaced_and_reports_go_on_where_they_were(
    with_ranks: NodeAddress, recorder: FleetRecorder
) -> None:
    async with running_fleet([with_ranks], recorder) as fleet:
        await train(fleet, recorder, Script(period_s=0.02))
        await recorder.until(lambda: len(recorder.seqs) >= 5)
        fleet.acknowledge(N1, 3)
        before = recorder.of(NodeAttached)[0]
        os.kill(before.agent_pid, signal.SIGKILL)
        after = await recorder.event(NodeAttached, 2)
        num_seen = len(recorder.seqs)
        await recorder.until(lambda: len(recorder.seqs) >= num_seen + 5)
    assert after.agent_id != before.agent_id
    assert [(rank.task, rank.global_rank) for rank in after.ranks] == [(A, 0)]
    assert len(recorder.of(ContactLost)) == 1
    assert recorder.seqs == list(range(1, len(recorder.seqs) + 1))
    iterations = [commit.iteration for commit in recorder.observations(IterationCommitted)]
    assert iterations == list(range(1, len(iterations) + 1))
    assert not recorder.notes


async def test_a_lost_node_is_noted_once_and_again_only_after_it_was_back(
    cluster: LocalCluster, address: NodeAddress, recorder: FleetRecorder
) -> None:
    refused = f"connecting to n1 at 127.0.0.1:{address.ssh.port}: connection refused"
    clock = CountingClock()
    async with running_fleet([address], recorder, clock=clock):
        before = await recorder.event(NodeAttached)
        await cluster.lose_node(N1)
        await recorder.event(ContactLost)
        assert await recorder.noted() == refused
        num_reads = clock.num_reads
        await until(lambda: clock.num_reads >= num_reads + 2, "two more attempts")
        assert len(recorder.notes) == 1
        await cluster.restore_node(N1)
        after = await recorder.event(NodeAttached, 2)
        await cluster.lose_node(N1)
        await recorder.noted(2)
    assert after.agent_id != before.agent_id
    assert recorder.notes == [(N1, refused)] * 2


async def test_a_silent_agent_is_out_of_contact_since_its_last_message(
    address: NodeAddress, recorder: FleetRecorder
) -> None:
    clock = SystemClock()
    async with running_fleet([address], recorder, clock=clock) as fleet:
        attached = await recorder.event(NodeAttached)
        os.kill(attached.agent_pid, signal.SIGSTOP)
        try:
            fleet.order_ranks((N1,), StopOrder(task=A, generation=G1, is_graceful=False))
            lost = await recorder.event(ContactLost)
            assert clock.now() - lost.last_message_at >= 1.9  # not the moment when it was noticed
            failed = await recorder.event(CommandFailed)
        finally:
            os.kill(attached.agent_pid, signal.SIGCONT)
        again = await recorder.event(NodeAttached, 2)
    assert lost.reason == "session with the agent on n1: no answer in time"
    assert failed == CommandFailed(
        N1, "stop", A, G1, "contact was lost before the answer", is_outcome_unknown=True
    )
    assert again.agent_id == attached.agent_id


async def test_of_many_nodes_few_are_in_a_handshake_at_once_and_silent_ones_take_no_turn(
    cluster: LocalCluster, recorder: FleetRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that takes no connection may last the whole limit; a living one goes before it."""
    monkeypatch.setattr(node_connection, "_MOST_HANDSHAKES", 1)
    first = without_template(cluster.nodes[0])
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        taken = [socket.create_connection(full.getsockname()) for _ in range(1)]
        silent = [
            replace(first, node=NodeId(f"s{i}"), ssh=replace(first.ssh, port=full.getsockname()[1]))
            for i in range(3)
        ]
        addresses = [*silent, *map(without_template, cluster.nodes)]
        # One turn of a silent node would take 10 s, and there are three.
        async with asyncio.timeout(25), running_fleet(addresses, recorder):
            await recorder.event(NodeAttached, 2)
        for connection in taken:
            connection.close()


@pytest.mark.parametrize(
    ("pauses_s", "stops_agents"), [((1.9, 2.1, 2.4, 2.8, 3.1), False), ((2.3, 3.5), True)]
)
async def test_a_pause_of_the_controller_or_of_the_whole_machine_loses_no_node(
    cluster: LocalCluster,
    recorder: FleetRecorder,
    *,
    pauses_s: tuple[float, ...],
    stops_agents: bool,
) -> None:
    """A loop that is held up is like a process that is stopped: it reads nothing meanwhile."""
    addresses = [without_template(node) for node in cluster.nodes]
    async with running_fleet(addresses, recorder):
        await recorder.event(NodeAttached, 2)
        pids = [event.agent_pid for event in recorder.of(NodeAttached) if stops_agents]
        for pause_s in pauses_s:
            num_beats = len(recorder.beats)
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(pause_s)  # noqa: ASYNC251 - the loop is to be held up
            if pids:
                await asyncio.sleep(0.5)  # the agents take their time to come to again
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            await recorder.has_beats(num_beats + 4)
            assert not recorder.of(ContactLost), f"after {pause_s} s"


# --- commands --------------------------------------------------------------------------------


async def test_a_stop_that_is_carried_out_is_told(
    address: NodeAddress, recorder: FleetRecorder
) -> None:
    async with running_fleet([address], recorder) as fleet:
        await recorder.event(NodeAttached)
        fleet.order_ranks((N1,), StopOrder(task=A, generation=G1, is_graceful=False))
        assert await recorder.event(StopCarriedOut) == StopCarriedOut(N1, A, G1)
        fleet.start_ranks(N1, [launch(Script())])
        failed = await recorder.event(CommandFailed)
    assert (failed.node, failed.task, failed.generation) == (N1, A, G1)
    assert failed.error == "generation 1 of gpt-a was stopped"
    assert not failed.is_outcome_unknown


async def test_drills_reach_the_rank(with_ranks: NodeAddress, recorder: FleetRecorder) -> None:
    async with running_fleet([with_ranks], recorder) as fleet:
        await train(fleet, recorder, Script(period_s=0.05))
        await recorder.observed(IterationCommitted)
        fleet.inject(N1, A, RANK, RankFault(kind="raise"))
        await recorder.observed(RankRaised)
        fleet.inject(N1, A, RANK, RankFault(kind="kill"))
        exited = await recorder.observed(RankExited)
        fleet.inject(N1, A, RANK, RankFault(kind="kill"))
        failed = await recorder.event(CommandFailed)
    assert (exited.signal, exited.is_expected) == (signal.SIGKILL, False)
    assert "no living rank" in failed.error
    assert not failed.is_outcome_unknown


async def test_commands_out_of_contact_end_in_an_unknown_outcome(
    cluster: LocalCluster, address: NodeAddress, recorder: FleetRecorder
) -> None:
    await cluster.lose_node(N1)
    async with running_fleet([address], recorder) as fleet:
        await recorder.noted()
        fleet.start_ranks(N1, [launch(Script())])
        fleet.order_ranks((N1,), StopOrder(task=A, generation=G1, is_graceful=True))
        fleet.inject(N1, A, RANK, RankFault(kind="kill"))
        fleet.probe(ProbeNode(1, N1, (N1,)))
        fleet.acknowledge(N1, 1)
    kinds: tuple[RankCommandKind, ...] = ("start", "stop", "drill")
    assert recorder.events == [
        *(
            CommandFailed(N1, kind, A, G1, "out of contact", is_outcome_unknown=True)
            for kind in kinds
        ),
        PeerProbed(N1, N1, None),
    ]


async def test_peers_tell_whether_a_nodes_ssh_server_answers(
    cluster: LocalCluster, recorder: FleetRecorder
) -> None:
    addresses = [without_template(node) for node in cluster.nodes]
    async with running_fleet(addresses, recorder) as fleet:
        await recorder.event(NodeAttached, 2)
        fleet.probe(ProbeNode(1, N1, (N2,)))
        assert await recorder.event(PeerProbed) == PeerProbed(N1, N2, "answered")
        await cluster.lose_node(N1)
        fleet.probe(ProbeNode(1, N1, (N2,)))
        assert await recorder.event(PeerProbed, 2) == PeerProbed(N1, N2, "refused")
        await recorder.event(ContactLost)
        fleet.probe(ProbeNode(1, N2, (N1,)))
        assert await recorder.event(PeerProbed, 3) == PeerProbed(N2, N1, None)


# --- reports ---------------------------------------------------------------------------------


async def test_reports_are_kept_until_acknowledged_and_posted_once(
    cluster: LocalCluster, with_ranks: NodeAddress, recorder: FleetRecorder
) -> None:
    state_dir = Path(with_ranks.state_dir)
    script = Script(period_s=0.0, num_iterations=5)
    async with running_fleet([with_ranks], recorder) as fleet:
        await train(fleet, recorder, script)
        await recorder.until(lambda: len(recorder.seqs) == 7)
        assert isinstance(recorder.of(Observed)[0].observation, RankStarted)
        assert (await status_of(state_dir)).num_unacknowledged == 7
        await cluster.cut_connections(N1)
        await recorder.event(NodeAttached, 2)
        beats = len(recorder.beats)
        await recorder.has_beats(beats + 1)
        assert recorder.seqs == [1, 2, 3, 4, 5, 6, 7]
        assert (await status_of(state_dir)).num_unacknowledged == 7
        fleet.acknowledge(N1, 5)
        await until(lambda: num_unacknowledged(state_dir) == 2, "the reports up to 5 are dropped")
    later = FleetRecorder()  # a controller whose journal has none of them, in the same run
    async with running_fleet([with_ranks], later, term=2):
        await later.until(lambda: len(later.seqs) == 2)
    assert later.of(Observed) != []
    assert later.seqs == [6, 7]
    assert [text for _, text in later.notes] == ["reports 1 to 5 were dropped by the agent"]


async def test_another_run_of_the_controller_begins_a_new_sequence(
    with_ranks: NodeAddress, recorder: FleetRecorder
) -> None:
    async with running_fleet([with_ranks], recorder) as fleet:
        await train(fleet, recorder, Script(period_s=0.0, num_iterations=2))
        await recorder.until(lambda: len(recorder.seqs) == 4)
    other = FleetRecorder()
    async with running_fleet([with_ranks], other, run_id="run-2") as fleet:
        await train(fleet, other, Script(period_s=0.0, num_iterations=2))
        await other.until(lambda: len(other.seqs) == 4)
    assert other.seqs == [1, 2, 3, 4]
    assert not other.notes


async def test_ranks_meet_through_the_controller_until_a_rendezvous_is_dropped(
    with_ranks: NodeAddress, recorder: FleetRecorder
) -> None:
    call = StoreCall(
        call_id="2", task=A, generation=G1, operation="set", keys=["size"], values=["1234"]
    )
    async with running_fleet([with_ranks], recorder) as fleet:
        await recorder.event(NodeAttached)
        waiting = [
            launch(Script(store_key=key), global_rank=number, worker=number)
            for number, key in enumerate(["size", "never"])
        ]
        fleet.start_ranks(N1, waiting)
        await recorder.until(lambda: len(recorder.observations(RankStarted)) == 2)
        fleet.take_store_call(N1, call)
        saved = await recorder.observed(CheckpointSaved)
        # A fake rank reports the value as it travels, and 0 for an error.
        assert (saved.global_rank, saved.num_bytes) == (0, 1234)
        fleet.drop_rendezvous(A, G1)
        [dropped] = await recorder.until(lambda: recorder.observations(CheckpointSaved)[1:])
    assert (dropped.global_rank, dropped.num_bytes) == (1, 0)
