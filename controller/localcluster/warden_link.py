"""The demo's end of the socket to the warden: starts the warden, sends orders, and ends it.

One order is sent at a time. Closing the link waits until the warden and all hosts have ended. Then
no process of the nodes and no file of the demo is left. If the demo dies, the warden notices and
does the same.
"""

import asyncio
import os
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Final

from pydantic import BaseModel, TypeAdapter

from controller.localcluster.cluster_errors import LocalClusterError
from controller.localcluster.interpreter import module_argv, module_environment
from controller.localcluster.warden_orders import (
    Answer,
    Hello,
    RootRequest,
    ServerCommand,
    WardenAction,
    WardenOrder,
)
from nodeagent.process_tools.json_streams import LineChannel
from nodeagent.protocol.codec import Codec

_ANSWER_LIMIT_S: Final = 30.0
_END_LIMIT_S: Final = 30.0
_CHUNK_BYTES: Final = 65536
_HELLO: Final = Codec(TypeAdapter(Hello))
_ANSWER: Final = Codec(TypeAdapter(Answer))


class WardenLink:
    """An open link.

    Attributes:
        root: The directory that the warden made.
        gateway: The demo's address on the switch; empty without network namespaces.
        network_error: Why namespaces were requested and are impossible; else empty.
        warden_pid: Process id of the warden.
    """

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        channel: LineChannel,
        stderr: IO[bytes],
    ) -> None:
        self.root = Path()
        self.gateway = ""
        self.network_error = ""
        self.warden_pid = process.pid
        self._process = process
        self._channel = channel
        self._stderr = stderr
        self._lock = asyncio.Lock()
        self._number = 0

    @classmethod
    @asynccontextmanager
    async def open(cls, request: RootRequest) -> AsyncIterator["WardenLink"]:
        """Start a warden; on exit wait until it has cleaned up.

        Raises:
            LocalClusterError: The root directory can't be made, or the warden can't be started.
        """
        ours, theirs = socket.socketpair()
        with tempfile.TemporaryFile() as stderr:
            with theirs:
                process = _start_warden(theirs, stderr)
            link = cls(process, LineChannel(ours), stderr)
            try:
                await link._request_root(request)
                yield link
            finally:
                await link._end()

    async def order(
        self,
        action: WardenAction,
        node: str,
        server: ServerCommand | None = None,
        address: str = "",
    ) -> Answer:
        """Send an order and return its answer; concurrent orders wait for each other.

        Raises:
            LocalClusterError: The order failed, or the warden has ended.
        """
        async with self._lock:
            self._number += 1
            order = WardenOrder(
                number=self._number, action=action, node=node, server=server, address=address
            )
            await self._send(order)
            answer = _ANSWER.decode(await self._receive())
            while answer.number != order.number:  # an earlier one may have been cancelled
                answer = _ANSWER.decode(await self._receive())
        if answer.error:
            raise LocalClusterError(f"{action} of node {node} failed: {answer.error}")
        return answer

    async def _request_root(self, request: RootRequest) -> None:
        await self._send(request)
        hello = _HELLO.decode(await self._receive())
        if hello.error:
            raise LocalClusterError(f"cannot make the demo's directory: {hello.error}")
        self.root = Path(hello.root)
        self.gateway, self.network_error = hello.gateway, hello.network_error

    async def _send(self, message: BaseModel) -> None:
        self._channel.send(message)
        try:
            await self._channel.drain()
        except OSError as error:
            raise self._lost("has ended") from error

    async def _receive(self) -> bytes:
        try:
            async with asyncio.timeout(_ANSWER_LIMIT_S):
                line = await self._channel.first_line()
        except TimeoutError as error:
            raise self._lost("does not answer") from error
        if line is None:
            raise self._lost("has ended")
        return line

    def _lost(self, what: str) -> LocalClusterError:
        # pread, not read: the warden still writes and shares the file's position.
        text = os.pread(self._stderr.fileno(), _CHUNK_BYTES, 0).decode(errors="replace")
        lines = text.split("\n")
        detail = next((f": {line}" for line in reversed(lines) if line.strip()), "")
        return LocalClusterError(f"the warden of the demo's processes {what}{detail}")

    async def _end(self) -> None:
        """Close this end and wait until the last guard has closed its own."""
        try:
            async with asyncio.timeout(_END_LIMIT_S):
                self._channel.end_output()
                while await self._channel.first_line() is not None:
                    pass
        except TimeoutError:
            pass  # the warden cleans up by itself
        finally:
            self._reap()
            self._channel.close()

    def _reap(self) -> None:
        try:
            self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            # The warden still cleans up and then ends; keep Popen from warning about it.
            self._process.returncode = 0


def _start_warden(connection: socket.socket, stderr: IO[bytes]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module
        module_argv("controller.localcluster.warden"),
        stdin=connection.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=stderr.fileno(),
        env={**os.environ, **module_environment()},
        start_new_session=True,  # Ctrl-C and hang-up in the demo's terminal do not reach it
    )
