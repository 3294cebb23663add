"""Which heartbeats reach the core, and as what."""

from dataclasses import replace

import pytest

from controller.core.events import (
    EventBody,
    NodeAdded,
    NodeAnswered,
    NodeFellSilent,
    PolicyChanged,
    RanksListed,
    RankVanished,
    StragglerFound,
    StragglerOver,
    TaskAdvanced,
    TimerFired,
    WaitingChanged,
)
from controller.core.heartbeats.heartbeat_watch import HeartbeatWatch
from controller.core.nodes.bursts import SILENT_S
from controller.core.rules.placement import Worker
from controller.core.rules.policy import Policy
from controller.core.state.phases import NodeCondition
from controller.core.timers import JoinOverdue
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.messages import Heartbeat
from nodeagent.protocol.rank_status import RankStatus
from tests.fakes.world import World
from tests.fakes.world_queries import A, node, running_world, task

N1, N2, N5 = NodeId("n1"), NodeId("n2"), NodeId("n5")
B = TaskId("gpt-b")


@pytest.fixture
def world() -> World:
    world = running_world()
    world.run(world.now + 20.0)  # how long iterations take is known by then
    return world


def take(world: World, name: NodeId, statuses: tuple[RankStatus, ...]) -> list[EventBody]:
    """Return what a heartbeat of the node would tell the core."""
    beat = Heartbeat(wall_s=world.now, rss_bytes=1, is_template_ready=True, ranks=list(statuses))
    return [*world.heartbeats.take(name, beat, world.now, world.now, world.machine.policy)]


def statuses_of(world: World, name: NodeId) -> tuple[RankStatus, ...]:
    return world.statuses(world.nodes[name])


def changed(status: RankStatus, **fields: object) -> RankStatus:
    return status.model_copy(update=fields)


def bodies(world: World, kind: type[EventBody]) -> list[EventBody]:
    return [event.body for event in world.events if isinstance(event.body, kind)]


def test_a_minute_of_training_tells_the_core_nothing_by_heartbeats(world: World) -> None:
    num_events = len(world.events)
    world.run(world.now + 60.0)
    kinds = {type(event.body).__name__ for event in world.events[num_events:]}
    assert kinds <= {"Observed", "TimerFired"}
    assert world.heartbeats.pulses[N1].at >= world.now - 1.0
    assert world.heartbeats.pulses[N1].ranks[0].iteration > 50


def test_other_ranks_than_expected_are_told_each_time_until_the_core_has_what_it_wants(
    world: World,
) -> None:
    [first, *_] = statuses = statuses_of(world, N1)
    stray = changed(first, generation=Generation(7), pid=99)
    for _ in range(2):
        [listed] = take(world, N1, (*statuses, stray))
        assert isinstance(listed, RanksListed)
    assert take(world, N1, statuses) == []
    other_process = (changed(first, pid=99), *statuses[1:])
    assert [type(each) for each in take(world, N1, other_process)] == [RanksListed]


def test_a_process_that_was_ended_and_is_not_listed_frees_its_worker(world: World) -> None:
    task(world).leaving.begin(Generation(7), {0: Worker(N1, 0)})
    [listed] = take(world, N1, statuses_of(world, N1))
    assert isinstance(listed, RanksListed)
    world.post(listed)
    assert task(world).leaving.workers == {}
    assert take(world, N1, statuses_of(world, N1)) == []


def test_a_rank_that_is_not_listed_is_told_once_it_has_been_missing_for_long_enough(
    world: World,
) -> None:
    limit_s = world.machine.policy.vanished_after_s
    [_, *rest] = statuses_of(world, N1)
    since = world.now
    while world.now < since + limit_s - 0.1:
        assert take(world, N1, tuple(rest)) == []
        world.now += limit_s / 4
    world.now = since + limit_s
    [vanished] = take(world, N1, tuple(rest))
    assert vanished == RankVanished(N1, A, task(world).generation, 0, since)


def test_a_rank_that_is_listed_again_meanwhile_has_not_vanished(world: World) -> None:
    limit_s = world.machine.policy.vanished_after_s
    statuses = statuses_of(world, N1)
    assert take(world, N1, statuses[1:]) == []
    world.now += limit_s / 2
    assert take(world, N1, statuses) == []
    world.now += limit_s / 2
    assert take(world, N1, statuses[1:]) == []


def ahead(world: World, by: int) -> tuple[RankStatus, ...]:
    newest = task(world).newest_iteration
    return tuple(changed(each, iteration=newest + by) for each in statuses_of(world, N1))


def test_progress_is_told_if_no_report_of_it_comes(world: World) -> None:
    assert take(world, N1, ahead(world, 1)) == []
    world.now += 0.5
    [advanced] = take(world, N1, ahead(world, 1))
    newest, generation = task(world).newest_iteration, task(world).generation
    assert advanced == TaskAdvanced(N1, A, generation, 0, newest + 1)
    world.post(advanced)
    assert task(world).newest_iteration == newest + 1
    assert task(world).progress.advanced_at == world.now
    assert take(world, N1, ahead(world, 0)) == []
    assert take(world, N1, ahead(world, 1)) == [], "the next one may be about to be reported"


def test_progress_is_told_at_once_while_a_node_of_the_task_is_out_of_contact(world: World) -> None:
    world.cut("n2", 30.0)
    [advanced] = take(world, N1, ahead(world, 1))
    assert isinstance(advanced, TaskAdvanced)


