"""The reducer keeps the newest views, drops old ones, and follows each action to its effect."""

from dataclasses import replace

from hypothesis import given, strategies as st

from console.viewmodel.activity import ActionPhase, DrillEffect, PlanEffect, ProposalEffect
from console.viewmodel.console_state import Link, LinkPhase, State, is_recovering, why_not_current
from console.viewmodel.reducer import (
    ARMED_FOR_S,
    MAX_ACTIVITIES,
    MAX_LOG_LINES,
    ActionAnswered,
    ActionBlocked,
    ActionSent,
    ActionUnanswered,
    ChildOutput,
    ConsoleEvent,
    LinkChanged,
    ModeSwitched,
    Received,
    Ticked,
    reduce,
)
from controller.api.views import ClusterView, PlanState, TaskPhase
from controller.api.wire import LogLines, Reply, Snapshot
from tests.fakes import cluster_views


def live(view: ClusterView, at: float = 10.0) -> State:
    state = reduce(State(), LinkChanged(Link(LinkPhase.LIVE, at)))
    return reduce(state, Received(at, Snapshot(view=view)))


def logged(state: State, numbers: list[int]) -> State:
    lines = [replace(cluster_views.log(1)[0], seq=number) for number in numbers]
    return reduce(state, Received(state.now, LogLines(lines=lines)))


def test_time_since_the_newest_view_moves_the_clusters_clock() -> None:
    state = reduce(live(cluster_views.calm(100.0)), Ticked(12.5))
    assert (state.age_s, state.cluster_now) == (2.5, 102.5)


def test_lines_seen_before_are_dropped_and_gaps_are_counted() -> None:
    state = logged(logged(State(), [1, 2, 3]), [2, 3, 4])
    assert [line.seq for line in state.log.lines] == [1, 2, 3, 4]
    assert state.log.num_missed == 0
    state = logged(state, [9, 10])
    assert state.log.num_missed == 4


def test_lines_forgotten_before_the_first_look_are_not_missed() -> None:
    assert logged(State(), [500, 501]).log.num_missed == 0


def test_the_log_is_bounded() -> None:
    state = logged(State(), list(range(MAX_LOG_LINES + 10)))
    assert len(state.log.lines) == MAX_LOG_LINES
    assert state.log.lines[-1].seq == MAX_LOG_LINES + 9


@given(st.lists(st.lists(st.integers(1, 60), max_size=8).map(sorted), max_size=8))
def test_the_log_never_doubles_and_never_goes_back(batches: list[list[int]]) -> None:
    state = State()
    for batch in batches:
        state = logged(state, sorted(set(batch)))
        numbers = [line.seq for line in state.log.lines]
        assert numbers == sorted(set(numbers))
        assert reduce(state, Received(state.now, LogLines(lines=list(state.log.lines)))) == state


def test_another_controller_run_begins_with_an_empty_log() -> None:
    state = logged(live(cluster_views.calm()), [1, 2])
    other = cluster_views.calm().model_copy(update={"started_wall_s": 5.0})
    assert reduce(state, Received(11.0, Snapshot(view=other))).log.lines == ()


def test_arming_expires_and_a_verb_prolongs_it() -> None:
    state = reduce(live(cluster_views.calm()), ModeSwitched(10.0, is_armed=True))
    assert reduce(state, Ticked(10.0 + ARMED_FOR_S - 1)).is_armed
    assert not reduce(state, Ticked(10.0 + ARMED_FOR_S)).is_armed
    state = reduce(state, ActionSent(300.0, "r1", "x"))
    assert reduce(state, Ticked(10.0 + ARMED_FOR_S)).is_armed
    assert not reduce(state, ModeSwitched(400.0, is_armed=False)).is_armed


def test_sending_does_not_arm() -> None:
    assert not reduce(State(), ActionSent(1.0, "r1", "x")).is_armed


def test_a_lost_connection_disarms_but_a_demo_that_is_starting_stays_armed() -> None:
    armed = reduce(State(owns_demo=True), ModeSwitched(0.0, is_armed=True))
    assert reduce(armed, LinkChanged(Link(LinkPhase.LOST, 1.0))).is_armed
    seen = reduce(armed, Received(1.0, Snapshot(view=cluster_views.calm())))
    assert not reduce(seen, LinkChanged(Link(LinkPhase.LOST, 2.0))).is_armed


