"""The rendezvous tables: operations, blocking, repeated calls, and the end of generations."""

import base64
import itertools

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from controller.fleet.rendezvous_tables import RendezvousTables
from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.rendezvous import StoreCall, StoreOperation, StoreReply

_numbers = itertools.count()


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def call(
    operation: StoreOperation,
    *keys: str,
    values: tuple[str, ...] = (),
    amount: int = 0,
    timeout_s: float = 10.0,
    generation: int = 1,
    call_id: str | None = None,
    task: str = "gpt",
) -> StoreCall:
    return StoreCall(
        call_id=call_id if call_id is not None else str(next(_numbers)),
        task=TaskId(task),
        generation=Generation(generation),
        operation=operation,
        keys=list(keys),
        values=[encoded(value) for value in values],
        amount=amount,
        timeout_s=timeout_s,
    )


class Tables:
    """Tables with one-line access for tests: calls at time 0 whose answer is expected at once."""

    def __init__(self) -> None:
        self.tables: RendezvousTables[str] = RendezvousTables()

    def answer(self, one: StoreCall, origin: str = "n1") -> StoreReply:
        replies = self.tables.call(origin, one, 0.0)
        assert replies[0][0] == origin
        assert replies[0][1].call_id == one.call_id
        return replies[0][1]

    def value(self, one: StoreCall) -> str:
        reply = self.answer(one)
        assert reply.value is not None
        return base64.b64decode(reply.value).decode()

    def number(self, one: StoreCall) -> int:
        reply = self.answer(one)
        assert reply.number is not None
        return reply.number


@pytest.fixture
def at() -> Tables:
    return Tables()


def test_set_value_is_returned_by_get(at: Tables) -> None:
    assert at.answer(call("set", "a", values=("x",))).error is None
    assert at.value(call("get", "a")) == "x"
    at.answer(call("set", "a", values=("y",)))
    assert at.value(call("get", "a")) == "y"


def test_add_counts_from_zero_and_stores_decimal_digits(at: Tables) -> None:
    assert at.number(call("add", "n", amount=3)) == 3
    assert at.number(call("add", "n", amount=-1)) == 2
    assert at.value(call("get", "n")) == "2"


def test_append_extends(at: Tables) -> None:
    at.answer(call("append", "a", values=("x",)))
    at.answer(call("append", "a", values=("y",)))
    assert at.value(call("get", "a")) == "xy"


@pytest.mark.parametrize(
    ("before", "expected", "answered", "after"),
    [
        (None, "", "new", "new"),
        (None, "other", "other", None),
        ("old", "old", "new", "new"),
        ("old", "other", "old", "old"),
        ("old", "", "old", "old"),
    ],
)
def test_compare_set_follows_torch(
    at: Tables, before: str | None, expected: str, answered: str, after: str | None
) -> None:
    if before is not None:
        at.answer(call("set", "a", values=(before,)))
    assert at.value(call("compare_set", "a", values=(expected, "new"))) == answered
    assert at.number(call("check", "a")) == int(after is not None)
    if after is not None:
        assert at.value(call("get", "a")) == after


def test_check_delete_and_count(at: Tables) -> None:
    at.answer(call("set", "a", values=("x",)))
    assert at.number(call("check", "a")) == 1
    assert at.number(call("check", "a", "b")) == 0
    assert at.number(call("num_keys")) == 1
    assert at.number(call("delete_key", "a")) == 1
    assert at.number(call("delete_key", "a")) == 0
    assert at.number(call("num_keys")) == 0


def test_get_waits_until_another_origin_sets_the_key(at: Tables) -> None:
    get = call("get", "a")
    assert at.tables.call("n1", get, 0.0) == []
    replies = at.tables.call("n2", call("set", "a", values=("x",)), 1.0)
    assert [origin for origin, _ in replies] == ["n2", "n1"]
    assert replies[1][1] == StoreReply(call_id=get.call_id, value=encoded("x"))


def test_wait_needs_all_of_its_keys(at: Tables) -> None:
    at.tables.call("n1", call("wait", "a", "b"), 0.0)
    assert len(at.tables.call("n2", call("add", "a", amount=1), 0.0)) == 1
    assert len(at.tables.call("n2", call("append", "b", values=("",)), 0.0)) == 2


def test_waiting_call_expires_exactly_at_its_deadline(at: Tables) -> None:
    at.tables.call("n1", call("get", "a", timeout_s=5.0), 100.0)
    at.tables.call("n1", call("wait", "b", timeout_s=7.0), 100.0)
    assert at.tables.expire(104.9) == []
    replies = at.tables.expire(105.0)
    assert [(origin, reply.error) for origin, reply in replies] == [
        ("n1", "a did not appear within 5 s")
    ]


def test_call_without_patience_is_answered_at_once(at: Tables) -> None:
    assert at.answer(call("wait", "a", timeout_s=0)).error == "a did not appear within 0 s"


def test_repeated_add_append_and_compare_set_get_the_remembered_answer(at: Tables) -> None:
    add = call("add", "n", amount=1)
    assert at.answer(add) == at.answer(add, origin="n1 after a reconnect")
    append = call("append", "a", values=("x",))
    assert at.answer(append) == at.answer(append)
    compare = call("compare_set", "lock", values=("", "mine"))
    first = at.answer(compare)
    at.answer(call("set", "lock", values=("else",)))
    assert at.answer(compare) == first
    assert at.value(call("get", "n")) == "1"
    assert at.value(call("get", "a")) == "x"
    assert at.value(call("get", "lock")) == "else"


