"""The rendezvous store over a unix socket, without ranks: operations, loss of the agent, waking."""

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from nodeagent.process_tools.node_clock import SystemNodeClock
from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.rank.agent_link.rendezvous_store import AgentStore, StoreClosedError, StoreError
from tests.fakes.directories import short_directory
from tests.fakes.rank_host import RankHost

pytestmark = pytest.mark.ranks


@pytest.fixture
def quiet_host() -> Iterator[RankHost]:
    with short_directory() as state_dir:
        host = RankHost(state_dir)
        yield host
        host.close()


def store_at(host: RankHost, caller: str = "0", generation: int = 1) -> AgentStore:
    return AgentStore(
        host.state_dir / "ranks.sock",
        TaskId("gpt"),
        Generation(generation),
        caller=caller,
        monotonic_s=SystemNodeClock().monotonic_s,
    )


def test_all_operations_of_a_torch_store_work(quiet_host: RankHost) -> None:
    store, other = store_at(quiet_host), store_at(quiet_host, "1")
    store.set("a", "text")
    assert other.get("a") == b"text"
    store.set("bytes", b"\x00\xff\n")
    assert other.get("bytes") == b"\x00\xff\n"
    assert store.add("count", 2) == 2
    assert other.add("count", 3) == 5
    assert store.compare_set("lock", "", "mine") == b"mine"
    assert other.compare_set("lock", "", "other") == b"mine"
    store.append("a", b" and more")
    assert other.get("a") == b"text and more"
    assert store.check(["a", "count"])
    assert not store.check(["a", "absent"])
    assert store.num_keys() == 4
    assert store.delete_key("a")
    assert not store.delete_key("a")
    store.wait(["count", "lock"], timedelta(seconds=1))
    store.close()
    other.close()


def test_generations_do_not_share_keys_and_older_ones_end(quiet_host: RankHost) -> None:
    old, new = store_at(quiet_host), store_at(quiet_host, generation=2)
    old.set("a", "old")
    assert not new.check(["a"])
    with pytest.raises(StoreError, match="generation 1 of gpt has ended"):
        old.check(["a"])
    old.close()
    new.close()


def test_wait_for_a_missing_key_ends_with_its_name(quiet_host: RankHost) -> None:
    store = store_at(quiet_host)
    with pytest.raises(StoreError, match=r"absent did not appear within 0\.05 s"):
        store.wait(["absent"], timedelta(seconds=0.05))
    store.close()


def test_closing_wakes_a_blocked_wait_at_once(quiet_host: RankHost) -> None:
    store = store_at(quiet_host)
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            store.wait(["absent"], timedelta(seconds=60))
        except StoreError as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    quiet_host.wait_for(lambda: quiet_host.num_store_calls == 1)
    store.close()
    thread.join(5)
    assert not thread.is_alive()
    assert isinstance(raised[0], StoreClosedError)
    with pytest.raises(StoreClosedError):
        store.set("a", "b")


def test_call_whose_answer_was_lost_is_repeated_and_carried_out_once(quiet_host: RankHost) -> None:
    store = store_at(quiet_host)
    assert store.add("count", 1) == 1
    quiet_host.lose_next_reply()
    assert store.add("count", 1) == 2
    assert quiet_host.num_store_calls == 3
    assert store.get("count") == b"2"
    store.close()


def test_blocked_wait_survives_the_death_of_the_agent(quiet_host: RankHost) -> None:
    store, other = store_at(quiet_host), store_at(quiet_host, "1")
    values: list[bytes] = []
    thread = threading.Thread(target=lambda: values.append(store.get("late")))
    thread.start()
    quiet_host.wait_for(lambda: quiet_host.num_store_calls == 1)
    quiet_host.cut_connections()
    quiet_host.wait_for(lambda: quiet_host.num_store_calls == 2)
    other.set("late", "value")
    thread.join(5)
    assert values == [b"value"]
    store.close()
    other.close()