def test_current_data_is_what_can_be_acted_upon() -> None:
    state = live(cluster_views.calm())
    assert why_not_current(state) == ""
    assert why_not_current(reduce(state, Ticked(17.0))) == "data is 7 s old"
    lost = reduce(state, LinkChanged(Link(LinkPhase.LOST, 11.0)))
    assert why_not_current(lost) == "not connected to the controller"
    ended = reduce(state, LinkChanged(Link(LinkPhase.ENDED, 11.0)))
    assert why_not_current(ended) == "the demo has ended"
    closing = live(cluster_views.calm().model_copy(update={"is_closing": True}))
    assert why_not_current(closing) == "the cluster is shutting down"
    assert why_not_current(State()) == "not connected to the controller"


def test_an_approval_is_done_when_its_plan_is_applied() -> None:
    state = live(cluster_views.waiting())
    state = reduce(state, ActionSent(11.0, "r1", "approve", PlanEffect("P-2", PlanState.APPLIED)))
    assert phase(state) is ActionPhase.SENT
    state = reduce(state, ActionAnswered(11.1, Reply(request_id="r1", is_ok=True)))
    assert phase(state) is ActionPhase.ACCEPTED
    state = plans(state, PlanState.APPROVED)
    assert (phase(state), message(state)) == (ActionPhase.ACCEPTED, "P-2 is being applied")
    state = plans(state, PlanState.APPLIED)
    assert (phase(state), message(state)) == (ActionPhase.DONE, "P-2 is applied")


def test_an_approval_of_a_superseded_plan_did_not_happen() -> None:
    state = live(cluster_views.waiting())
    state = reduce(state, ActionSent(11.0, "r1", "approve", PlanEffect("P-2", PlanState.APPLIED)))
    state = reduce(state, ActionAnswered(11.1, Reply(request_id="r1", is_ok=True)))
    state = plans(state, PlanState.SUPERSEDED)
    assert (phase(state), message(state)) == (ActionPhase.REFUSED, "P-2 was superseded")


def test_a_request_is_done_when_a_new_plan_waits() -> None:
    state = reduce(
        live(cluster_views.calm()), ActionSent(11, "r1", "x", ProposalEffect(frozenset()))
    )
    state = reduce(state, ActionAnswered(11.1, Reply(request_id="r1", is_ok=True)))
    state = reduce(state, Received(12.0, Snapshot(view=cluster_views.waiting())))
    assert (phase(state), message(state)) == (ActionPhase.DONE, "P-2 waits for you")


def test_a_drill_is_followed_through_its_incident() -> None:
    state = live(cluster_views.calm())
    effect = DrillEffect(frozenset({"INC-1"}), "it should heal")
    state = reduce(state, ActionSent(11.0, "r1", "lose-node", effect))
    state = reduce(state, ActionAnswered(11.1, Reply(request_id="r1", is_ok=True)))
    assert message(state) == "it should heal"
    state = reduce(state, Received(12.0, Snapshot(view=cluster_views.waiting())))
    assert "INC-2 lost connection: found after 5.6 s, decided" in message(state)
    state = reduce(state, Received(13.0, Snapshot(view=cluster_views.healed())))
    assert phase(state) is ActionPhase.DONE
    assert "resolved after 18 s" in message(state)


def test_a_missing_reply_is_unknown_and_never_failed() -> None:
    state = reduce(live(cluster_views.calm()), ActionSent(11.0, "r1", "x"))
    state = reduce(state, ActionUnanswered(21.0, "r1", "no reply within 10 s"))
    assert phase(state) is ActionPhase.UNKNOWN


def test_answers_to_an_older_action_change_nothing() -> None:
    state = reduce(live(cluster_views.calm()), ActionSent(11.0, "r2", "x"))
    old = Reply(request_id="r1", is_ok=False, code="unknown")
    assert reduce(state, ActionAnswered(12.0, old)) == state
    assert reduce(state, ActionUnanswered(12.0, "r1", "late")) == state


