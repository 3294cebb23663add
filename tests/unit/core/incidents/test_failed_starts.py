"""What can't start is the program's fault; what starts elsewhere was its node's."""

import pytest

from controller.core.events import PlanRequested
from controller.core.incidents.failed_starts import PEERS_WAIT_S
from controller.core.lifecycle.command_tasks import NOT_IN_PROCESS
from controller.core.machine import Machine
from controller.core.rules.policy import Policy
from controller.core.specs import NodeSpec, TaskSpec
from controller.core.state.incident import Incident
from controller.core.state.phases import TaskPhase
from controller.core.state.task import TaskState
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.observations import RankExited
from tests.fakes.clusters import table
from tests.fakes.world import World

TASK = TaskId("mine")
KEY_ERROR = """\
Traceback (most recent call last):
  File "/home/me/train.py", line 7, in <module>
    tokens = settings["tokens"]
KeyError: 'tokens'
"""
TYPO = "python: can't open file '/home/me/trian.py': [Errno 2] No such file or directory\n"
NO_SPACE = "OSError: [Errno 28] No space left on device\n"
REFUSED = "ConnectionRefusedError: [Errno 111] Connection refused\n"
POLICY = Policy()
LOST_GPU = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"


class Starts:
    """A task on nodes of one worker each; ``fails`` says on which nodes its processes fail."""

    def __init__(
        self, num_nodes: int, workers: int, *, is_command: bool = True, is_auto_heal: bool = True
    ) -> None:
        spec = TaskSpec(
            TASK, 1.0, workers, workers, table({workers: 1.0}), 0.0, None, 4, is_command=is_command
        )
        nodes = [NodeSpec(NodeId(f"n{i}"), f"n{i}:22", 1) for i in range(1, num_nodes + 1)]
        # Further tries of a held task are in ``test_holding``.
        policy = Policy(is_auto_heal=is_auto_heal, held_retries=0)
        self.world = World(Machine(nodes, [spec], policy), num_iterations=10**6)
        if is_command:
            self.world.unsupported[TASK] = (NOT_IN_PROCESS,)

    def fail(self, words: str, *nodes: str) -> None:
        self.world.failing_starts |= {(TASK, node): words for node in nodes}

    @property
    def task(self) -> TaskState:
        return self.world.machine.state.tasks[TASK]

    @property
    def incidents(self) -> list[Incident]:
        return self.world.machine.state.incidents.all

    @property
    def places(self) -> list[list[str]]:
        """The nodes of each generation."""
        placements = [start.placement for _, start in self.world.starts]
        return [[worker.node for worker in placement] for placement in placements]

    @property
    def isolated(self) -> list[str]:
        """Every node that was ever isolated."""
        return [each.source for _, each in self.world.announcements if each.kind == "isolated"]

    def run_until_held(self) -> Incident:
        self.world.run_until(lambda: self.task.lifecycle.phase is TaskPhase.HELD, limit_s=60.0)
        return self.incidents[-1]

    def train(self, num: int) -> None:
        self.world.run_until(lambda: self.task.progress.iteration >= num, limit_s=60.0)

    def check_that_nobody_is_blamed(self) -> None:
        assert not self.isolated
        assert not any(node.service.faults for node in self.world.machine.state.nodes.values())
        assert "SEV1" not in {incident.cause.severity for incident in self.incidents}


@pytest.mark.parametrize("is_command", [True, False])
@pytest.mark.parametrize("words", [KEY_ERROR, TYPO])
def test_a_program_that_fails_alike_on_two_nodes_is_held_at_once(
    words: str, *, is_command: bool
) -> None:
    starts = Starts(3, 2, is_command=is_command)
    starts.fail(words, "n1", "n2", "n3")
    incident = starts.run_until_held()
    assert len(starts.places) == 1
    starts.check_that_nobody_is_blamed()
    assert (incident.cause.node, incident.cause.action, incident.state) == (None, "none", "held")
    assert words.splitlines()[-1] in incident.cause.reason
    assert "alike on n1, n2 and has never committed" in incident.cause.reason
    assert "mend the program" in incident.cause.reason
    assert "log: /n" in incident.cause.reason