def test_silence_and_the_first_word_after_it_are_told(world: World) -> None:
    said_at = world.now
    world.now += SILENT_S
    [silent] = world.heartbeats.take_silence(N1, said_at)
    assert silent == NodeFellSilent(N1, said_at)
    world.post(silent)
    assert node(world).contact.silent_since == said_at
    [answered] = take(world, N1, statuses_of(world, N1))
    assert answered == NodeAnswered(N1)
    world.post(answered)
    assert node(world).contact.silent_since is None
    assert take(world, N1, statuses_of(world, N1)) == []


def test_the_silence_of_a_node_out_of_contact_is_no_news(world: World) -> None:
    world.cut("n1", 30.0)
    assert world.heartbeats.take_silence(N1, 0.0) == []
    assert world.heartbeats.take_silence(NodeId("n99"), 0.0) == []


def test_a_node_that_lost_a_rank_of_a_parking_task_answers_once(world: World) -> None:
    world.hang_rank("gpt-a", 3)
    world.run_until(lambda: world.machine.state.tasks[A].lifecycle.parking)
    parking = task(world).lifecycle.parking
    assert parking is not None
    assert not parking.is_settled
    dead = next(number for number, rank in task(world).ranks.items() if rank.worker.node == N1)
    task(world).ranks[dead].note_gone()
    parking.note_loss(N1)
    kinds = [type(each) for each in take(world, N1, statuses_of(world, N1))]
    assert NodeAnswered in kinds
    world.post(NodeAnswered(N1))
    kinds = [type(each) for each in take(world, N1, statuses_of(world, N1))]
    assert NodeAnswered not in kinds


def test_a_slow_rank_is_told_after_some_heartbeats_and_its_end_after_as_many(
    world: World,
) -> None:
    statuses = statuses_of(world, N1)
    slow = (changed(statuses[0], busy_s=0.9), *statuses[1:])
    most = world.machine.policy.straggler_beats
    for _ in range(most - 1):
        assert take(world, N1, slow) == []
    [found] = take(world, N1, slow)
    assert isinstance(found, StragglerFound)
    assert (found.global_rank, found.busy_s, found.peers_s) == (0, 0.9, 0.2)
    world.post(found)
    for _ in range(most - 1):
        assert take(world, N1, statuses) == []
    [over] = take(world, N1, statuses)
    assert isinstance(over, StragglerOver)


def test_the_computing_of_an_older_generation_does_not_count(world: World) -> None:
    statuses = statuses_of(world, N1)
    slow = (changed(statuses[0], busy_s=0.9), *statuses[1:])
    for _ in range(world.machine.policy.straggler_beats - 1):
        take(world, N1, slow)
    world.kill_rank("gpt-a", 3)
    world.run_until(lambda: task(world).generation == 2)
    world.run(world.now + 10.0)
    statuses = statuses_of(world, N1)
    assert take(world, N1, (changed(statuses[0], busy_s=0.9), *statuses[1:])) == []


def test_waiting_for_a_core_is_told_when_it_is_worth_a_word_and_has_changed_much(
    world: World,
) -> None:
    def waits(waited_s: float) -> list[EventBody]:
        [first, *rest] = statuses_of(world, N1)
        told = take(world, N1, (changed(first, waited_s=waited_s), *rest))
        for each in told:
            world.post(each)
        return told

    generation = task(world).generation
    assert waits(0.01) == []
    assert waits(0.4) == [WaitingChanged(A, generation, 0.4)]
    assert waits(0.5) == []
    assert waits(0.1) == [WaitingChanged(A, generation, 0.1)]
    assert waits(0.0) == [WaitingChanged(A, generation, 0.0)]
    assert waits(0.01) == []


def test_heartbeats_of_unknown_nodes_are_passed_over(world: World) -> None:
    assert take(world, NodeId("n99"), ()) == []
    assert NodeId("n99") not in world.heartbeats.pulses


def test_a_new_controller_begins_with_an_empty_memory(world: World) -> None:
    watch = HeartbeatWatch(world.machine.state)
    beat = Heartbeat(
        wall_s=world.now, rss_bytes=1, is_template_ready=True, ranks=list(statuses_of(world, N1))
    )
    assert watch.take(N1, beat, world.now, world.now, world.machine.policy) == []


# --- a node that does not come ---------------------------------------------------------------


def test_a_node_that_does_not_come_is_given_up_though_nothing_else_happens() -> None:
    world = running_world()
    world.nodes.clear()  # nobody reports, and no heartbeat comes
    spec = replace(node(world).spec, node=N5, address="n5:22")
    world.agent_start_s = 10**6
    world.post(NodeAdded(spec))
    limit_s = world.machine.policy.join_limit_s
    assert JoinOverdue(N5) in world.timers_set
    assert node(world, "n5").contact.condition is NodeCondition.EXPECTED
    world.now += limit_s
    world.post(TimerFired(JoinOverdue(N5)))
    assert node(world, "n5").contact.condition is NodeCondition.LOST


def test_a_longer_limit_gives_a_node_more_time() -> None:
    world = running_world(policy=Policy(is_auto_heal=True, join_limit_s=20.0))
    spec = replace(node(world).spec, node=N5, address="n5:22")
    world.agent_start_s = 10**6
    world.post(NodeAdded(spec))
    world.post(PolicyChanged(Policy(is_auto_heal=True, join_limit_s=40.0)))
    added_at = node(world, "n5").contact.awaited_since
    world.run(added_at + 30.0)
    assert node(world, "n5").contact.condition is NodeCondition.EXPECTED
    world.run(added_at + 41.0)
    assert node(world, "n5").contact.condition is NodeCondition.LOST
