"""Real agent process: attaching, sessions, and broken connections."""

import asyncio
import socket
from random import Random

import psutil
import pytest

from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.messages import (
    PROTOCOL_VERSION,
    Acknowledge,
    Heartbeat,
    OrderRanksCommand,
    ProbePeerCommand,
)
from nodeagent.protocol.observations import (
    CheckpointSaved,
    IterationCommitted,
    RankExited,
    RankStarted,
)
from nodeagent.protocol.orders import StopOrder
from nodeagent.protocol.rendezvous import StoreReply
from tests.fakes.fake_rank import Script, launch
from tests.fakes.node import LIMIT_S, NODE, AgentNode, num_unacknowledged, record_pids, until


async def test_welcome_and_heartbeats_follow_attach(node: AgentNode) -> None:
    async with node.controller() as controller:
        welcome = await controller.welcome()
        status = await node.status()
        assert (welcome.node, welcome.num_workers, welcome.ranks) == (NODE, 2, [])
        assert (welcome.pid, welcome.agent_id) == (status.pid, status.agent_id)
        beat = await controller.heartbeat(lambda beat: beat.is_template_ready)
        assert 10_000_000 < beat.rss_bytes < 60_000_000


async def test_other_version_is_refused_by_both_names(node: AgentNode) -> None:
    async with node.controller(version=99) as controller:
        reason = await controller.refusal()
        assert "99" in reason
        assert str(PROTOCOL_VERSION) in reason


async def test_other_node_is_refused(node: AgentNode) -> None:
    async with node.controller(node="n9") as controller:
        assert await controller.refusal() == f"this is node {NODE}, not n9"


async def test_older_term_is_refused_and_newer_takes_over(node: AgentNode) -> None:
    async with node.controller(term=2) as first:
        await first.welcome()
        async with node.controller(term=1) as stale:
            assert "term 1 is older than 2" in await stale.refusal()
        assert not first.is_closed
        async with node.controller(term=3) as second:
            await second.welcome()
            await until(lambda: first.is_closed, "the older session is closed")


async def test_term_is_remembered_by_the_next_agent(node: AgentNode) -> None:
    async with node.controller(term=5) as controller:
        await controller.welcome()
    node.kill()
    await node.start()
    async with node.controller(term=4) as stale:
        assert "older than 5" in await stale.refusal()


async def test_malformed_line_closes_that_connection_only(node: AgentNode) -> None:
    async with node.controller() as controller:
        await controller.start_ranks(launch(Script()))
        pids = record_pids(node)
        controller.send_raw(b'{"kind":"nonsense"}\n')
        await until(lambda: controller.is_closed, "the connection is closed")
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(node.state_dir / "ranks.sock"))
        stranger.sendall(b"not json\n")
        stranger.settimeout(5)
        assert stranger.recv(1) == b""
    async with node.controller() as controller:
        assert [rank.pid for rank in (await controller.welcome()).ranks] == list(pids.values())
    assert "nonsense" in node.log
    assert "not json" in node.log


def nonsense() -> list[bytes]:
    """Lines that are no message, of many kinds; the same ones every time."""
    random = Random(7)
    attach = b'{"kind":"attach","version":%d,"node":"n1","run_id":"r"' % PROTOCOL_VERSION
    return [
        *(random.randbytes(random.randint(1, 300)).replace(b"\n", b"?") for _ in range(40)),
        b"[" * 50_000,
        b"{" * 50_000,
        b'"' + b"x" * 90_000 + b'"',
        b'{"kind":"attach","version":1e999}',
        b'{"kind":["attach"],"version":null}',
        b'{"kind":"rank_hello","pid":-1}',
        b'{"kind":"store_call","amount":1' + b"0" * 5000 + b"}",
        attach,
        attach + b',"term":"\xff\xfe"}',
        b"17",
        b"null",
        b"\x00" * 100,
    ]


@pytest.mark.parametrize("name", ["agent.sock", "ranks.sock"])
async def test_whatever_arrives_ends_its_own_connection_and_is_one_line(
    node: AgentNode, name: str
) -> None:
    for line in nonsense():
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.settimeout(5)
            stranger.connect(str(node.state_dir / name))
            stranger.sendall(line + b"\n")
            assert stranger.recv(1) == b"", line[:80]
    await node.status()
    told = [line for line in node.log.splitlines() if "connection closed" in line]
    assert len(told) == len(nonsense())
    assert "Traceback" not in node.log