def test_orders_are_followed_side_by_side_and_the_one_that_changed_last_is_shown() -> None:
    state = live(cluster_views.calm())
    for at, name in ((11.0, "r1"), (12.0, "r2")):
        state = reduce(state, ActionSent(at, name, f"order {name}"))
    refused = Reply(request_id="r1", is_ok=False, code="unknown", message="no such node")
    state = reduce(state, ActionAnswered(13.0, refused))
    assert [each.phase for each in state.activities] == [ActionPhase.REFUSED, ActionPhase.SENT]
    assert message(state) == "no such node (unknown)"
    state = reduce(state, ActionAnswered(14.0, Reply(request_id="r2", is_ok=True)))
    assert [each.phase for each in state.activities] == [ActionPhase.REFUSED, ActionPhase.DONE]
    assert phase(state) is ActionPhase.DONE


def test_what_was_never_sent_is_not_kept_and_the_others_are_bounded() -> None:
    state = live(cluster_views.calm())
    for number in range(MAX_ACTIVITIES + 5):
        state = reduce(state, ActionBlocked(11.0 + number, "approve", "no plan waits"))
        assert sum(not each.request_id for each in state.activities) == 1
        state = reduce(state, ActionSent(11.5 + number, f"r{number}", "x"))
    assert len(state.activities) == MAX_ACTIVITIES
    assert state.activities[-1].request_id == f"r{MAX_ACTIVITIES + 4}"
    blocked = reduce(state, ActionBlocked(800.0, "approve", "no plan waits"))
    nameless = Reply(request_id="", is_ok=False, code="invalid")
    assert reduce(blocked, ActionAnswered(900.0, nameless)) == blocked
    assert reduce(blocked, ActionUnanswered(900.0, "", "late")) == blocked


def test_a_blocked_action_says_why() -> None:
    state = reduce(State(), ActionBlocked(1.0, "approve", "no plan waits"))
    assert (phase(state), message(state)) == (ActionPhase.REFUSED, "no plan waits")


def test_a_task_recovers_after_a_fault_and_starts_without_one() -> None:
    state = live(cluster_views.calm())
    starting = cluster_views.task("gpt-b", 0, phase=TaskPhase.STARTING)
    assert not is_recovering(state, starting)
    assert is_recovering(state, starting.model_copy(update={"generation": 2}))
    hit = live(cluster_views.waiting())
    assert is_recovering(hit, starting)
    assert not is_recovering(hit, cluster_views.task("gpt-b", 4))


def phase(state: State) -> ActionPhase:
    assert state.activity is not None
    return state.activity.phase


def message(state: State) -> str:
    assert state.activity is not None
    return state.activity.message


def plans(state: State, plan_state: PlanState) -> State:
    plan = cluster_views.plan(state=plan_state)
    view = cluster_views.waiting().model_copy(update={"plans": [plan]})
    return reduce(state, Received(state.now + 1, Snapshot(view=view)))


EVENTS: st.SearchStrategy[ConsoleEvent] = st.one_of(
    st.builds(Ticked, st.floats(0, 2_000)),
    st.builds(ModeSwitched, st.floats(0, 2_000), st.booleans()),
    st.builds(ChildOutput, st.floats(0, 2_000), st.text(max_size=5)),
    st.builds(LinkChanged, st.builds(Link, st.sampled_from(LinkPhase), st.floats(0, 2_000))),
    st.builds(
        Received,
        st.floats(0, 2_000),
        st.sampled_from(
            [
                Snapshot(view=cluster_views.calm()),
                Snapshot(view=cluster_views.waiting()),
                Snapshot(view=cluster_views.healed()),
                LogLines(lines=cluster_views.log(3)),
                LogLines(lines=cluster_views.log(9)[4:]),
                Reply(request_id="r1", is_ok=True),
            ]
        ),
    ),
    st.builds(ActionSent, st.floats(0, 2_000), st.just("r1"), st.just("x")),
    st.builds(ActionUnanswered, st.floats(0, 2_000), st.just("r1"), st.just("late")),
)


@given(st.lists(EVENTS, max_size=30))
def test_any_sequence_of_events_gives_a_consistent_state(events: list[ConsoleEvent]) -> None:
    state = State()
    for event in events:
        before = state
        state = reduce(state, event)
        assert state.now >= before.now
        assert state.age_s >= 0
        if state.view is not None and state.link.phase is LinkPhase.LOST:
            assert why_not_current(state)
        if not isinstance(event, ModeSwitched):
            assert before.is_armed or not state.is_armed
        assert before == replace(before)