def test_repeated_get_is_answered_on_its_new_way_only(at: Tables) -> None:
    get = call("get", "a")
    at.tables.call("lost", get, 0.0)
    at.tables.call("new", get, 1.0)
    replies = at.tables.call("n2", call("set", "a", values=("x",)), 2.0)
    assert [origin for origin, _ in replies] == ["n2", "new"]


def test_dropped_generation_answers_its_waiters_and_all_later_calls(at: Tables) -> None:
    at.tables.call("n1", call("get", "a", generation=3), 0.0)
    replies = at.tables.drop(TaskId("gpt"), Generation(3))
    assert [(origin, reply.error) for origin, reply in replies] == [
        ("n1", "generation 3 of gpt has ended")
    ]
    assert at.answer(call("set", "a", values=("x",), generation=2)).error is not None
    assert at.answer(call("set", "a", values=("x",), generation=3)).error is not None
    assert at.answer(call("set", "a", values=("x",), generation=4)).error is None
    assert at.tables.drop(TaskId("gpt"), Generation(3)) == []


def test_newer_generation_ends_the_older_one_of_its_task_only(at: Tables) -> None:
    at.tables.call("n1", call("get", "a"), 0.0)
    at.tables.call("n2", call("get", "a", task="other"), 0.0)
    replies = at.tables.call("n3", call("set", "a", values=("x",), generation=2), 0.0)
    assert [(origin, reply.error) for origin, reply in replies] == [
        ("n1", "generation 1 of gpt has ended"),
        ("n3", None),
    ]


def test_generations_and_tasks_do_not_share_keys(at: Tables) -> None:
    at.answer(call("set", "a", values=("x",)))
    assert at.number(call("check", "a", task="other")) == 0
    assert at.number(call("check", "a", generation=2)) == 0


@pytest.mark.parametrize(
    "bad",
    [
        call("set", "a"),
        call("set", values=("x",)),
        call("get", timeout_s=0),
        call("get", "a", "b", timeout_s=0),
        call("add"),
        call("compare_set", "a", values=("x",)),
        call("num_keys", "a"),
        call("get", "a", values=("x",), timeout_s=0),
        call("set", "a", values=("x",)).model_copy(update={"values": ["not base64!"]}),
    ],
    ids=lambda bad: f"{bad.operation}-{len(bad.keys)}-{len(bad.values)}",
)
def test_senseless_call_is_answered_with_an_error_and_changes_nothing(
    at: Tables, bad: StoreCall
) -> None:
    assert at.answer(bad).error is not None
    assert at.number(call("num_keys")) == 0


def test_adding_to_a_text_is_an_error(at: Tables) -> None:
    at.answer(call("set", "a", values=("text",)))
    assert at.answer(call("add", "a", amount=1)).error == "add to a, which holds no number"
    assert at.value(call("get", "a")) == "text"


@pytest.mark.parametrize("amount", [2**63, -(2**63) - 1])
def test_amounts_are_numbers_of_64_bits_as_in_torch(amount: int) -> None:
    with pytest.raises(ValidationError, match="amount"):
        call("add", "a", amount=amount)


KEYS = st.sampled_from(["a", "b", "c"])
OPERATIONS = st.one_of(
    st.builds(lambda key, value: ("set", key, value), KEYS, st.text(max_size=3)),
    st.builds(lambda key, value: ("append", key, value), KEYS, st.text(max_size=3)),
    st.builds(lambda key: ("get", key, ""), KEYS),
    st.builds(lambda key: ("delete_key", key, ""), KEYS),
)


@given(st.lists(st.tuples(OPERATIONS, st.booleans()), max_size=30))
def test_every_call_is_answered_once_and_like_a_dictionary(
    steps: list[tuple[tuple[StoreOperation, str, str], bool]],
) -> None:
    """Against a plain dictionary; a repeated call (True) must change nothing a second time."""
    tables: RendezvousTables[str] = RendezvousTables()
    model: dict[str, str] = {}
    answered: list[str] = []
    asked: list[str] = []
    for number, ((operation, key, value), is_repeated) in enumerate(steps):
        values = (value,) if operation in {"set", "append"} else ()
        one = call(operation, key, values=values, call_id=str(number))
        asked.append(one.call_id)
        match operation:
            case "set":
                model[key] = value
            case "append":
                model[key] = model.get(key, "") + value
            case "delete_key":
                model.pop(key, None)
            case _:
                assert operation == "get"
        replies = tables.call("n", one, float(number))
        if is_repeated and operation == "append":
            assert tables.call("n", one, float(number)) == replies[:1]
        answered += [reply.call_id for _, reply in replies]
    answered += [reply.call_id for _, reply in tables.expire(1e9)]
    assert sorted(answered, key=int) == asked
    for key in ("a", "b", "c"):
        reply = tables.call("n", call("get", key, timeout_s=0), 0.0)[0][1]
        assert reply.value == (encoded(model[key]) if key in model else None)
