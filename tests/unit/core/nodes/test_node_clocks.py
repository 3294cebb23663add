"""A node's clock, as its heartbeats tell of it: how far it is off, and that it is told once."""

import pytest

from controller.core.events import (
    Event,
    EventBody,
    NodeAttached,
    UncordonRequested,
)
from controller.core.heartbeats.heartbeat_watch import HeartbeatWatch
from controller.core.instructions import Announce, AnswerRequest
from controller.core.nodes.node_clocks import clock_offset_s
from controller.core.rules.policy import Policy
from nodeagent.protocol.ids import AgentId, NodeId
from nodeagent.protocol.messages import Heartbeat
from tests.fakes.clusters import demo_machine

N5 = NodeId("n5")
NOON_S = 1_790_000_000.0
BEAT_S = 0.5


class Watched:
    """A machine that hears one node without ranks."""

    def __init__(self) -> None:
        self.machine = demo_machine(num_nodes=5, policy=Policy(clock_limit_s=1.0))
        self.heartbeats = HeartbeatWatch(self.machine.state)
        self.now, self.number, self.num_changes = 0.0, 0, 0
        self.told: list[tuple[str, str]] = []
        self.attach("a1")

    def post(self, body: EventBody) -> None:
        self.number += 1
        for each in self.machine.handle(Event(self.number, self.now, body)):
            if isinstance(each, Announce) and each.kind == "finding":
                self.told.append((each.level, each.text))

    def attach(self, agent: str) -> None:
        self.heartbeats.begin_session(N5, (), self.now)
        self.post(NodeAttached(N5, AgentId(agent), 1, ()))

    def beats(self, number: int, *, ahead_s: float, travel_s: float = 0.01) -> None:
        """Let heartbeats come from a node whose clock is ahead, or behind if negative."""
        for _ in range(number):
            self.now += BEAT_S
            received_s = NOON_S + self.now
            sent_s = received_s - travel_s + ahead_s
            beat = Heartbeat(wall_s=sent_s, rss_bytes=1, is_template_ready=True, ranks=[])
            policy = self.machine.policy
            for change in self.heartbeats.take(N5, beat, received_s, self.now, policy):
                self.num_changes += 1
                self.post(change)

    def answer_to_uncordon(self) -> str:
        """Have an operator ask for the node; return the answer."""
        event = Event(self.number + 1, self.now, UncordonRequested("r", "op", N5))
        found = self.machine.handle(event)
        [answer] = [each.message for each in found if isinstance(each, AnswerRequest)]
        return answer

    @property
    def found(self) -> list[str]:
        return [one.text for one in self.machine.state.nodes[N5].findings.present.values()]


def test_the_offset_is_known_after_ten_heartbeats_and_is_the_smallest_age() -> None:
    assert clock_offset_s([0.2] * 9) is None
    assert clock_offset_s([0.2] * 9 + [0.05]) == pytest.approx(-0.05)
    assert clock_offset_s([-3.0] * 10) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("ahead_s", "words"),
    [
        (30.0, "clock: the clock is 30.0 s ahead of the controller's (limit 1 s)"),
        (-30.0, "clock: the clock is 30.0 s behind the controller's (limit 1 s)"),
    ],
)
def test_a_clock_that_is_off_is_told_once_and_once_when_it_is_right_again(
    ahead_s: float, words: str
) -> None:
    node = Watched()
    node.beats(40, ahead_s=ahead_s)
    assert node.told == [("warning", words)]
    assert len(node.found) == 1
    node.beats(40, ahead_s=0.0)
    assert [level for level, _ in node.told] == ["warning", "info"]
    assert "back to normal" in node.told[1][1]
    assert not node.found


def test_heartbeats_that_are_held_up_are_no_clock_that_is_behind() -> None:
    node = Watched()
    for _ in range(10):
        node.beats(9, ahead_s=0.0, travel_s=3.0)
        node.beats(1, ahead_s=0.0)
    assert not node.told


def test_a_clock_at_the_limit_is_not_told_again_and_again() -> None:
    node = Watched()
    for _ in range(5):
        node.beats(10, ahead_s=1.1)
        node.beats(10, ahead_s=0.9)
    assert len(node.told) == 1


def test_a_new_agent_does_not_set_the_clock_right() -> None:
    node = Watched()
    node.beats(10, ahead_s=5.0)
    node.attach("a2")
    assert node.found
    node.beats(10, ahead_s=5.0)
    assert len(node.told) == 1


def test_what_was_under_way_when_a_session_ended_says_nothing_about_the_next() -> None:
    node = Watched()
    node.beats(9, ahead_s=5.0)
    node.attach("a1")
    node.beats(1, ahead_s=5.0)
    assert not node.found


def test_a_clock_that_is_off_does_not_keep_a_node_out_of_service() -> None:
    node = Watched()
    node.beats(10, ahead_s=5.0)
    assert node.found
    node.machine.state.nodes[N5].service.isolated = "isolated by I-1: ECC errors"
    assert node.answer_to_uncordon() == "n5 is back in service"