def test_the_line_of_the_program_that_failed_is_named() -> None:
    starts = Starts(1, 1)
    starts.fail(KEY_ERROR, "n1")
    assert "KeyError: 'tokens' (/home/me/train.py:7)" in starts.run_until_held().cause.reason


def test_twice_on_the_only_node_is_enough() -> None:
    starts = Starts(1, 1)
    starts.fail(KEY_ERROR, "n1")
    incident = starts.run_until_held()
    assert starts.places == [["n1"], ["n1"]]
    starts.check_that_nobody_is_blamed()
    assert "2 times alike on n1" in incident.cause.reason


@pytest.mark.parametrize("is_auto_heal", [True, False])
def test_with_a_free_node_the_second_start_is_there(*, is_auto_heal: bool) -> None:
    starts = Starts(2, 1, is_auto_heal=is_auto_heal)
    starts.fail("Traceback (most recent call last):\nValueError: port 29501 of pid 77", "n1")
    starts.fail("Traceback (most recent call last):\nValueError: port 29517 of pid 81", "n2")
    starts.run_until_held()
    assert sorted(map(tuple, starts.places)) == [("n1",), ("n2",)]
    starts.check_that_nobody_is_blamed()


def test_what_starts_on_the_second_node_trains_there_and_nothing_is_isolated() -> None:
    starts = Starts(2, 1)
    starts.world.run(0.05)
    starts.fail(KEY_ERROR, "n1")
    starts.train(3)
    assert starts.places == [["n1"], ["n2"]]
    assert not starts.isolated
    [incident] = starts.incidents
    assert (incident.cause.node, incident.cause.action) == ("n1", "restart")
    assert "starts on n2" in incident.cause.reason


def test_only_the_ranks_of_the_node_that_failed_move() -> None:
    starts = Starts(3, 2)
    starts.fail(KEY_ERROR, "n1")
    starts.train(3)
    assert starts.places == [["n1", "n2"], ["n3", "n2"]]


@pytest.mark.parametrize("has_trained", [True, False])
def test_where_no_node_is_free_the_others_get_a_moment_to_fail_alike(*, has_trained: bool) -> None:
    starts = Starts(2, 2)
    if has_trained:
        starts.train(5)
        starts.world.kill_rank(TASK, 0)
    starts.fail(KEY_ERROR, "n1")
    generation = 1 + has_trained
    starts.world.run_until(
        lambda: any(start.generation == generation for _, start in starts.world.starts)
    )
    starts.world.run_until(
        lambda: any(each.own_words for one in starts.incidents for each in one.evidence)
    )
    starts.fail(KEY_ERROR, "n2")
    late = RankExited(
        task=TASK, generation=Generation(generation), global_rank=1, pid=9, exit_code=1,
        stderr_tail=KEY_ERROR,
    )  # fmt: skip
    starts.world.run(starts.world.now + 1.0)
    starts.world.observe(starts.world.nodes[NodeId("n2")], late)
    incident = starts.run_until_held()
    assert "alike on n1, n2" in incident.cause.reason
    assert len(starts.places) == 1 + 2 * has_trained
    assert not starts.isolated


def test_a_start_that_fails_on_one_node_alone_does_not_wait_for_long() -> None:
    starts = Starts(3, 2)
    starts.fail(KEY_ERROR, "n1")
    starts.train(1)
    [incident] = starts.incidents
    assert incident.cause.decided_at is not None
    assert incident.cause.decided_at - incident.detected_at < PEERS_WAIT_S + 0.5


def test_silent_exits_with_one_code_are_alike() -> None:
    starts = Starts(2, 1)
    starts.fail("", "n1", "n2")
    assert "rank 0 exited with 1" in starts.run_until_held().cause.reason
    assert len(starts.places) == 2
    starts.check_that_nobody_is_blamed()


def test_starts_that_fail_for_different_reasons_are_not_alike() -> None:
    starts = Starts(2, 1)
    starts.fail(KEY_ERROR, "n1")
    starts.fail(TYPO, "n2")
    incident = starts.run_until_held()
    assert len(starts.places) > 2
    assert "alike" not in incidents_reasons(starts)[0]
    assert incident.state == "held"


