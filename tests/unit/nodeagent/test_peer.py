"""What a probe of an SSH server concludes."""

import asyncio
import socket

import pytest

from nodeagent.probes.peer import PeerAnswer, probe_ssh


async def probe_server(words: bytes) -> PeerAnswer:
    async def say(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(words)
        writer.close()

    async with await asyncio.start_server(say, "127.0.0.1", 0) as server:
        return await probe_ssh(["127.0.0.1"], server.sockets[0].getsockname()[1], 2.0)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", PeerAnswer.ANSWERED),
        (b"HTTP/1.1 400\r\n", PeerAnswer.REFUSED),
        (b"", PeerAnswer.REFUSED),
        (b"SS", PeerAnswer.REFUSED),
    ],
)
async def test_answer_depends_on_the_banner(words: bytes, answer: PeerAnswer) -> None:
    assert await probe_server(words) is answer


async def test_server_that_says_nothing_is_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        assert await probe_ssh(["127.0.0.1"], mute.getsockname()[1], 0.1) is PeerAnswer.SILENT


async def test_one_address_that_answers_is_enough() -> None:
    """``localhost`` may be ``::1`` too, where nobody listens."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-x\r\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await probe_ssh(["localhost"], port, 2.0) is PeerAnswer.ANSWERED


async def test_a_host_without_an_address_leaves_the_other_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        hosts = ["no such host", "127.0.0.1"]
        assert await probe_ssh(hosts, port, 0.1) is PeerAnswer.SILENT
        with pytest.raises(OSError, match=r"not known|resolution|service"):
            await probe_ssh(hosts[:1], port, 0.1)
