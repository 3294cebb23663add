"""Tasks that are commands: when they run, when they are late, and what a fault does to them."""

import re
from dataclasses import replace
from typing import Literal, TypeVar

import pytest

from controller.api.projection import incident_view
from controller.core.events import (
    ContactLost,
    DrillRequested,
    Event,
    EventBody,
    HaltCarriedOut,
    NodeAttached,
    Observed,
    PeerProbed,
    RanksListed,
    TimerFired,
)
from controller.core.instructions import (
    Announce,
    AnswerRequest,
    CarryOutDrill,
    HaltRanks,
    InspectRanks,
    Instruction,
    SetTimer,
    StartRanks,
)
from controller.core.lifecycle.command_tasks import NOT_IN_PROCESS
from controller.core.machine import Machine
from controller.core.rules.policy import Policy
from controller.core.specs import NodeSpec, TaskSpec
from controller.core.state.phases import NodeCondition
from controller.core.state.task import TaskState
from controller.core.timers import (
    CommandLives,
    InspectionDue,
    InspectionOverdue,
    IterationOverdue,
    JudgeNode,
    SettleIncident,
    StartOverdue,
)
from nodeagent.protocol.ids import AgentId, Generation, NodeId, TaskId
from nodeagent.protocol.observations import (
    IterationCommitted,
    ProgressUnread,
    RankDone,
    RankExited,
    RankHalted,
    RankInspected,
    RankObservation,
    RankStarted,
)
from nodeagent.protocol.rank_status import RankStatus
from nodeagent.protocol.regroup import Position
from nodeagent.protocol.standing import Standing
from tests.fakes.clusters import table

TASK = TaskId("mine")
NODES = NodeId("n1"), NodeId("n2")
POLICY = Policy(is_auto_heal=True, start_limit_s=50.0)
InstructionT = TypeVar("InstructionT", bound=Instruction)


class Cluster:
    """Two nodes with a rank each, driven by hand."""

    def __init__(self) -> None:
        spec = TaskSpec(TASK, 1.0, 2, 2, table({2: 1.0}), 0.0, None, 1, is_command=True)
        nodes = [NodeSpec(node, f"{node}:22", 1) for node in NODES]
        self.machine = Machine(
            nodes, [replace(spec, start_limit_s=300.0, hang_limit_s=60.0)], POLICY
        )
        self.instructions: list[Instruction] = []
        self.now = 0.0
        self._number = 0
        for node in NODES:
            self.post(NodeAttached(node, AgentId(f"{node}-a"), 7, ()))

    @property
    def task(self) -> TaskState:
        return self.machine.state.tasks[TASK]

    @property
    def phase(self) -> str:
        return self.task.lifecycle.phase.value

    @property
    def incident_states(self) -> list[str]:
        return [incident.state.value for incident in self.machine.state.incidents.all]

    def post(self, body: EventBody) -> list[Instruction]:
        self._number += 1
        found = self.machine.handle(Event(self._number, self.now, body))
        self.instructions += found
        return found

    def observe(self, observation: RankObservation) -> list[Instruction]:
        node = NODES[observation.global_rank]
        return self.post(Observed(node, self._number, self.now, observation))

    def of_kind(self, kind: type[InstructionT]) -> list[InstructionT]:
        return [each for each in self.instructions if isinstance(each, kind)]

    def fire(self, kind: type) -> None:
        """Let the newest timer of a kind fire, when it is due."""
        timers = [each for each in self.of_kind(SetTimer) if isinstance(each.timer, kind)]
        self.now += timers[-1].after_s
        self.post(TimerFired(timers[-1].timer))

    def who(self, global_rank: int) -> tuple[TaskId, Generation, int]:
        return TASK, self.task.generation, global_rank

    def start(self) -> None:
        """Both ranks have started."""
        for number in (0, 1):
            task, generation, _ = self.who(number)
            self.observe(
                RankStarted(
                    task=task, generation=generation, global_rank=number, pid=9, warm=False,
                    start_s=0.1,
                )
            )  # fmt: skip

    def commit(self, iteration: int, global_rank: int = 1, loss: float | None = 1.0) -> None:
        self.observe(
            IterationCommitted(
                task=TASK, generation=self.task.generation, global_rank=global_rank,
                iteration=iteration, loss=loss, duration_s=0.5, num_tokens=0, grad_norm=None,
            )
        )  # fmt: skip

    def exit(
        self,
        global_rank: int,
        exit_code: int | None = None,
        signal: int | None = None,
        words: str = "",
    ) -> None:
        self.observe(
            RankExited(
                task=TASK, generation=self.task.generation, global_rank=global_rank, pid=9,
                exit_code=exit_code, signal=signal, stderr_tail=words,
            )
        )  # fmt: skip

    def halt(self, global_rank: int) -> None:
        """The agent says for the rank that it holds nothing."""
        position = Position(committed=0, has_state=False)
        self.observe(
            RankHalted(
                task=TASK, generation=self.task.generation, global_rank=global_rank,
                position=position,
            )
        )  # fmt: skip
        for node in NODES:
            self.post(HaltCarriedOut(node, TASK, self.task.generation))

    def status(self, node: NodeId) -> RankStatus:
        number = NODES.index(node)
        return RankStatus(
            task=TASK, generation=self.task.generation, global_rank=number, worker=0, pid=9,
            iteration=self.task.progress.iteration if number == 1 else 0,
        )  # fmt: skip

    def beat(self, node: NodeId) -> None:
        self.post(RanksListed(node, (self.status(node),)))


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.start()
    return cluster