async def test_reports_are_kept_until_acknowledged(node: AgentNode) -> None:
    async with node.controller() as controller:
        controller.acknowledges = False
        await controller.start_ranks(launch(Script(num_iterations=5)))
        await controller.first_reports(7)  # start, 5 iterations, exit
        controller.send(Acknowledge(seq=3))
        stop = StopOrder(task=TaskId("x"), generation=Generation(1), is_graceful=False)
        controller.send(OrderRanksCommand(command_id="s", order=stop))
        await until(lambda: num_unacknowledged(node.state_dir) == 4, "3 reports are dropped")
        told = controller.reports
    async with node.controller(last_seq=5) as controller:
        assert (await controller.welcome()).first_seq == 4
        assert await controller.first_reports(2) == told[5:]


async def test_another_run_is_refused_while_ranks_live_and_begins_anew_afterwards(
    node: AgentNode,
) -> None:
    async with node.controller() as controller:
        await controller.start_ranks(launch(Script(), generation=7))
        await controller.first(IterationCommitted)
        async with node.controller(run_id="run-2") as other:
            refusal = await other.refusal()
            assert "1 rank(s) of another run live here: run run-1" in refusal
            assert "end it with `unicron down`" in refusal
        [pid] = record_pids(node).values()
        assert psutil.pid_exists(pid)
        order = StopOrder(task=TaskId("gpt-a"), generation=Generation(7), is_graceful=False)
        await controller.do(OrderRanksCommand(command_id="stop", order=order))
        await controller.first(RankExited)
    await until(lambda: not record_pids(node), "the end of the rank")
    async with node.controller(run_id="run-2") as controller:
        welcome = await controller.welcome()
        assert (welcome.first_seq, welcome.ranks) == (1, [])
        done = await controller.start_ranks(launch(Script(), generation=1))
        assert done.error is None
        await controller.first(IterationCommitted)
        assert controller.observed(RankStarted)[0].generation == 1


async def test_rendezvous_call_is_relayed_and_repeated_after_a_reconnect(
    node: AgentNode,
) -> None:
    rank = launch(Script(store_key="address"))
    async with node.controller() as controller:
        await controller.start_ranks(rank)
        call = (await until(lambda: controller.store_calls, "the rank's call"))[0]
        assert (call.operation, call.keys, call.task) == ("get", ["address"], "gpt-a")
    async with node.controller() as controller:
        assert await until(lambda: controller.store_calls, "the same call again") == [call]
        controller.send(StoreReply(call_id=call.call_id, value="42"))
        assert (await controller.first(CheckpointSaved)).num_bytes == 42


async def test_rendezvous_call_survives_the_agent(node: AgentNode) -> None:
    async with node.controller() as controller:
        await controller.start_ranks(launch(Script(store_key="address")))
        call = (await until(lambda: controller.store_calls, "the rank's call"))[0]
    node.kill()
    await node.start()
    async with node.controller() as controller:
        await until(lambda: controller.store_calls == [call], "the same call, same id")


async def test_probe_tells_answered_refused_and_silent(node: AgentNode) -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-fake\r\n")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    # Listens and accepts in the kernel, but never says a word: a stopped server.
    mute = socket.create_server(("127.0.0.1", 0))
    closed = socket.create_server(("127.0.0.1", 0))
    closed_port = closed.getsockname()[1]
    closed.close()
    ports = {
        "answered": server.sockets[0].getsockname()[1],
        "refused": closed_port,
        "silent": mute.getsockname()[1],
    }
    async with node.controller() as controller:
        for expected, port in ports.items():
            limit_s = 0.3 if expected == "silent" else LIMIT_S
            probe = ProbePeerCommand(
                command_id=expected, host="127.0.0.1", port=port, timeout_s=limit_s
            )
            done = await controller.do(probe)
            assert (done.error, done.detail) == (None, expected)
    server.close()
    mute.close()


async def test_slow_controller_gets_every_report_in_order(node: AgentNode) -> None:
    async with node.controller() as controller:
        script = Script(period_s=0.0, num_iterations=3000)
        await controller.start_ranks(launch(script))
        seqs = [report.seq for report in await controller.first_reports(3002)]
        assert seqs == list(range(1, 3003))
        assert any(isinstance(message, Heartbeat) for message in controller.messages)
