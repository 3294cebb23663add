"""Events that wait for the core: faults first, a node's own in their order, and not too many."""

import asyncio
from typing import Any

from hypothesis import given, strategies as st

from controller.core.events import ContactLost, EventBody, Observed, PeerProbed, TimerFired
from controller.core.timers import JudgeNode
from controller.server.event_queue import EventQueue
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.observations import IterationCommitted, RankExited

WHO: dict[str, Any] = {"task": TaskId("t"), "generation": Generation(1), "global_rank": 0}


def iteration(node: str, seq: int) -> Observed:
    return Observed(
        NodeId(node), seq, 0.0,
        IterationCommitted(
            **WHO, iteration=seq, loss=1.0, duration_s=1.0, num_tokens=1, grad_norm=None
        ),
    )  # fmt: skip


def exit_of(node: str, seq: int) -> Observed:
    ended = RankExited(**WHO, pid=1, exit_code=1, signal=None, stderr_tail="")
    return Observed(NodeId(node), seq, 0.0, ended)


def taken(queue: EventQueue) -> list[EventBody]:
    return [queue.get_nowait().body for _ in range(len(queue))]


def test_events_are_taken_in_the_order_in_which_they_came() -> None:
    queue = EventQueue()
    probe = PeerProbed(NodeId("n3"), NodeId("n1"), "answered")
    timer = TimerFired(JudgeNode(NodeId("n1")))
    bodies: list[EventBody] = [
        iteration("n1", 1),
        iteration("n2", 1),
        timer,
        iteration("n1", 2),
        probe,
    ]
    for body in bodies:
        queue.put(body, 0.0)
    assert taken(queue) == bodies


def test_a_fault_is_taken_first_with_what_its_node_said_before() -> None:
    queue = EventQueue()
    waiting = [iteration("n1", 1), iteration("n2", 1), iteration("n1", 2), iteration("n2", 2)]
    later = iteration("n2", 4)
    fault = exit_of("n2", 3)
    for body in (*waiting, fault, later):
        queue.put(body, 0.0)
    assert taken(queue) == [waiting[1], waiting[3], fault, waiting[0], waiting[2], later]


def test_the_first_of_two_faults_is_taken_first() -> None:
    queue = EventQueue()
    lost = ContactLost(NodeId("n3"), 1.0, "reset")
    bodies: list[EventBody] = [iteration("n1", 1), lost, exit_of("n1", 2)]
    for body in bodies:
        queue.put(body, 0.0)
    assert taken(queue) == [lost, iteration("n1", 1), exit_of("n1", 2)]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans()), max_size=30))
def test_nothing_is_lost_and_each_node_keeps_its_order(
    steps: list[tuple[str, bool, bool]],
) -> None:
    queue, seqs, found = EventQueue(), dict.fromkeys("abc", 0), list[EventBody]()
    for node, is_fault, takes in steps:
        seqs[node] += 1
        queue.put(exit_of(node, seqs[node]) if is_fault else iteration(node, seqs[node]), 0.0)
        if takes:
            found.append(queue.get_nowait().body)
    found += taken(queue)
    for node, num in seqs.items():
        of_node = [each.seq for each in found if isinstance(each, Observed) and each.node == node]
        assert of_node == list(range(1, num + 1))


async def test_a_full_queue_holds_up_those_who_read_from_nodes() -> None:
    queue, read = EventQueue(most_waiting=4), list[int]()

    async def read_all() -> None:
        for seq in range(1, 6):
            await queue.has_room()
            queue.put(iteration("n1", seq), 0.0)
            read.append(seq)

    async with asyncio.timeout(5.0), asyncio.TaskGroup() as group:
        group.create_task(read_all())
        await asyncio.sleep(0.01)
        assert read == [1, 2, 3, 4]
        queue.put(TimerFired(JudgeNode(NodeId("n1"))), 0.0)  # timers do not wait
        while len(queue) > 2:
            queue.get_nowait()
        await asyncio.sleep(0.01)
        assert read == [1, 2, 3, 4]
        queue.get_nowait()
    assert read == [1, 2, 3, 4, 5]


async def test_get_waits_for_an_event() -> None:
    queue, found = EventQueue(), list[EventBody]()

    async def take() -> None:
        found.append((await queue.get()).body)

    async with asyncio.timeout(5.0), asyncio.TaskGroup() as group:
        group.create_task(take())
        await asyncio.sleep(0.01)
        assert found == []
        queue.put(iteration("n1", 1), 0.0)
    assert found == [iteration("n1", 1)]