def test_operators_see_from_the_start_that_it_does_not_recover_in_process(
    cluster: Cluster,
) -> None:
    assert cluster.task.limits.unsupported == (NOT_IN_PROCESS,)


def test_one_that_prints_runs_with_its_first_iteration(cluster: Cluster) -> None:
    assert cluster.phase == "starting"
    cluster.commit(10)
    assert cluster.phase == "running"
    assert (cluster.task.progress.iteration, cluster.task.progress.tokens_per_s) == (10, None)


def test_one_that_prints_nothing_runs_once_its_processes_have_lived_for_a_while(
    cluster: Cluster,
) -> None:
    assert not [t for t in cluster.of_kind(SetTimer) if isinstance(t.timer, StartOverdue)]
    cluster.fire(CommandLives)
    assert cluster.now == POLICY.command_settle_s
    assert cluster.phase == "running"
    assert "has printed no iteration" in cluster.task.lifecycle.note


def see(cluster: Cluster, where: Literal["stopped"], global_rank: int) -> None:
    task, generation, _ = cluster.who(global_rank)
    cluster.observe(
        RankInspected(
            task=task, generation=generation, global_rank=global_rank, pid=9,
            standing=Standing(where=where, source="kernel"),
        )
    )  # fmt: skip


def test_a_stopped_process_of_one_that_prints_nothing_is_found_at_any_time(
    cluster: Cluster,
) -> None:
    cluster.fire(CommandLives)
    assert cluster.phase == "running"
    for _ in range(100):
        cluster.fire(InspectionDue)
        cluster.fire(InspectionOverdue)
    assert not cluster.machine.state.incidents.all, "silence alone is no hang"
    cluster.fire(InspectionDue)
    see(cluster, "stopped", 1)
    cluster.fire(InspectionOverdue)
    [incident] = cluster.machine.state.incidents.all
    assert incident.evidence[0].global_rank == 1
    assert "stopped by a signal" in incident.evidence[0].summary
    cluster.halt(0)
    assert (incident.cause.status, cluster.task.generation) == ("task_hang", 2)


def test_one_that_prints_is_looked_at_by_its_own_limit_alone(cluster: Cluster) -> None:
    cluster.commit(1)
    num_looks = len(cluster.of_kind(InspectRanks))
    cluster.fire(InspectionDue)
    assert len(cluster.of_kind(InspectRanks)) == num_looks


def test_no_time_is_told_where_none_was_measured(cluster: Cluster) -> None:
    cluster.fire(CommandLives)
    break_once(cluster, 0)
    cluster.fire(CommandLives)
    assert cluster.incident_states == ["resolved"]
    [resolved] = [each for each in cluster.of_kind(Announce) if each.kind == "resolved"]
    assert not re.search(r"\d s", resolved.text)
    assert "when it trained again is not known" in resolved.text
    assert dict(resolved.facts)["recovery_s"] is None
    [incident] = cluster.machine.state.incidents.all
    assert incident_view(incident).is_recovery_unseen
    assert not [each for each in cluster.of_kind(Announce) if each.kind == "transition"]


def test_lines_that_no_pattern_reads_are_told_once_with_the_pattern(cluster: Cluster) -> None:
    for number in (0, 1, 0):
        task, generation, _ = cluster.who(number)
        cluster.observe(
            ProgressUnread(
                task=task, generation=generation, global_rank=number, line="Step 3, loss 2",
                pattern=r"Step (?P<iteration>\d+)",
            )
        )  # fmt: skip
    [told] = [each for each in cluster.of_kind(Announce) if each.kind == "progress_unread"]
    assert told.source == TASK
    assert "'Step 3, loss 2'" in told.text
    assert r"progress = 'Step (?P<iteration>\d+)'" in told.text


def test_a_start_without_a_report_is_no_life() -> None:
    cluster = Cluster()
    cluster.fire(CommandLives)
    assert cluster.phase == "starting"
    cluster.start()
    cluster.fire(CommandLives)
    assert cluster.phase == "running"


