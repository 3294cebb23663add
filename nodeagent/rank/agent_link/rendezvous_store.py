"""A ``torch.distributed.Store`` over the agent's unix socket.

Each operation is one ``StoreCall`` line; the agent relays it to the controller, whose tables
answer it (``controller.fleet.rendezvous_tables``). ``TCPStore`` is not used: it opens a port and
makes a reverse name look-up per connection.

After a lost connection (the agent was restarted) the store reconnects and repeats the pending call
with the same ``call_id``. The tables answer a repeated call without executing it twice. Another
thread may call ``close``: a blocked call then raises ``StoreClosedError`` at once. That wakes a
rank that waits for a dead peer.

One connection serves one generation and one thread at a time.
"""

import base64
import itertools
import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter
from torch._C._distributed_c10d import Store  # torch.distributed shows no type checker the name

from nodeagent.protocol.codec import Codec, MessageReader, encode
from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.local import ToRank
from nodeagent.protocol.rendezvous import StoreCall, StoreOperation, StoreReply

DEFAULT_TIMEOUT_S: Final = 3600.0
"""Seconds that a rank waits for its peers.

The controller gives up much sooner, and a halt ends any wait. A replacement that builds a large
model may take minutes.
"""

_CONNECT_TIMEOUT_S: Final = 5.0
_RECONNECT_WAIT_S: Final = 0.1
_REPLY_GRACE_S: Final = (
    30.0  # Added to a call's own timeout, for the way to the controller and back.
)


class StoreError(RuntimeError):
    """The controller answered with an error, for instance because keys did not appear in time."""


class StoreClosedError(StoreError):
    """The store was closed by this rank or by the end of its generation."""


class AgentStore(Store):
    """The rendezvous store of one rank in one generation.

    Args:
        socket_path: The agent's ``ranks.sock``.
        task: Task of the table.
        generation: Generation of the table.
        caller: Unique name of this process in the task. It prefixes the ids of its calls.
        monotonic_s: Clock for the limit on reconnecting.
    """

    def __init__(
        self,
        socket_path: Path,
        task: TaskId,
        generation: Generation,
        *,
        caller: str,
        monotonic_s: Callable[[], float],
    ) -> None:
        super().__init__()
        self._socket_path = socket_path
        self._task = task
        self._generation = generation
        self._caller = caller
        self._monotonic_s = monotonic_s
        self._codec: Codec[ToRank] = Codec(TypeAdapter(ToRank))
        self._connection: socket.socket | None = None
        self._reader = MessageReader(self._codec)
        self._closed = threading.Event()
        self._one_at_a_time = threading.Lock()
        self._timeout = timedelta(seconds=DEFAULT_TIMEOUT_S)
        self._numbers = itertools.count(1)

    def close(self) -> None:
        """End the store. Safe from any thread; a call that is blocked raises at once."""
        self._closed.set()
        connection = self._connection
        if connection is not None:
            _shut_down(connection)
        with self._one_at_a_time:
            self._disconnect()

    # --- operations, with the names and signatures of torch.distributed.Store --------------

    def set(self, key: str, value: str | bytes) -> None:
        """Store ``value``, and replace an older one."""
        self._call("set", [key], [value])

    def get(self, key: str) -> bytes:
        """Return the value, waiting for the key for at most the store's timeout."""
        return _value(self._call("get", [key], timeout=self._timeout))

    def add(self, key: str, amount: int) -> int:
        """Add to a counter, from 0 if there is none, and return the sum."""
        return _number(self._call("add", [key], amount=amount))

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Store ``desired`` if the key holds ``expected``; return what it holds then."""
        return _value(self._call("compare_set", [key], [expected, desired]))

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys exist."""
        self._call("wait", list(keys), timeout=self._timeout if timeout is None else timeout)

    def check(self, keys: list[str]) -> bool:
        """Return whether all keys exist."""
        return bool(_number(self._call("check", list(keys))))

    def append(self, key: str, value: str | bytes) -> None:
        """Add ``value`` to the end of the stored one."""
        self._call("append", [key], [value])

    def delete_key(self, key: str) -> bool:
        """Remove a key; return whether it existed."""
        return bool(_number(self._call("delete_key", [key])))

    def num_keys(self) -> int:
        """Return how many keys the table holds."""
        return _number(self._call("num_keys", []))

    def set_timeout(self, timeout: timedelta) -> None:
        """Change how long ``get`` and ``wait`` wait."""
        self._timeout = timeout

    # torch's C++ side looks up these two methods by their C++ names.
    deleteKey = delete_key  # noqa: N815
    getNumKeys = num_keys  # noqa: N815

    # --- the connection --------------------------------------------------------------------

    def _call(
        self,
        operation: StoreOperation,
        keys: list[str],
        values: list[str | bytes] | None = None,
        *,
        amount: int = 0,
        timeout: timedelta | None = None,
    ) -> StoreReply:
        timeout_s = DEFAULT_TIMEOUT_S if timeout is None else timeout.total_seconds()
        call = StoreCall(
            call_id=f"{self._caller}.{next(self._numbers)}",
            task=self._task,
            generation=self._generation,
            operation=operation,
            keys=keys,
            values=[_encoded(value) for value in values or []],
            amount=amount,
            timeout_s=timeout_s,
        )
        with self._one_at_a_time:
            reply = self._exchange(call, self._monotonic_s() + timeout_s + _REPLY_GRACE_S)
        if reply.error is not None:
            raise StoreError(f"{operation} {' '.join(keys)}: {reply.error}")
        return reply

    def _exchange(self, call: StoreCall, deadline: float) -> StoreReply:
        line = encode(call)
        while True:
            connection = self._connected(deadline)
            connection.settimeout(max(deadline - self._monotonic_s(), 0.001))
            try:
                connection.sendall(line)
                return self._reply_to(call.call_id, connection)
            except TimeoutError as error:
                raise StoreError(f"{call.operation}: no answer from the agent in time") from error
            except OSError:
                self._disconnect()

    def _reply_to(self, call_id: str, connection: socket.socket) -> StoreReply:
        while True:
            data = connection.recv(65536)
            if not data:
                raise ConnectionResetError
            for message in self._reader.feed(data):
                # A reply to an earlier call is a second answer to a repeated call. It is ignored.
                if isinstance(message, StoreReply) and message.call_id == call_id:
                    return message

    def _connected(self, deadline: float) -> socket.socket:
        while self._connection is None:
            if self._closed.is_set():
                raise StoreClosedError("the rendezvous store was closed")
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(_CONNECT_TIMEOUT_S)
            try:
                connection.connect(str(self._socket_path))
            except OSError as error:
                connection.close()
                if self._monotonic_s() > deadline:
                    raise StoreError(f"no agent at {self._socket_path}: {error}") from error
                self._closed.wait(_RECONNECT_WAIT_S)
            else:
                self._connection = connection
                self._reader = MessageReader(self._codec)
        if self._closed.is_set():
            self._disconnect()
            raise StoreClosedError("the rendezvous store was closed")
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _shut_down(connection: socket.socket) -> None:
    # Not close: only shutdown wakes a thread that is inside recv.
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def _encoded(value: str | bytes) -> str:
    data = value.encode() if isinstance(value, str) else bytes(value)
    return base64.b64encode(data).decode()


def _value(reply: StoreReply) -> bytes:
    return base64.b64decode(reply.value or "")


def _number(reply: StoreReply) -> int:
    return reply.number or 0
