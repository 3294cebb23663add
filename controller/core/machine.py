"""The one entry of the core: ``Machine.handle(event) -> instructions``.

Synchronous, total and deterministic. Equal events in equal order give equal instructions, so a
journal replayed through a new machine rebuilds its state exactly. It never raises for anything
that the world can do. ``InvariantViolationError`` is our own bug; its text lists the last events of
the task or node.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, assert_never

from controller.core.events import (
    CommandFailed,
    ContactLost,
    ControllerStarted,
    DrillRequested,
    Event,
    HaltCarriedOut,
    HeartbeatReceived,
    LossDecided,
    MeasurementCancelled,
    MeasurementRequested,
    NodeAttached,
    Observed,
    PeerProbed,
    PlanApproved,
    PlanRejected,
    PlanRequested,
    StopCarriedOut,
    TimerFired,
    UncordonRequested,
)
from controller.core.incidents.cures import settle, take_hangs
from controller.core.incidents.evidence_intake import take_evidence
from controller.core.incidents.holding import try_again
from controller.core.instructions import Instruction
from controller.core.lifecycle.command_tasks import NOT_IN_PROCESS, take_life
from controller.core.lifecycle.parking import (
    halt,
    lose_patience,
    note_halt_answer,
    wake_replica_peers,
)
from controller.core.lifecycle.spares import end_wait_for_spares, lose_unseen_spares
from controller.core.lifecycle.start_stop import note_stop, stop
from controller.core.measuring.measured_ranks import (
    note_run_failure,
    note_run_stop,
    take_overdue_run,
)
from controller.core.monitoring.stalls import take_timer
from controller.core.monitoring.start_and_end import take_inspection_due, take_late_start
from controller.core.nodes.contact import (
    attach_node,
    judge_node,
    lose_contact,
    take_heartbeat,
    take_probe,
)
from controller.core.observation_intake import observe
from controller.core.outlook import outlook
from controller.core.quiet_events import SweepPass
from controller.core.requests.operator_requests import take_request
from controller.core.rules.evidence import Evidence, EvidenceKind
from controller.core.rules.placement import Unplaceable, place
from controller.core.rules.planner.lookup import LookupTable, Outlook
from controller.core.rules.policy import Policy
from controller.core.state.cluster import ClusterState
from controller.core.state.invariants import check_invariants
from controller.core.state.node import NodeSpec, NodeState
from controller.core.state.phases import InvariantViolationError, TaskPhase
from controller.core.state.task import TaskSpec, TaskState
from controller.core.state.task_records import Assignment, RegroupLimits, Target
from controller.core.state.turn import Turn
from controller.core.succession import take_over
from controller.core.timers import (
    BurstOver,
    CapacityOverdue,
    CommandLives,
    HaltOverdue,
    HeldRetryDue,
    InspectionDue,
    InspectionOverdue,
    IterationOverdue,
    JudgeNode,
    MeasurementOverdue,
    ReplicaPeersOverdue,
    SettleIncident,
    SparesOverdue,
    StartOverdue,
    StopOverdue,
    TaskTimer,
    Timer,
)
from nodeagent.protocol.ids import TaskId
from profiles.faults.excerpt import classify_excerpt

_NUM_REMEMBERED: Final = 500
"""Events that are kept for the story of a broken promise: some minutes of a small cluster."""
_NUM_STORY_EVENTS: Final = 10
_MAX_LINE: Final = 200


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
        self, nodes: Sequence[NodeSpec], tasks: Sequence[TaskSpec], policy: Policy
    ) -> None:
        """Place every task at its initial size; ranks start once their nodes are in contact.

        Raises:
            ValueError: The initial sizes do not fit the cluster; the text says why.
        """
        self.policy = policy
        self.table = LookupTable()
        self.state = ClusterState(
            nodes={node.node: NodeState(spec=node) for node in nodes},
            tasks=_place_at_start(nodes, tasks),
        )
        self.is_checked = False
        self._num_events = 0
        self._sweeps = SweepPass()
        self._newest: deque[Event] = deque(maxlen=_NUM_REMEMBERED)
        # Reads the catalogue of faults now: the first fault must not wait for it.
        classify_excerpt("")

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
        turn = Turn(self.state, self.policy, cause=event.number, at=event.at, table=self.table)
        turn.num_finished_before = self._sweeps.num_finished
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
        # Total over the union: mypy reports an event without a case.
        match body:
            case ControllerStarted():
                take_over(turn, body)
            case NodeAttached():
                attach_node(turn, body)
            case ContactLost():
                lose_contact(turn, body)
            case HeartbeatReceived():
                take_heartbeat(turn, body)
            case PeerProbed():
                take_probe(turn, body)
            case Observed():
                observe(turn, body)
            case StopCarriedOut():
                _note_stop(turn, body)
            case HaltCarriedOut():
                task = turn.state.tasks.get(body.task)
                # An older generation's answer says nothing about a rank that was lost since.
                if task and body.generation == task.generation:
                    note_halt_answer(task, body.node)
            case CommandFailed():
                _note_failure(turn, body)
            case TimerFired():
                _fire(turn, body.timer)
            case (
                PlanApproved()
                | PlanRejected()
                | PlanRequested()
                | UncordonRequested()
                | LossDecided()
                | MeasurementRequested()
                | MeasurementCancelled()
                | DrillRequested()
            ):
                take_request(turn, body)
            case _:
                assert_never(body)


def _place_at_start(
    nodes: Sequence[NodeSpec], specs: Sequence[TaskSpec]
) -> dict[TaskId, TaskState]:
    """Return the tasks, each with a target of its initial size.

    Raises:
        ValueError: The initial sizes do not fit the cluster; the text says why.
    """
    layouts = {spec.task: spec.table.layout(spec.workers) for spec in specs}
    available = {node.node: node.num_workers for node in nodes}
    domains = {node.node: node.failure_domain for node in nodes}
    placements = place(layouts, {}, available, domains=domains)
    if isinstance(placements, Unplaceable):
        raise ValueError(placements.reason)  # noqa: TRY004 - a value is wrong, not a type
    return {
        spec.task: TaskState(
            spec,
            assignment=Assignment(Target(layouts[spec.task], placements[spec.task])),
            limits=RegroupLimits((NOT_IN_PROCESS,) if spec.is_command else ()),
        )
        for spec in specs
    }


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


def _fire(turn: Turn, timer: Timer) -> None:
    match timer:
        case SettleIncident():
            incident = turn.state.incidents.find(timer.incident)
            if incident:
                settle(turn, incident)
        case JudgeNode():
            judge_node(turn, turn.state.nodes[timer.node])
        case BurstOver():
            pass  # the sweeps ``gather losses`` and ``gather returns`` look at the time
        case MeasurementOverdue():
            take_overdue_run(turn, timer)
        case _:
            task = turn.state.tasks[timer.task]
            # Timers are never cancelled. A timer of an older generation has lost its meaning.
            if task.generation == timer.generation:
                _fire_of_task(turn, task, timer)


def _fire_of_task(turn: Turn, task: TaskState, timer: TaskTimer) -> None:
    """A timer of the task's present generation has run out."""
    match timer:
        case StartOverdue():
            take_late_start(turn, task)
        case InspectionDue():
            take_inspection_due(turn, task)
        case CommandLives():
            take_life(turn, task)
        case StopOverdue():
            if task.lifecycle.phase is TaskPhase.STOPPING:
                note = "did not stop at an iteration boundary in time: its ranks are killed"
                turn.announce("warning", "stop", task.spec.task, note)
                stop(turn, task, is_graceful=False, intent=task.stopping.intent, note=note)
        case HaltOverdue():
            _hasten(turn, task)
        case ReplicaPeersOverdue():
            wake_replica_peers(turn, task)
        case SparesOverdue():
            end_wait_for_spares(task)
        case HeldRetryDue():
            try_again(turn, task)
        case IterationOverdue() | InspectionOverdue():
            take_timer(turn, task, timer)
        case CapacityOverdue():
            lose_patience(task)
        case _:
            assert_never(timer)


def _hasten(turn: Turn, task: TaskState) -> None:
    """Some ranks have not parked in time: halt at once; after a second limit they hang."""
    if task.lifecycle.parking is None:
        return
    # The boundary may never come: a rank of the generation may be lost without a trace yet.
    if task.lifecycle.parking.at_boundary:
        halt(turn, task)
    else:
        take_hangs(turn, task)


def _evidence(turn: Turn, task: TaskState, kind: EvidenceKind, summary: str) -> Evidence:
    name = task.spec.task
    return Evidence(
        kind, at=turn.at, observed_at=turn.at, node=None, task=name, global_rank=None,
        summary=summary,
    )  # fmt: skip
