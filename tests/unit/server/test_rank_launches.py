"""What ranks are told at their start."""

from controller.core.instructions import ParkedSpare, StartRanks
from controller.core.rules.placement import Worker
from controller.server.rank_launches import CommandLaunch, NodeNetwork, measured_program, starts
from nodeagent.protocol import messages
from nodeagent.protocol.codec import encode
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.rank_launch import RankNetwork, TrainingSpec
from nodeagent.protocol.regroup import RankRef, Resume
from profiles.command_task import CommandTask
from profiles.layout import Layout
from profiles.model import ModelShape

N1, N2 = NodeId("n1"), NodeId("n2")
COMMAND = CommandTask(argv=("python", "train.py"))


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
