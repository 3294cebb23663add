"""The ranks of a measurement: what agents say of them, and how they end.

They have no task: no incident is opened for them and nothing of theirs is recovered. The first
fault of a run is remembered as the reason why its size has failed;
``controller.core.measuring.sizes`` ends the run and begins the next one, after every event.
"""

from controller.core.events import Observed
from controller.core.instructions import DropRendezvous, StopRanks
from controller.core.monitoring.refinement import is_plausible
from controller.core.rules.evidence import Evidence, evidence_of
from controller.core.specs import TaskSpec
from controller.core.state.measurement import MeasuredRun
from controller.core.state.phases import NodeCondition
from controller.core.state.turn import Turn
from controller.core.timers import MeasurementOverdue
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.observations import (
    IterationCommitted,
    LaunchFailed,
    RankExited,
    RankObservation,
    RankRaised,
)
from nodeagent.protocol.orders import StopOrder
from nodeagent.protocol.rank_status import RankStatus


def observe_run(turn: Turn, event: Observed, observation: RankObservation) -> None:
    """Take what an agent says about a name that no task has."""
    run = _run_of(turn, observation.task, observation.generation)
    if run is None:
        return
    match observation:
        case IterationCommitted():
            _take_commit(turn, run, observation, event.observed_at)
        case RankExited() if observation.is_expected:
            run.lose(observation.global_rank)
        case RankExited() | LaunchFailed():
            run.lose(observation.global_rank)
            run.fail(_evidence(turn, event, observation))
        case RankRaised():
            run.fail(_evidence(turn, event, observation))
        case _:
            pass  # it starts, forms and ends like any other


def note_run_failure(
    turn: Turn, task: TaskId, generation: Generation, node: NodeId, error: str
) -> None:
    """A node refused to start its ranks."""
    run = _run_of(turn, task, generation)
    if run is not None:
        run.fail(Evidence("launch", turn.at, turn.at, node, task, None, f"{node}: {error}"))


def note_run_stop(turn: Turn, task: TaskId, generation: Generation, node: NodeId) -> None:
    """A node has ended its ranks; their exits are reported, or they are not listed any more."""
    run = _run_of(turn, task, generation)
    if run is not None:
        run.note_stopped(node)


def take_overdue_run(turn: Turn, timer: MeasurementOverdue) -> None:
    """No iteration has come for too long."""
    run = _run_of(turn, timer.task, timer.generation)
    if run is not None:
        text = f"no iteration was committed within {_limit_s(turn, run):.0f} s"
        run.fail(Evidence("overdue", turn.at, turn.at, None, run.task, None, text))


def compare_run(
    turn: Turn, node: NodeId, ranks: tuple[RankStatus, ...], *, is_attach: bool
) -> None:
    """Compare the listed ranks of a node with the expected ones.

    A rank that has trained and is not listed after a loss of contact has vanished. After a stop was
    carried out, an unlisted rank is gone, and a listed rank gets the stop again.
    """
    measurement = turn.state.measurements.current
    run = measurement.run if measurement else None
    if run is None or node not in run.nodes:
        return
    listed = {status.global_rank for status in ranks if run.holds(node, status)}
    here = [number for number, worker in run.living.items() if worker.node == node]
    missing = [number for number in here if number not in listed]
    if not run.is_ending:
        if is_attach and run.num_commits and missing:
            text = f"rank {missing[0]} has vanished: {node} no longer lists it"
            run.fail(Evidence("exit", turn.at, turn.at, node, run.task, missing[0], text))
        return
    if node in run.stopped_nodes:
        for number in missing:
            run.lose(number)
    elif not is_attach:
        return
    if node in run.nodes:
        send_stop(turn, run, (node,))


def _run_of(turn: Turn, task: TaskId, generation: Generation) -> MeasuredRun | None:
    measurement = turn.state.measurements.current
    run = measurement.run if measurement else None
    return run if run and (run.task, run.generation) == (task, generation) else None


def _spec(turn: Turn) -> TaskSpec:
    """Return the task that is measured."""
    measurement = turn.state.measurements.current
    assert measurement is not None
    return turn.state.tasks[measurement.task].spec


def _evidence(
    turn: Turn, event: Observed, observation: RankExited | RankRaised | LaunchFailed
) -> Evidence:
    observed_at = min(event.observed_at, turn.at)
    return evidence_of(observation, node=event.node, at=turn.at, observed_at=observed_at)


def _take_commit(
    turn: Turn, run: MeasuredRun, commit: IterationCommitted, observed_at: float
) -> None:
    if not run.is_reported_by(commit.global_rank) or run.is_ending:
        return  # every rank of a command may print the same
    since, duration_s = run.time_commit(observed_at), commit.duration_s
    if since is not None and not _spec(turn).is_command:  # a command prints the times itself
        duration_s = observed_at - since
    if is_plausible(duration_s):
        run.add_duration(duration_s)
    expect_iteration(turn, run)


def expect_iteration(turn: Turn, run: MeasuredRun) -> None:
    """Give the next iteration its time."""
    turn.set_timer(MeasurementOverdue(run.task, run.generation), _limit_s(turn, run))


def _limit_s(turn: Turn, run: MeasuredRun) -> float:
    """Return how long an iteration may take: the first one loads the program, too."""
    spec, policy = _spec(turn), turn.policy
    longest_s = max(run.durations_s, default=0.0)
    start_s = spec.start_limit_s or policy.start_limit_s
    return max(start_s, spec.hang_limit_s, policy.stall_factor * longest_s)


def judge_workers(turn: Turn, run: MeasuredRun) -> None:
    """Let the run fail if one of its workers is lost or out of service."""
    if run.evidence is None:
        run.fail(_why_unfit(turn, run))


def _why_unfit(turn: Turn, run: MeasuredRun) -> Evidence | None:
    """Return the evidence against a worker of the run, if there is any.

    A worker that is out of contact for a while is presumed training.
    """
    for worker in run.living.values():
        node = turn.state.nodes[worker.node]
        if node.contact.condition is not NodeCondition.UNREACHABLE and not turn.state.can_use(
            worker
        ):
            text = f"{worker} is lost or out of service"
            return Evidence("contact", turn.at, turn.at, worker.node, run.task, None, text)
    return None


def end_ranks(turn: Turn, run: MeasuredRun) -> None:
    """Have all ranks of the run killed."""
    run.begin_ending()
    turn.emit(DropRendezvous(turn.cause, run.task, run.generation))
    send_stop(turn, run, run.nodes)


def leave_unreachable(turn: Turn, run: MeasuredRun) -> None:
    """Wait for no rank on a node out of contact."""
    for number, worker in list(run.living.items()):
        if turn.state.nodes[worker.node].contact.condition is not NodeCondition.HEALTHY:
            run.lose(number)


def send_stop(turn: Turn, run: MeasuredRun, nodes: tuple[NodeId, ...]) -> None:
    """Have its ranks on these nodes killed, where they can be reached."""
    healthy = tuple(
        n for n in nodes if turn.state.nodes[n].contact.condition is NodeCondition.HEALTHY
    )
    if healthy:
        kill = StopOrder(task=run.task, generation=run.generation, is_graceful=False)
        turn.emit(StopRanks(turn.cause, healthy, kill))
