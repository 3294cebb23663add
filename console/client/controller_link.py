"""The connection to a controller's API socket: JSON lines, reconnected for ever.

One task owns the connection: it reads, turns every message into an event and resolves the replies
that commands wait for. After one whole view the controller sends only changes. The link makes each
next view of them, so that the rest of the console sees whole views. Whatever goes wrong becomes a
``LinkChanged`` event with a reason, and the next attempt follows after a delay that doubles up to
``MAX_DELAY_S``.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError
from typing_extensions import override

from console.client.source import ControllerSource, Inbox, NoReplyError
from console.viewmodel.console_state import Link, LinkPhase
from console.viewmodel.reducer import LinkChanged, Received
from controller.api.view_changes import ChangesError, applied
from controller.api.views import ClusterView
from controller.api.wire import (
    API_VERSION,
    Changes,
    Command,
    FollowChanges,
    FromServer,
    Greeting,
    Reply,
    Snapshot,
)

MAX_LINE_BYTES: Final = 32 * 1024 * 1024
FIRST_DELAY_S: Final = 0.2
MAX_DELAY_S: Final = 5.0
GREETING_TIMEOUT_S: Final = 5.0
REPLY_TIMEOUT_S: Final = 10.0

_FROM_SERVER: Final[TypeAdapter[FromServer]] = TypeAdapter(FromServer)


class LinkLostError(Exception):
    """The connection can't be had or is over. The text says why, for the operator."""


class IncompatibleError(LinkLostError):
    """The controller speaks another version of the API."""


class ApiLink(ControllerSource):
    """A ``ControllerSource`` on a controller's unix socket."""

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float],
        *,
        first_delay_s: float = FIRST_DELAY_S,
        reply_timeout_s: float = REPLY_TIMEOUT_S,
    ) -> None:
        self._path = path
        self._clock = clock
        self._first_delay_s = first_delay_s
        self._reply_timeout_s = reply_timeout_s
        self._writer: asyncio.StreamWriter | None = None
        self._replies: dict[str, asyncio.Future[Reply]] = {}

    @property
    @override
    def socket_path(self) -> Path:
        return self._path

    @override
    async def run(self, inbox: Inbox) -> None:
        delay_s = self._first_delay_s
        while True:
            phase, reason = LinkPhase.LOST, ""
            try:
                async with asyncio.timeout(GREETING_TIMEOUT_S) as greeting_timeout:
                    reader = await self._connect()
                    await self._greeted(reader, inbox)
                    greeting_timeout.reschedule(None)
                    delay_s = self._first_delay_s
                    await self._read(reader, inbox)
            except TimeoutError:
                reason = f"the controller sent no greeting within {GREETING_TIMEOUT_S:.0f} s"
            except IncompatibleError as error:
                phase, reason, delay_s = LinkPhase.INCOMPATIBLE, str(error), MAX_DELAY_S
            except LinkLostError as error:
                reason = str(error)
            finally:
                self._close()
            now = self._clock()
            inbox.put(LinkChanged(Link(phase, now, reason, now + delay_s)))
            await asyncio.sleep(delay_s)
            delay_s = min(MAX_DELAY_S, 2 * delay_s)

    @override
    async def send(self, command: Command) -> Reply:
        """Send ``command`` and wait for its reply, at most ``reply_timeout_s``."""
        if self._writer is None:
            raise NoReplyError("not connected, nothing was sent")
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._replies[command.request_id] = reply
        try:
            async with asyncio.timeout(self._reply_timeout_s):
                self._writer.write(command.model_dump_json().encode() + b"\n")
                await self._writer.drain()
                return await reply
        except TimeoutError:
            raise NoReplyError(f"no reply within {self._reply_timeout_s:.0f} s") from None
        except OSError as error:
            raise NoReplyError(f"connection lost: {error.strerror or error}") from error
        finally:
            del self._replies[command.request_id]

    async def _connect(self) -> asyncio.StreamReader:
        try:
            reader, self._writer = await asyncio.open_unix_connection(
                self._path, limit=MAX_LINE_BYTES
            )
        except OSError as error:
            raise LinkLostError(connect_failure(self._path, error)) from error
        return reader

    async def _greeted(self, reader: asyncio.StreamReader, inbox: Inbox) -> None:
        message = await _next_message(reader)
        if not isinstance(message, Greeting):
            raise LinkLostError(f"expected a greeting, got {message.kind}")
        if message.version != API_VERSION:
            raise IncompatibleError(
                f"the controller has API version {message.version}, this console needs {API_VERSION}"
            )
        now = self._clock()
        inbox.put(LinkChanged(Link(LinkPhase.LIVE, now)))
        inbox.put(Received(now, message))
        if self._writer is not None:
            self._writer.write(FollowChanges().model_dump_json().encode() + b"\n")

    async def _read(self, reader: asyncio.StreamReader, inbox: Inbox) -> None:
        view: ClusterView | None = None
        while True:
            message = await _next_message(reader)
            if isinstance(message, Reply):
                reply = self._replies.get(message.request_id)
                if reply is not None and not reply.done():
                    reply.set_result(message)
                continue
            if isinstance(message, Changes):
                message = Snapshot(view=_changed(view, message))
            if isinstance(message, Snapshot):
                view = message.view
            inbox.put(Received(self._clock(), message))

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(NoReplyError("the connection was lost before the reply"))


def _changed(view: ClusterView | None, message: Changes) -> ClusterView:
    if view is None:
        raise LinkLostError("the controller sent changes of a view that it has not sent")
    try:
        return applied(view, message.fields)
    except ChangesError as error:
        raise LinkLostError(f"the controller sent changes that do not fit: {error}") from error


async def _next_message(reader: asyncio.StreamReader) -> FromServer:
    try:
        line = await reader.readline()
    except ValueError as error:
        raise LinkLostError(f"the controller sent a line over {MAX_LINE_BYTES} bytes") from error
    except OSError as error:
        raise LinkLostError(f"connection lost: {error.strerror or error}") from error
    if not line.endswith(b"\n"):
        raise LinkLostError("the controller closed the connection")
    try:
        return _FROM_SERVER.validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "message"
        raise LinkLostError(f"the controller sent {place}: {first['msg']}") from error


def connect_failure(path: Path, error: OSError) -> str:
    """Return in words why nobody could be reached at ``path``."""
    match error:
        case FileNotFoundError():
            return f"no controller socket at {path}"
        case ConnectionRefusedError():
            return f"no controller listens at {path}"
        case PermissionError():
            return f"{path} belongs to another user"
        case _:
            return f"can't connect to {path}: {error.strerror or error}"