def incidents_reasons(starts: Starts) -> list[str]:
    return [incident.cause.reason for incident in starts.incidents]


@pytest.mark.parametrize("words", [NO_SPACE, REFUSED, LOST_GPU])
def test_words_about_a_disk_a_network_or_a_device_are_not_the_programs_fault(words: str) -> None:
    starts = Starts(2, 1)
    starts.fail(words, "n1")
    starts.world.run(20.0)
    assert not any("mend the program" in reason for reason in incidents_reasons(starts))
    assert not starts.task.faults.failed_starts
    assert bool(starts.isolated) is (words != REFUSED)


@pytest.mark.parametrize("is_command", [True, False])
def test_one_that_has_trained_tries_a_second_node_before_one_is_isolated(
    *, is_command: bool
) -> None:
    starts = Starts(2, 1, is_command=is_command)
    starts.train(5)
    starts.fail(KEY_ERROR, "n1")
    starts.world.kill_rank(TASK, 0)
    starts.train(9)
    assert starts.places[-1] == ["n2"]
    assert not starts.isolated
    assert "n1 stays a suspect" in starts.incidents[-1].cause.reason
    assert starts.world.machine.state.nodes[NodeId("n1")].service.faults, (
        "and that is not forgotten"
    )
    assert not starts.task.faults.failed_starts, "an iteration has been committed since"


def test_one_that_has_trained_and_fails_on_both_nodes_is_held() -> None:
    starts = Starts(2, 1)
    starts.train(5)
    starts.fail(KEY_ERROR, "n1", "n2")
    starts.world.kill_rank(TASK, 0)
    incident = starts.run_until_held()
    assert not starts.isolated
    assert starts.places[-1] == ["n2"]
    assert incident.cause.node is None
    assert "alike on n1, n2, so no node is blamed" in incident.cause.reason


def test_one_that_has_trained_is_tried_once_more_where_it_was() -> None:
    starts = Starts(3, 2)
    starts.train(5)
    starts.fail(KEY_ERROR, "n1", "n2")
    starts.world.kill_rank(TASK, 0)
    starts.world.run_until(lambda: len(starts.incidents) == 2)
    starts.world.failing_starts.clear()  # the file system is back
    starts.train(9)
    assert not starts.isolated


def test_an_operator_who_has_mended_it_starts_it_with_a_plan() -> None:
    starts = Starts(1, 1, is_auto_heal=True)
    starts.fail(KEY_ERROR, "n1")
    starts.run_until_held()
    starts.world.failing_starts.clear()
    starts.world.post(PlanRequested("r", "op"))
    starts.train(3)
    assert all(incident.state == "resolved" for incident in starts.incidents)


@pytest.mark.parametrize("num_nodes", [1, 2, 3])
@pytest.mark.parametrize("is_command", [True, False])
@pytest.mark.parametrize("words", [KEY_ERROR, TYPO, ""])
def test_one_that_has_trained_and_fills_the_cluster_does_not_start_for_ever(
    words: str, num_nodes: int, *, is_command: bool
) -> None:
    starts = Starts(num_nodes, num_nodes, is_command=is_command)
    starts.train(5)
    starts.fail(words, *(f"n{number}" for number in range(1, num_nodes + 1)))
    starts.world.kill_rank(TASK, 0)
    ends = {TaskPhase.HELD, TaskPhase.STOPPED}
    starts.world.run_until(lambda: starts.task.lifecycle.phase in ends, limit_s=60.0)
    num = len(starts.places)
    assert num <= 1 + POLICY.max_recoveries
    starts.world.run(starts.world.now + 300.0)
    assert len(starts.places) == num
    # Peers of a loop of its own keep their processes, so one node alone is seen to fail.
    is_seen_everywhere = is_command or num_nodes == 1
    assert bool(starts.isolated) is not is_seen_everywhere
    if is_seen_everywhere:
        assert starts.task.lifecycle.phase is TaskPhase.HELD
