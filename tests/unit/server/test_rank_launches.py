"""What ranks are told at their start."""

from controller.core.instructions import ParkedSpare, StartRanks
from controller.core.machine import Machine
from controller.core.rules.placement import Worker
from controller.core.rules.policy import Policy
from controller.core.specs import NodeSpec, TaskSpec
from controller.server.rank_launches import (
    CommandLaunch,
    NodeNetwork,
    decode_program,
    encode_program,
    measured_program,
    starts,
)
from nodeagent.protocol import messages
from nodeagent.protocol.codec import encode
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.rank_launch import RankNetwork, TrainingSpec
from nodeagent.protocol.regroup import RankRef, Resume
from nodeagent.rank.process.command_rank import arguments_of
from profiles.command_task import CommandTask
from profiles.layout import Layout
from profiles.model import ModelShape
from profiles.throughput import ThroughputPoint, ThroughputTable
from tests.fakes.world import World
from tests.fakes.world_queries import all_run

N1, N2 = NodeId("n1"), NodeId("n2")
COMMAND = CommandTask(argv=("python", "train.py"))
HOSTS = {N1: NodeNetwork("10.0.0.1"), N2: NodeNetwork("10.0.0.2")}


def test_ranks_are_counted_on_their_node_and_meet_at_rank_0() -> None:
    placement = (Worker(N2, 3), Worker(N1, 0), Worker(N2, 1))
    instruction = StartRanks(1, TaskId("t"), Generation(4), Layout(dp=3), placement, (0, 1, 2))
    hosts = {N1: NodeNetwork("10.0.0.1"), N2: NodeNetwork("fd00::2", "ib0")}
    found = starts(instruction, CommandLaunch(COMMAND, "/shared/t", 12), "nccl", hosts)
    places = {
        launch.global_rank: launch.command
        for launches in found.values()
        for launch in launches
        if launch.command is not None
    }
    assert {node: len(launches) for node, launches in found.items()} == {N1: 1, N2: 2}
    assert [places[number].local_rank for number in (0, 1, 2)] == [0, 0, 1]
    assert places[0].local_workers == (3, 1)
    assert [places[number].node_rank for number in (0, 1, 2)] == [0, 1, 0]
    assert {(place.num_nodes, place.num_micro_batches) for place in places.values()} == {(2, 4)}
    assert {place.master_address for place in places.values()} == {"fd00::2"}
    networks = {node: launches[0].network for node, launches in found.items()}
    assert networks == {
        N1: RankNetwork(host="10.0.0.1", peers=("fd00::2",)),
        N2: RankNetwork(host="fd00::2", interface="ib0", peers=("10.0.0.1",)),
    }


def test_processes_that_wait_are_told_which_rank_they_stand_for_and_not_how_to_resume() -> None:
    shape = ModelShape(num_layers=2, hidden_size=8, num_attention_heads=2, seq_length=8)
    program = TrainingSpec(model=shape, checkpoint_dir="/checkpoints/a")
    was = RankRef(generation=Generation(3), global_rank=2)
    instruction = StartRanks(
        1,
        TaskId("t"),
        Generation(4),
        Layout(pp=2),
        (Worker(N1, 0), Worker(N1, 1)),
        (0, 1),
        resume=Resume(source="peer", committed=7, state_from=(0, 1)),
        parked_spares={2: ParkedSpare(Worker(N2, 3), was, stands_for=1)},
    )
    found = starts(instruction, program, "gloo", {})
    assert [launch.global_rank for launch in found[N1]] == [0, 1]
    [waiting] = found[N2]
    assert (waiting.global_rank, waiting.worker, waiting.continues) == (2, 3, was)
    assert (waiting.prepares_for, waiting.generation, waiting.layout) == (1, 4, Layout(pp=2))
    assert waiting.resume == Resume()


def test_what_is_the_same_for_all_ranks_of_a_node_is_sent_once() -> None:
    shape = ModelShape(num_layers=2, hidden_size=8, num_attention_heads=2, seq_length=8)
    program = TrainingSpec(model=shape, checkpoint_dir="/checkpoints/a", shard_optimizer=True)
    layout = Layout(dp=256)
    placement = tuple(Worker(NodeId(f"n{rank // 8}"), rank % 8) for rank in range(256))
    resume = Resume(source="peer", committed=7, state_from=tuple(range(1, 256)))
    was = {rank: RankRef(generation=Generation(3), global_rank=rank) for rank in range(1, 256)}
    parked_spares = {256: ParkedSpare(placement[0], was[1], stands_for=1)}
    instruction = StartRanks(
        1,
        TaskId("t"),
        Generation(4),
        layout,
        placement,
        tuple(range(256)),
        was,
        resume,
        parked_spares,
    )
    launches = starts(instruction, program, "gloo", {})[NodeId("n0")]
    assert [launch.global_rank for launch in launches] == [*range(8), 256]
    line = encode(messages.StartRanksCommand.of("c", launches))
    assert line.count(str(list(resume.state_from)).replace(" ", "").encode()) == 1
    read = messages.StartRanksCommand.model_validate_json(line)
    assert read.whole_launches() == launches
    assert launches[3].resume == resume
    assert None not in launches[3].copy_holders


def test_a_task_that_is_measured_runs_at_full_speed_and_keeps_nothing() -> None:
    shape = ModelShape(num_layers=2, hidden_size=8, num_attention_heads=2, seq_length=8)
    program = TrainingSpec(
        model=shape, checkpoint_dir="/checkpoints/a", iteration_floor_s=0.4, num_iterations=30
    )
    measured = measured_program(program, Generation(3))
    assert isinstance(measured, TrainingSpec)
    assert measured.checkpoint_dir == ""
    assert measured.iteration_floor_s == 0
    assert measured.num_iterations is None
    assert measured.model == shape


def test_a_command_that_is_measured_has_a_directory_of_its_own() -> None:
    measured = measured_program(CommandLaunch(COMMAND, "/shared/t"), Generation(3))
    assert measured == CommandLaunch(COMMAND, "/shared/t@measure-3")


def test_a_plan_that_changes_tp_and_pp_reaches_the_words_of_a_command() -> None:
    """A node is lost: the plan gives the task another division, and the next start says so."""
    command = CommandTask(argv=("train", "--tp={tp}", "--pp={pp}", "--dp={dp}", "{workers}"))
    points = (
        ThroughputPoint(workers=2, flops_per_s=2.0e9, layout=Layout(tp=1, pp=2, dp=1)),
        ThroughputPoint(workers=4, flops_per_s=4.0e9, layout=Layout(tp=2, pp=1, dp=2)),
    )
    spec = TaskSpec(
        TaskId("run"), 1.0, 4, 2, ThroughputTable(points=points), 1e9, None, 12,
        program=encode_program(CommandLaunch(command, "/shared/t", 12)),
    )  # fmt: skip
    nodes = [NodeSpec(NodeId(name), f"{name}:22", 2) for name in ("n1", "n2")]
    world = World(Machine(nodes, [spec], Policy(is_auto_heal=True)), num_iterations=10**6)
    world.run_until(lambda: all_run(world))
    world.lose_node("n1")
    task = world.machine.state.tasks[TaskId("run")]
    world.run_until(lambda: task.layout == points[0].layout)
    words = []
    for _, start in world.starts:
        launches = starts(start, decode_program(start.program), "gloo", HOSTS)
        first = next(iter(launches.values()))[0]
        words.append(arguments_of(first))
    assert words[0] == ["train", "--tp=2", "--pp=1", "--dp=2", "4"]
    assert words[-1] == ["train", "--tp=1", "--pp=2", "--dp=1", "2"]