def test_a_broken_rank_starts_all_processes_anew(cluster: Cluster) -> None:
    cluster.commit(3)
    cluster.exit(1, signal=9)
    assert cluster.of_kind(HaltRanks)[-1].order.broken == (1,)
    cluster.halt(0)
    start = cluster.of_kind(StartRanks)[-1]
    assert (start.generation, start.global_ranks, dict(start.continues)) == (2, (0, 1), {})
    [incident] = cluster.machine.state.incidents.all
    assert incident.cause.action == "restart"
    cluster.start()
    assert cluster.incident_states == ["acting"]
    cluster.commit(2)
    assert cluster.incident_states == ["acting"]
    cluster.commit(3)
    assert cluster.incident_states == ["resolved"]
    assert (cluster.task.progress.iteration, cluster.task.progress.num_rerun_iterations) == (3, 2)


def test_a_loss_that_is_run_again_may_differ(cluster: Cluster) -> None:
    cluster.commit(3, loss=1.0)
    cluster.exit(0, exit_code=1)
    cluster.halt(1)
    cluster.start()
    cluster.commit(3, loss=2.0)
    assert not [each for each in cluster.of_kind(Announce) if each.kind == "loss_mismatch"]


def test_after_a_restart_one_that_has_printed_is_late_by_its_own_limit(cluster: Cluster) -> None:
    cluster.commit(3)
    cluster.exit(0, exit_code=1)
    cluster.halt(1)
    cluster.start()
    cluster.fire(CommandLives)
    assert cluster.phase == "starting"
    cluster.fire(StartOverdue)
    assert cluster.machine.state.incidents.all[-1].evidence[0].kind == "overdue"
    assert "within 300 s" in cluster.machine.state.incidents.all[-1].evidence[0].summary


@pytest.mark.parametrize(
    ("kind", "is_attached", "refusal"),
    [
        ("kill-rank", False, ""),
        ("memory-kill", False, ""),
        ("exception", True, ""),
        ("exception", False, "rank 1 of mine is a command that has not attached"),
        ("slow-rank", True, "mine is a command: slow-rank needs a training loop"),
        ("exception:status=ecc_error", True, "mine is a command: exception:status=ecc_error needs"),
    ],
)
def test_a_drill_that_its_program_can_not_stage_is_refused(
    cluster: Cluster, kind: str, *, is_attached: bool, refusal: str
) -> None:
    cluster.commit(3)
    statuses = [
        cluster.status(node).model_copy(update={"is_attached": is_attached}) for node in NODES
    ]
    for node, status in zip(NODES, statuses, strict=True):
        cluster.post(RanksListed(node, (status,)))
    found = cluster.post(DrillRequested("r", "op", kind))
    [answer] = [each for each in found if isinstance(each, AnswerRequest)]
    assert (answer.code, refusal in answer.message) == ("unsupported" if refusal else "ok", True)
    assert any(isinstance(each, CarryOutDrill) for each in found) is not bool(refusal)
    assert bool(cluster.machine.state.drills.staged) is not bool(refusal)


def test_iterations_that_every_rank_prints_count_once(cluster: Cluster) -> None:
    for iteration in (1, 2):
        cluster.commit(iteration, global_rank=1)
        cluster.commit(iteration, global_rank=0)
    assert (cluster.task.progress.iteration, cluster.task.progress.num_rerun_iterations) == (2, 0)


def test_an_iteration_without_a_loss_is_one(cluster: Cluster) -> None:
    cluster.commit(1, loss=None)
    assert (cluster.task.progress.iteration, cluster.task.progress.losses) == (1, {})


def test_it_is_finished_when_all_its_processes_have_ended_with_0(cluster: Cluster) -> None:
    for number in (0, 1):
        task, generation, _ = cluster.who(number)
        cluster.observe(
            RankDone(
                task=task, generation=generation, global_rank=number, iteration=0, reason="finished"
            )
        )
        cluster.exit(number, exit_code=0)
    assert cluster.phase == "finished"
    assert not cluster.machine.state.incidents.all


def break_once(cluster: Cluster, number: int) -> None:
    cluster.exit(number, exit_code=1)
    cluster.halt(1 - number)
    cluster.fire(SettleIncident)
    cluster.start()


def test_one_that_breaks_again_and_again_is_held(cluster: Cluster) -> None:
    for attempt in range(POLICY.max_recoveries):
        break_once(cluster, attempt % 2)
        cluster.fire(CommandLives)
        assert cluster.phase == "running"
    cluster.exit(1, exit_code=1)
    cluster.halt(0)
    assert cluster.incident_states[-1] == "held"


