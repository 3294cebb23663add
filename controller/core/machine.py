"""The one entry of the core: ``Machine.handle(event) -> instructions``.

Synchronous, total and deterministic. Equal events in equal order give equal instructions, so a
journal replayed through a new machine rebuilds its state exactly. It never raises for anything
that the world can do. ``InvariantViolationError`` is our own bug; its text lists the last events of
the task or node.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self, assert_never

from controller.core.events import (
    AutomationResumed,
    ClockMeasured,
    CommandFailed,
    ContactLost,
    ControllerStarted,
    CureApproved,
    DrillRequested,
    Event,
    FileReloaded,
    HaltCarriedOut,
    LossDecided,
    MeasurementCancelled,
    MeasurementRequested,
    NodeAdded,
    NodeAnswered,
    NodeAttached,
    NodeFellSilent,
    NodeOrdered,
    NodeRemoved,
    Observed,
    PeerProbed,
    PlanApproved,
    PlanDeferred,
    PlanRejected,
    PlanRequested,
    PolicyChanged,
    RanksListed,
    RankVanished,
    ShutdownRequested,
    StopCarriedOut,
    StragglerFound,
    StragglerOver,
    TaskAdded,
    TaskAdvanced,
    TaskChanged,
    TaskLimited,
    TaskOrdered,
    TaskRemoved,
    TaskSubmitted,
    TimerFired,
    UncordonRequested,
    WaitingChanged,
)
from controller.core.fired_timers import fire
from controller.core.heartbeats.heartbeat_changes import take_heartbeat_change
from controller.core.incidents.evidence_intake import take_evidence
from controller.core.instructions import Instruction
from controller.core.lifecycle.spares import lose_unseen_spares
from controller.core.lifecycle.start_stop import note_stop
from controller.core.measuring.measured_ranks import note_run_failure, note_run_stop
from controller.core.membership.membership_events import take_change
from controller.core.membership.task_arrivals import place_first
from controller.core.nodes.contact import (
    attach_node,
    lose_contact,
    take_probe,
)
from controller.core.observation_intake import observe
from controller.core.outlook import outlook
from controller.core.quiet_events import SweepPass
from controller.core.requests.operator_requests import take_request
from controller.core.rules.evidence import Evidence, EvidenceKind
from controller.core.rules.planner.lookup import LookupTable, Outlook
from controller.core.rules.policy import Policy
from controller.core.specs import NodeSpec, TaskSpec
from controller.core.state.cluster import ClusterState
from controller.core.state.invariants import check_invariants
from controller.core.state.phases import InvariantViolationError, TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from controller.core.succession import take_over
from profiles.faults.excerpt import classify_excerpt

_NUM_REMEMBERED: Final = 500
"""Events that are kept for the story of a broken promise: some minutes of a small cluster."""
_NUM_STORY_EVENTS: Final = 10
_MAX_LINE: Final = 200


@dataclass(frozen=True, slots=True)
class MachineMarks:
    """Where a machine is in its events.

    Attributes:
        num_events: Events that it has handled.
        num_finished: Tasks that had left their workers when the sweeps last ran.
        settled_at: When the sweeps last had nothing to do; None if they had.
    """

    num_events: int
    num_finished: int
    settled_at: float | None


class Machine:
    """The controller's decisions over one cluster.

    Attributes:
        state: What is known. Read it; only ``handle`` changes it.
        policy: What operators decided in advance.
        table: Precomputed divisions. They save time and do not change the result, so they are no
            part of the state: replace them at will between events.
        is_checked: Whether invariants and sweeps are checked after every event; for tests.
    """

    def __init__(
        self,
        nodes: Sequence[NodeSpec] = (),
        tasks: Sequence[TaskSpec] = (),
        policy: Policy | None = None,
    ) -> None:
        """Begin, with what events would bring one by one: a controller's machine begins empty.

        Raises:
            ValueError: The initial sizes do not fit the cluster; the text says why.
        """
        self.policy = policy or Policy()
        self.table = LookupTable()
        self.state = ClusterState(nodes={}, tasks={})
        for node in nodes:
            self.state.put_node(node)
        for task in tasks:
            self.state.put_task(task)
        place_first(Turn(self.state, self.policy, cause=0, at=0.0))
        for each in self.state.tasks.values():
            if each.lifecycle.phase is TaskPhase.STOPPED:
                raise ValueError(each.lifecycle.note)
        self.is_checked = False
        self._num_events = 0
        self._sweeps = SweepPass()
        self._newest: deque[Event] = deque(maxlen=_NUM_REMEMBERED)
        # Reads the catalogue of faults now: the first fault must not wait for it.
        classify_excerpt("")

    @property
    def marks(self) -> MachineMarks:
        """Where it is in its events."""
        return MachineMarks(self._num_events, self._sweeps.num_settled, self._sweeps.settled_at)

    @classmethod
    def restored(cls, state: ClusterState, policy: Policy, marks: MachineMarks) -> Self:
        """Return a machine that has handled the events that led to ``state``."""
        machine = cls(policy=policy)
        machine._continue_from(state, marks)
        return machine

    def _continue_from(self, state: ClusterState, marks: MachineMarks) -> None:
        # The newest events are not taken over. They serve the story of a broken promise alone, and
        # the journal has them.
        self.state, self._num_events = state, marks.num_events
        self._sweeps = SweepPass(marks.num_finished, marks.settled_at)

    def handle(self, event: Event) -> list[Instruction]:
        """Take in one event and return what is to be done about it, in order.

        Raises:
            InvariantViolationError: The events have a gap, or the core has a bug.
        """
        # With a gap, replay would rebuild another state than the journal's, unnoticed.
        if event.number != self._num_events + 1:
            raise InvariantViolationError(
                f"event {event.number} follows event {self._num_events}: the journal has a gap"
            )
        self._num_events = event.number
        self._newest.append(event)
        if isinstance(event.body, PolicyChanged):
            self.policy = event.body.policy
        turn = Turn(
            self.state,
            self.policy,
            cause=event.number,
            at=event.at,
            table=self.table,
            num_settled_before=self._sweeps.num_settled,
        )
        try:
            # The event's own room only records it. Consequences follow from the state, in the
            # sweeps: an event in the middle of a recovery needs no case of its own then.
            self._dispatch(turn, event)
            self._sweeps.run(turn, event, is_checked=self.is_checked)
            if self.is_checked:
                check_invariants(self.state)
        except InvariantViolationError as error:
            error.story = self._story(error.subjects)
            raise
        return turn.instructions

    def _story(self, subjects: tuple[str, ...]) -> tuple[str, ...]:
        """Return the last events that name one of the subjects, oldest first.

        All where none does.
        """
        # Searching in the text finds a name at any depth of an event. It is slow, and runs once.
        events = [(event, repr(event.body)) for event in self._newest]
        named = [
            (event, text)
            for event, text in events
            if any(f"'{subject}'" in text for subject in subjects)
        ]
        return tuple(
            f"event {event.number} at {event.at:.3f} s: {text[:_MAX_LINE]}"
            for event, text in (named or events)[-_NUM_STORY_EVENTS:]
        )

    def outlook(self) -> Outlook:
        """Return what the planner may be asked next.

        See ``controller.core.rules.planner.lookup``.
        """
        return outlook(Turn(self.state, self.policy, cause=self._num_events, at=0.0))

    def _dispatch(self, turn: Turn, event: Event) -> None:
        body = event.body
        # Total over the union: mypy reports an event without a case. Most events are reports.
        match body:
            case Observed():
                observe(turn, body)
            case ControllerStarted():
                take_over(turn, body)
            case NodeAttached():
                attach_node(turn, body)
            case ContactLost():
                lose_contact(turn, body)
            case (
                RanksListed()
                | NodeFellSilent()
                | NodeAnswered()
                | RankVanished()
                | TaskAdvanced()
                | ClockMeasured()
                | StragglerFound()
                | StragglerOver()
                | WaitingChanged()
            ):
                take_heartbeat_change(turn, body)
            case PeerProbed():
                take_probe(turn, body)
            case StopCarriedOut():
                _note_stop(turn, body)
            case HaltCarriedOut():
                task = turn.state.tasks.get(body.task)
                # An older generation's answer says nothing about a rank that was lost since.
                if task and body.generation == task.generation:
                    task.lifecycle.note_answer(body.node)
            case CommandFailed():
                _note_failure(turn, body)
            case TimerFired():
                fire(turn, body.timer)
            case (
                NodeAdded()
                | NodeRemoved()
                | TaskAdded()
                | TaskChanged()
                | TaskRemoved()
                | PolicyChanged()
            ):
                take_change(turn, body)
            case (
                PlanApproved()
                | PlanRejected()
                | PlanDeferred()
                | AutomationResumed()
                | CureApproved()
                | PlanRequested()
                | UncordonRequested()
                | LossDecided()
                | MeasurementRequested()
                | MeasurementCancelled()
                | DrillRequested()
                | TaskOrdered()
                | TaskLimited()
                | TaskSubmitted()
                | NodeOrdered()
                | FileReloaded()
                | ShutdownRequested()
            ):
                take_request(turn, body)
            case _:
                assert_never(body)


def _note_stop(turn: Turn, event: StopCarriedOut) -> None:
    task = turn.state.tasks.get(event.task)
    if task is None:
        note_run_stop(turn, event.task, event.generation, event.node)
    elif event.generation == task.generation:
        note_stop(task, event.node)


def _note_failure(turn: Turn, event: CommandFailed) -> None:
    """Take a refused start as a launch fault. If the outcome is unknown, nothing is done."""
    is_retried = event.is_outcome_unknown and event.command == "start"
    then = "; missing ranks are requested again when the node re-attaches" if is_retried else ""
    text = f"command {event.command} for {event.task} failed: {event.error}{then}"
    turn.announce("warning", "command_failed", event.node, text)
    task = turn.state.tasks.get(event.task)
    if task is None and event.command == "start":
        note_run_failure(turn, event.task, event.generation, event.node, event.error)
    # A lost answer is no refusal: the ranks may have started.
    is_refused = event.command == "start" and not event.is_outcome_unknown
    if not is_refused or task is None or event.generation != task.generation:
        return
    lose_unseen_spares(turn, task, event.node, event.error)
    # A node with spares alone: training does not need its processes.
    has_ranks = any(worker.node == event.node for worker in task.placement)
    if has_ranks and task.lifecycle.phase is TaskPhase.STARTING:
        take_evidence(turn, task, _evidence(turn, task, "launch", event.error))


def _evidence(turn: Turn, task: TaskState, kind: EvidenceKind, summary: str) -> Evidence:
    name = task.spec.task
    return Evidence(
        kind, at=turn.at, observed_at=turn.at, node=None, task=name, global_rank=None,
        summary=summary,
    )  # fmt: skip
