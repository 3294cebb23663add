"""Rendezvous calls on their way from ranks to the controller and back.

A call waits in a table until its reply comes, the rank's connection closes, or the agent ends. A
controller that attaches again gets every waiting call again: repeating is safe, because tables
recognise a ``call_id``. Call ids are unique per rank process only, so outside the node they are
prefixed with the node and the pid.

Rule for "full": a connection with more than ``MAX_WAITING`` calls is not one of our ranks and is
closed. What a call means is the controller's business.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from nodeagent.process_tools.json_streams import LineChannel
from nodeagent.protocol.codec import ProtocolError
from nodeagent.protocol.ids import NodeId
from nodeagent.protocol.rendezvous import StoreCall, StoreReply

MAX_WAITING: Final = 256


@dataclass(frozen=True, slots=True)
class _Waiting:
    channel: LineChannel
    call_id: str
    call: StoreCall


class StoreRelay:
    """The waiting calls of all ranks of the node."""

    def __init__(self, node: NodeId) -> None:
        self.on_call: Callable[[StoreCall], None] = lambda _call: None
        self._node = node
        self._waiting: dict[str, _Waiting] = {}

    def waiting(self) -> list[StoreCall]:
        """Return the calls without a reply, oldest first, as they travel."""
        return [waiting.call for waiting in self._waiting.values()]

    def call(self, channel: LineChannel, call: StoreCall) -> None:
        """Take a rank's call and pass it on.

        Raises:
            ProtocolError: The connection has too many calls waiting.
        """
        num_waiting = sum(waiting.channel is channel for waiting in self._waiting.values())
        if num_waiting >= MAX_WAITING:
            raise ProtocolError(f"more than {MAX_WAITING} rendezvous calls wait")
        outer_id = f"{self._node}/{channel.peer_pid}/{call.call_id}"
        outer = call.model_copy(update={"call_id": outer_id})
        self._waiting[outer_id] = _Waiting(channel, call.call_id, outer)
        self.on_call(outer)

    def refuse(self, channel: LineChannel, call: StoreCall, reason: str) -> None:
        """Answer a call with an error instead of passing it on."""
        channel.send(StoreReply(call_id=call.call_id, error=reason))

    def reply(self, reply: StoreReply) -> None:
        """Pass a reply to the connection that asked; it may be gone, or have it already."""
        waiting = self._waiting.pop(reply.call_id, None)
        if waiting is not None:
            waiting.channel.send(reply.model_copy(update={"call_id": waiting.call_id}))

    def drop(self, channel: LineChannel) -> None:
        """Forget the calls of a connection that closed."""
        for outer_id in [key for key, one in self._waiting.items() if one.channel is channel]:
            del self._waiting[outer_id]
