"""The rendezvous tables of the ranks: one key-value table per task and generation.

Ranks form their process groups over ``torch.distributed.Store``. Agents relay each operation as a
``StoreCall``, and the controller answers from these tables. They are pure: no clock, no socket. A
call goes in with an *origin*, for instance its node. Out come pairs of origin and reply: for that
call, and for every call that waited for it. ``get`` and ``wait`` stay here until their keys exist,
or until ``expire`` is called after their deadline.

A rank repeats its call after a lost connection, so a call may arrive twice. If its operation is not
idempotent, the repeated call gets the remembered answer. A repeated ``get`` or ``wait`` replaces
the first one.

A generation ends by ``drop`` or by the first call of a newer generation. Calls that still wait in
it are answered with an error, and so is every later call.
"""

import base64
import binascii
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.rendezvous import StoreCall, StoreOperation, StoreReply

OriginT = TypeVar("OriginT", bound=Hashable)

_REMEMBERED: Final = frozenset[StoreOperation]({"add", "append", "compare_set"})
_BLOCKING: Final = frozenset[StoreOperation]({"get", "wait"})
# Operation: number of keys and of values that it needs; None means any number.
_ARITY: Final[dict[StoreOperation, tuple[int | None, int]]] = {
    "set": (1, 1),
    "get": (1, 0),
    "add": (1, 0),
    "compare_set": (1, 2),
    "wait": (None, 0),
    "check": (None, 0),
    "delete_key": (1, 0),
    "num_keys": (0, 0),
    "append": (1, 1),
}


class _BadCallError(Exception):
    """The call can't be carried out. The rank gets the text."""


@dataclass(slots=True)
class _Waiting(Generic[OriginT]):
    origin: OriginT
    call: StoreCall
    deadline: float


@dataclass(slots=True)
class _Table(Generic[OriginT]):
    value_by_key: dict[str, bytes] = field(default_factory=dict)
    waiting_by_call: dict[str, _Waiting[OriginT]] = field(default_factory=dict)
    answer_by_call: dict[str, StoreReply] = field(default_factory=dict)

    def has_all(self, keys: list[str]) -> bool:
        return all(key in self.value_by_key for key in keys)


class RendezvousTables(Generic[OriginT]):
    """All tables of a controller."""

    def __init__(self) -> None:
        self._tables: dict[tuple[TaskId, Generation], _Table[OriginT]] = {}
        self._dropped_by_task: dict[TaskId, Generation] = {}

    def call(
        self, origin: OriginT, call: StoreCall, now: float
    ) -> list[tuple[OriginT, StoreReply]]:
        """Carry out ``call`` and return every reply that is due now, its own before others.

        Never raises because of a call's content: an invalid call is answered with an error and
        changes nothing. A blocking call with ``timeout_s`` of 0 or less is answered at once.
        """
        if call.generation <= self._dropped_by_task.get(call.task, -1):
            reason = f"generation {call.generation} of {call.task} has ended"
            return [(origin, _failure(call, reason))]
        ended = self._end_older(call.task, call.generation)
        table = self._tables.setdefault((call.task, call.generation), _Table())
        if call.call_id in table.answer_by_call:
            return [*ended, (origin, table.answer_by_call[call.call_id])]
        if call.operation in _BLOCKING and not table.has_all(call.keys) and call.timeout_s > 0:
            waiting = _Waiting(origin, call, now + call.timeout_s)
            table.waiting_by_call[call.call_id] = waiting
            return ended
        reply = _answer(table, call)
        if call.operation in _REMEMBERED:
            table.answer_by_call[call.call_id] = reply
        return [
            *ended,
            (origin, reply),
            *_release(table, lambda each: table.has_all(each.call.keys)),
        ]

    def expire(self, now: float) -> list[tuple[OriginT, StoreReply]]:
        """Answer the calls whose time is over, with an error that names the missing keys."""
        replies: list[tuple[OriginT, StoreReply]] = []
        for table in self._tables.values():
            replies += _release(table, lambda each: each.deadline <= now)
        return replies

    def drop(self, task: TaskId, generation: Generation) -> list[tuple[OriginT, StoreReply]]:
        """End ``generation`` and all older generations of ``task``; return the errors to send."""
        return self._end_older(task, Generation(generation + 1))

    def _end_older(self, task: TaskId, generation: Generation) -> list[tuple[OriginT, StoreReply]]:
        last_ended = Generation(generation - 1)
        if last_ended <= self._dropped_by_task.get(task, -1):
            return []
        self._dropped_by_task[task] = last_ended
        replies: list[tuple[OriginT, StoreReply]] = []
        for key in [key for key in self._tables if key[0] == task and key[1] <= last_ended]:
            reason = f"generation {key[1]} of {task} has ended"
            table = self._tables.pop(key)
            replies += [
                (each.origin, _failure(each.call, reason))
                for each in table.waiting_by_call.values()
            ]
        return replies