def test_one_that_breaks_again_at_the_same_place_loses_that_node(cluster: Cluster) -> None:
    break_once(cluster, 0)
    cluster.fire(CommandLives)
    assert cluster.phase == "running"
    cluster.exit(0, exit_code=1)
    cluster.halt(1)
    assert [each.cause.action for each in cluster.machine.state.incidents.all] == [
        "restart",
        "reconfigure",
    ]


def test_after_a_long_life_the_recoveries_before_do_not_count(cluster: Cluster) -> None:
    break_once(cluster, 0)
    cluster.fire(CommandLives)
    assert cluster.task.faults.num_recoveries == 1
    cluster.fire(CommandLives)
    assert cluster.task.faults.num_recoveries == 0
    break_once(cluster, 0)
    assert [each.cause.action for each in cluster.machine.state.incidents.all] == [
        "restart",
        "restart",
    ]


def test_silence_of_ranks_that_never_print_does_not_speak_against_a_node_out_of_contact(
    cluster: Cluster,
) -> None:
    printing, silent = NODES[1], NODES[0]
    cluster.commit(3, global_rank=1)
    for node in NODES:
        cluster.beat(node)
    cluster.post(ContactLost(printing, cluster.now, "the session ended"))
    for _ in range(70):
        cluster.fire(JudgeNode)
        cluster.beat(silent)
        cluster.post(PeerProbed(printing, silent, "answered"))
    assert cluster.now > POLICY.unreachable_limit_s
    assert cluster.machine.state.nodes[printing].contact.condition is NodeCondition.UNREACHABLE
    assert cluster.phase == "running"


def test_a_gap_that_its_limit_covers_is_no_hang_and_a_longer_one_starts_it_anew(
    cluster: Cluster,
) -> None:
    for iteration in range(1, 9):
        cluster.now += 0.5
        cluster.commit(iteration)
    overdue = [t for t in cluster.of_kind(SetTimer) if isinstance(t.timer, IterationOverdue)]
    assert {timer.after_s for timer in overdue} == {60.0}, "the average would give less"
    cluster.fire(IterationOverdue)
    assert cluster.of_kind(InspectRanks)[-1].nodes == NODES
    cluster.fire(InspectionOverdue)  # nobody has said where he stands, and nobody ever will
    [incident] = cluster.machine.state.incidents.all
    assert incident.evidence[0].summary == "no iteration: its program does not report its position"
    cluster.halt(0)
    cluster.halt(1)
    assert (incident.cause.status, incident.cause.action) == ("task_hang", "restart")
    assert cluster.task.generation == 2


def test_the_first_iteration_after_a_restart_is_not_late_by_the_average(cluster: Cluster) -> None:
    for iteration in range(1, 9):
        cluster.commit(iteration)
    cluster.exit(0, exit_code=1)
    cluster.halt(1)
    num_timers = len(cluster.of_kind(SetTimer))
    cluster.start()
    for node in NODES:
        cluster.post(ContactLost(node, cluster.now, "the session ended"))
        statuses = (cluster.status(node),)
        cluster.post(NodeAttached(node, AgentId(f"{node}-a"), 7, statuses))
    new = cluster.of_kind(SetTimer)[num_timers:]
    assert not [timer for timer in new if isinstance(timer.timer, IterationOverdue)]


def test_a_line_for_several_iterations_counts_for_all_of_them(cluster: Cluster) -> None:
    for iteration in range(100, 1000, 100):
        cluster.commit(iteration)
    assert cluster.task.watch.pace.average_s == pytest.approx(50.0)


def test_a_loss_that_is_not_finite_is_the_operators(cluster: Cluster) -> None:
    for iteration in range(1, 10):
        cluster.commit(iteration)
    for iteration in range(10, 13):
        cluster.commit(iteration, loss=float("nan"))
    assert cluster.incident_states == ["held"]
    assert cluster.phase == "running"


def test_a_command_that_ends_for_a_connection_blames_no_node(cluster: Cluster) -> None:
    cluster.commit(1)
    cluster.exit(0, exit_code=1, words="ConnectionResetError: [Errno 104] Connection reset by peer")
    cluster.halt(1)
    [incident] = cluster.machine.state.incidents.all
    assert (incident.cause.status, str(incident.cause.severity), incident.cause.action) == (
        "connection_refused_or_reset", "SEV3", "restart",
    )  # fmt: skip
    assert not any(node.service.faults for node in cluster.machine.state.nodes.values())


def test_a_start_that_was_lost_is_repeated_also_once_another_rank_has_begun_to_train() -> None:
    cluster = Cluster()
    cluster.post(ContactLost(NODES[0], cluster.now, "the session ended"))
    cluster.commit(1)  # of rank 1; it has waited for nobody
    assert cluster.phase == "running"
    found = cluster.post(NodeAttached(NODES[0], AgentId("n1-a"), 7, ()))
    assert [one.global_ranks for one in found if isinstance(one, StartRanks)] == [(0,)]
