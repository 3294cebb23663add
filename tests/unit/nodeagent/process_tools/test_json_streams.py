"""Lines over a unix socket, also when one direction is broken."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from nodeagent.process_tools.json_streams import MAX_QUEUED_BYTES, LineChannel, connect, listen
from nodeagent.protocol.codec import ProtocolError
from nodeagent.protocol.local import ReportStored


def pair(max_line_bytes: int = 1000) -> tuple[LineChannel, socket.socket]:
    ours, theirs = socket.socketpair()
    return LineChannel(ours, max_line_bytes), theirs


async def rest_of(channel: LineChannel) -> list[bytes]:
    async with asyncio.timeout(5):
        return [line async for line in channel.lines()]


async def test_last_words_of_a_dead_peer_are_read_though_answers_fail() -> None:
    channel, peer = pair()
    channel.send(ReportStored(seq=0))  # left unread: the kernel resets the connection
    peer.sendall(b"one\ntwo\n")
    peer.close()
    assert await channel.first_line() == b"one"
    for seq in range(3):
        channel.send(ReportStored(seq=seq))
    with pytest.raises(OSError, match="closed"):
        await channel.drain()
    assert await rest_of(channel) == [b"two"]
    channel.close()


async def test_slow_peer_gets_everything_in_order() -> None:
    channel, peer = pair()
    lines = [b"%d %s\n" % (number, b"x" * 5000) for number in range(200)]
    for line in lines:
        channel.send_line(line)
    assert channel.num_queued_bytes
    received = bytearray()

    def read() -> None:
        while len(received) < sum(map(len, lines)):
            received.extend(peer.recv(65536))

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(channel.drain())
        group.create_task(asyncio.to_thread(read))
    assert bytes(received) == b"".join(lines)
    assert channel.num_queued_bytes == 0
    channel.close()
    peer.close()


async def test_peer_that_never_reads_is_cut_off() -> None:
    channel, peer = pair()
    for _ in range(MAX_QUEUED_BYTES // 1_000_000 + 3):
        channel.send_line(b"x" * 1_000_000)
    assert channel.num_queued_bytes == 0
    assert await rest_of(channel) == []
    channel.close()
    peer.close()


async def test_line_that_is_too_long_is_a_protocol_error() -> None:
    channel, peer = pair(max_line_bytes=10)
    peer.sendall(b"x" * 11)
    with pytest.raises(ProtocolError, match="11 bytes"):
        await channel.first_line()
    channel.close()
    peer.close()


async def test_abort_ends_the_task_that_reads() -> None:
    channel, peer = pair()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        reading = group.create_task(rest_of(channel))
        await asyncio.sleep(0)  # it reads now
        channel.abort()
        channel.abort()
    assert reading.result() == []
    channel.close()
    peer.close()


async def test_socket_is_for_this_user_only_and_names_its_peer(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("stale")
    with listen(path) as listener:
        assert path.stat().st_mode & 0o777 == 0o600
        channel = await connect(path)
        assert channel.peer_pid == os.getpid()
        channel.close()
        listener.accept()[0].close()
    with pytest.raises(OSError, match="refused"):
        await connect(path)


async def test_what_a_dead_peer_sent_is_read_to_its_end_though_a_child_holds_it_open() -> None:
    channel, peer = pair()
    held_by_a_child = peer.dup()
    peer.sendall(b"one\ntwo\n")
    peer.close()
    channel.end_input()
    assert await rest_of(channel) == [b"one", b"two"]
    channel.close()
    held_by_a_child.close()


async def test_end_of_input_wakes_who_waits_for_the_next_line() -> None:
    channel, peer = pair()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        reading = group.create_task(rest_of(channel))
        await asyncio.sleep(0)
        channel.end_input()
    assert reading.result() == []
    channel.close()
    peer.close()