def _release(
    table: _Table[OriginT], is_due: Callable[[_Waiting[OriginT]], bool]
) -> list[tuple[OriginT, StoreReply]]:
    due = [waiting for waiting in table.waiting_by_call.values() if is_due(waiting)]
    for waiting in due:
        del table.waiting_by_call[waiting.call.call_id]
    return [(waiting.origin, _answer(table, waiting.call)) for waiting in due]


def _answer(table: _Table[OriginT], call: StoreCall) -> StoreReply:
    try:
        return _carry_out(table.value_by_key, call)
    except _BadCallError as error:
        return _failure(call, str(error))


def _carry_out(value_by_key: dict[str, bytes], call: StoreCall) -> StoreReply:
    num_keys, num_values = _ARITY[call.operation]
    if len(call.values) != num_values or num_keys not in {None, len(call.keys)}:
        raise _BadCallError(
            f"{call.operation} with {len(call.keys)} keys and {len(call.values)} values"
        )
    values = [_decoded(value) for value in call.values]
    reply = StoreReply(call_id=call.call_id)
    match call.operation:
        case "get" | "wait":
            missing = [key for key in call.keys if key not in value_by_key]
            if missing:
                raise _BadCallError(
                    f"{', '.join(missing)} did not appear within {call.timeout_s:g} s"
                )
            if call.operation == "get":
                return _with_value(reply, value_by_key[call.keys[0]])
            return reply
        case "check":
            return _with_number(reply, int(all(key in value_by_key for key in call.keys)))
        case "num_keys":
            return _with_number(reply, len(value_by_key))
        case "delete_key":
            return _with_number(reply, int(value_by_key.pop(call.keys[0], None) is not None))
        case "set" | "append" | "add" | "compare_set":
            return _change(value_by_key, call, values)


def _change(value_by_key: dict[str, bytes], call: StoreCall, values: list[bytes]) -> StoreReply:
    key = call.keys[0]
    reply = StoreReply(call_id=call.call_id)
    match call.operation:
        case "append":
            value_by_key[key] = value_by_key.get(key, b"") + values[0]
        case "add":
            total = _number(key, value_by_key.get(key, b"0")) + call.amount
            value_by_key[key] = str(total).encode()
            return _with_number(reply, total)
        case "compare_set":
            # As torch's own stores do: a missing key equals an empty expected value. With another
            # expected value it is not set, and the answer is the expected value.
            expected, desired = values
            if value_by_key.get(key, b"") == expected and (key in value_by_key or not expected):
                value_by_key[key] = desired
            return _with_value(reply, value_by_key.get(key, expected))
        case _:
            value_by_key[key] = values[0]
    return reply


def _number(key: str, value: bytes) -> int:
    try:
        return int(value)
    except ValueError as error:
        raise _BadCallError(f"add to {key}, which holds no number") from error


def _decoded(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _BadCallError("a value is not base64") from error


def _with_value(reply: StoreReply, value: bytes) -> StoreReply:
    return reply.model_copy(update={"value": base64.b64encode(value).decode()})


def _with_number(reply: StoreReply, number: int) -> StoreReply:
    return reply.model_copy(update={"number": number})


def _failure(call: StoreCall, reason: str) -> StoreReply:
    return StoreReply(call_id=call.call_id, error=reason)
