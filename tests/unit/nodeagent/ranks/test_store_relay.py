"""Rendezvous calls find their way back."""

import socket
from collections.abc import Iterator

import pytest

from nodeagent.process_tools.json_streams import LineChannel
from nodeagent.protocol.codec import ProtocolError
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.rendezvous import StoreCall, StoreReply
from nodeagent.ranks.store_relay import MAX_WAITING, StoreRelay


def call(call_id: str) -> StoreCall:
    return StoreCall(
        call_id=call_id, task=TaskId("gpt-a"), generation=Generation(1), operation="num_keys"
    )


class Rank:
    """A store connection, seen from both ends."""

    def __init__(self, pid: int) -> None:
        ours, self.peer = socket.socketpair()
        self.peer.setblocking(False)
        self.channel = LineChannel(ours)
        self.channel.peer_pid = pid

    def reply(self) -> StoreReply:
        return StoreReply.model_validate_json(self.peer.recv(65536))

    def close(self) -> None:
        self.channel.close()
        self.peer.close()


@pytest.fixture
async def ranks() -> Iterator[tuple[Rank, Rank]]:  # type: ignore[misc]
    both = Rank(11), Rank(12)
    yield both
    for rank in both:
        rank.close()


async def test_equal_ids_of_two_ranks_are_told_apart(ranks: tuple[Rank, Rank]) -> None:
    relay = StoreRelay(NodeId("n1"))
    sent: list[StoreCall] = []
    relay.on_call = sent.append
    for rank in ranks:
        relay.call(rank.channel, call("1"))
    assert [one.call_id for one in sent] == ["n1/11/1", "n1/12/1"]
    relay.reply(StoreReply(call_id="n1/12/1", number=2))
    relay.reply(StoreReply(call_id="n1/11/1", number=1))
    assert [rank.reply() for rank in ranks] == [
        StoreReply(call_id="1", number=1),
        StoreReply(call_id="1", number=2),
    ]
    assert relay.waiting() == []


async def test_reply_that_comes_twice_or_for_nobody_is_dropped(ranks: tuple[Rank, Rank]) -> None:
    relay = StoreRelay(NodeId("n1"))
    relay.call(ranks[0].channel, call("1"))
    for _ in range(2):
        relay.reply(StoreReply(call_id="n1/11/1"))
    assert ranks[0].reply() == StoreReply(call_id="1")
    with pytest.raises(BlockingIOError):
        ranks[0].peer.recv(1)


async def test_closed_connection_drops_its_calls_only(ranks: tuple[Rank, Rank]) -> None:
    relay = StoreRelay(NodeId("n1"))
    for rank in ranks:
        relay.call(rank.channel, call("1"))
    relay.drop(ranks[0].channel)
    assert [one.call_id for one in relay.waiting()] == ["n1/12/1"]


async def test_too_many_waiting_calls_are_a_protocol_error(ranks: tuple[Rank, Rank]) -> None:
    relay = StoreRelay(NodeId("n1"))
    for number in range(MAX_WAITING):
        relay.call(ranks[0].channel, call(str(number)))
    with pytest.raises(ProtocolError, match="256"):
        relay.call(ranks[0].channel, call("more"))
    relay.call(ranks[1].channel, call("1"))
