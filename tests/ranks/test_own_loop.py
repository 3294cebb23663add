"""The example of a training program of one's own trains, recovers exactly, and errors are clear."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from controller.core.rules.regroup.next_generation import decide, known_votes
from controller.core.rules.regroup.parked import Parked
from nodeagent.protocol.rank_launch import RankLaunch, TrainingSpec
from nodeagent.protocol.regroup import RankRef, Resume
from profiles.layout import Layout
from profiles.training_program import Program
from tests.fakes.fault_points import lingering
from tests.fakes.rank_host import REPOSITORY, RankHost, launches

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(120)]

EXAMPLE = Program(
    function="train:build",
    directory=str(REPOSITORY / "examples" / "own_loop"),
    options={"warmup_iterations": 3, "decay_iterations": 12},
)


def spec_of(training: TrainingSpec, program: Program = EXAMPLE) -> TrainingSpec:
    return training.model_copy(update={"program": program, "learning_rate": 3e-3})


HEAD = f"""\
from dataclasses import replace
import sys
import torch
sys.path.append({EXAMPLE.directory!r})
import train
from megatron.core.optimizer.optimizer import Float16OptimizerWithFloat16Params
train.Mixed = Float16OptimizerWithFloat16Params

def build(context):
    loop = train.build(context)
"""

UNUSUAL = f"""\
import sys
sys.path.append({EXAMPLE.directory!r})
import train

def build(context):
    usual = train.DistributedDataParallelConfig
    changed = {{context.options["off"]: False}}
    train.DistributedDataParallelConfig = lambda **chosen: usual(**chosen | changed)
    return train.build(context)
"""


LATE = f"""\
{UNUSUAL.replace("def build", "def unusual")}

def build(context):
    import pathlib, time
    if not context.place.global_rank:
        time.sleep(60)
    loop = unusual(context)
    pathlib.Path(__file__).with_name("has_a_model").touch()
    return loop
"""


FROZEN = f"""\
import sys
sys.path.append({EXAMPLE.directory!r})
import train

def build(context):
    usual = train.DistributedDataParallel
    def freezing(config, ddp, model):
        if context.place.is_first_stage:
            model.embedding.requires_grad_(False)
        return usual(config, ddp, model)
    train.DistributedDataParallel = freezing
    try:
        return train.build(context)
    finally:
        train.DistributedDataParallel = usual
"""


UNEVEN = f"""\
from dataclasses import replace
import sys
import torch
sys.path.append({EXAMPLE.directory!r})
import train

def build(context):
    usual = train.DistributedDataParallel
    def with_tower(config, ddp, model):
        torch.manual_seed(1)
        model.tower = torch.nn.Linear(4, 4)
        return usual(config, ddp, model)
    train.DistributedDataParallel = with_tower
    try:
        loop = train.build(context)
    finally:
        train.DistributedDataParallel = usual
    late = context.options["passes"]
    def micro_batch(iteration, index):
        return iteration, index, loop.micro_batch(iteration, index)
    def forward_step(batches, model):
        iteration, index, batch = next(batches)
        tower = model.module.tower
        # Before all else: the backward pass comes to it last.
        of_tower = 10 * tower(torch.ones(4)).square().sum()
        output, loss_of = loop.forward_step(iter((batch,)), model)
        if (iteration + index) % 2 and not late:
            return output, loss_of
        if late and (iteration, index) in {{(3, 5), (3, 11)}}:
            # The pass through the embedding is the last; another one through the tower follows.
            @torch.enable_grad()
            def pass_once_more(_):
                tower(torch.ones(4)).square().sum().backward()
            embedding = model.module.embedding.word_embeddings.weight
            embedding.register_post_accumulate_grad_hook(pass_once_more)
        def with_tower(tensor):
            loss, *rest = loss_of(tensor)
            return loss + of_tower, *rest
        return output, with_tower
    return replace(loop, micro_batch=micro_batch, forward_step=forward_step)
"""


def uneven(directory: Path, *, passes: bool) -> Program:
    """Return the example with a tower that only some micro-batches reach, or reach twice."""
    (directory / "uneven.py").write_text(UNEVEN)
    options = {**EXAMPLE.options, "passes": passes}
    return Program(function="uneven:build", directory=str(directory), options=options)


def unusual(directory: Path, setting: str) -> Program:
    """Return the example with one setting of Megatron's wrapper off."""
    (directory / "unusual.py").write_text(UNUSUAL)
    options = {**EXAMPLE.options, "off": setting}
    return Program(function="unusual:build", directory=str(directory), options=options)


def beside(spec: TrainingSpec, name: str) -> TrainingSpec:
    """The same training with checkpoints of its own."""
    return spec.model_copy(update={"checkpoint_dir": f"{spec.checkpoint_dir}-{name}"})


@pytest.fixture
def spec(training: TrainingSpec) -> TrainingSpec:
    dropout = training.model.model_copy(update={"hidden_dropout": 0.1, "attention_dropout": 0.1})
    batch = {"num_micro_batches": 12, "micro_batch_size": 2, "num_iterations": 10}
    return spec_of(training).model_copy(
        update={"model": dropout, "checkpoint_interval": 1000, **batch}
    )


def kill(host: RankHost, ranks: list[RankLaunch], pids: dict[int, int], lost: int) -> None:
    """Kill rank ``lost`` once iteration 2 was committed, and park the others."""
    record = host.record(ranks[0])
    host.wait_for(lambda: 2 in record.loss_by_iteration)
    os.kill(pids[lost], signal.SIGKILL)
    host.halt([launch for launch in ranks if launch.global_rank != lost], [lost])


def test_the_model_learns_and_says_that_it_recovers_in_process(
    host: RankHost, spec: TrainingSpec
) -> None:
    ranks = launches(spec, Layout(), task="own-learns")
    losses = host.run(ranks).loss_by_iteration
    assert losses[10] < losses[1]
    [joined] = host.record(ranks[0]).of_kind("rank_joined")
    assert joined.unsupported == ()


def test_a_part_of_the_model_that_only_some_micro_batches_reach_learns_from_all_of_them(
    host: RankHost, spec: TrainingSpec, tmp_path: Path
) -> None:
    uneven_spec = spec.model_copy(update={"program": uneven(tmp_path, passes=False)})
    alone = launches(beside(uneven_spec, "one"), Layout(), task="own-uneven-one")
    expected = [one.grad_norm for one in host.run(alone).of_kind("iteration_committed")]
    ranks = launches(uneven_spec, Layout(dp=2), task="own-uneven")
    norms = [one.grad_norm for one in host.run(ranks).of_kind("iteration_committed")]
    assert norms == pytest.approx(expected, rel=1e-4)


def test_a_gradient_that_comes_after_its_bucket_is_an_error_and_nothing_of_it_is_used(
    host: RankHost, spec: TrainingSpec, tmp_path: Path
) -> None:
    late = spec.model_copy(update={"program": uneven(tmp_path, passes=True)})
    ranks = launches(late, Layout(dp=2), task="own-late")
    host.start(ranks)
    raised = host.wait_for_raise(ranks[0])
    assert raised.exception_type == "LateGradientError"
    assert raised.position is not None
    assert raised.position.committed == 2
    decision = decide(
        Parked(Layout(dp=2), spec.num_micro_batches, {0: raised.position}), Layout(dp=2), {0: 0}
    )
    assert decision.rung == "re-run"
    assert "rank 0 may be wrong" in decision.reason


def test_frozen_parameters_stay_and_the_others_learn(
    host: RankHost, spec: TrainingSpec, tmp_path: Path
) -> None:
    (tmp_path / "frozen.py").write_text(FROZEN)
    program = Program(function="frozen:build", directory=str(tmp_path), options=EXAMPLE.options)
    frozen = spec.model_copy(update={"program": program})
    losses = host.run(launches(frozen, Layout(dp=2), task="own-frozen")).loss_by_iteration
    free = launches(beside(spec, "free"), Layout(dp=2), task="own-free")
    assert losses[1] == host.run(free).loss_by_iteration[1]
    assert losses[10] < losses[1]


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(Layout(dp=3), marks=pytest.mark.thorough),
        pytest.param(Layout(tp=2), marks=pytest.mark.thorough),
        Layout(pp=2, dp=2),
    ],
    ids=str,
)
def test_it_runs_on_every_layout_and_replicas_change_nothing(
    host: RankHost, training: TrainingSpec, layout: Layout
) -> None:
    spec = spec_of(training).model_copy(update={"num_micro_batches": 12})
    name = f"own-{layout.tp}-{layout.pp}-{layout.dp}"
    losses = host.run(launches(spec, layout, task=name)).loss_by_iteration
    alone = launches(beside(spec, "one"), Layout(layout.tp, layout.pp), task=f"{name}-one")
    assert losses == pytest.approx(host.run(alone).loss_by_iteration, rel=1e-5)


@pytest.mark.parametrize(
    ("lost", "bf16"),
    [
        (0, False),
        pytest.param(0, True, marks=pytest.mark.thorough),
        pytest.param(1, False, marks=pytest.mark.thorough),
    ],
)
def test_a_killed_rank_is_replaced_and_the_losses_are_those_of_the_fault_free_run(
    faulty_host: RankHost, spec: TrainingSpec, lost: int, *, bf16: bool
) -> None:
    host = faulty_host
    layout, name = Layout(dp=2), f"{lost}-{bf16}"
    model = spec.model.model_copy(update={"bf16": bf16})
    spec = spec.model_copy(update={"model": model})
    whole = launches(beside(spec, "whole"), layout, task=f"own-whole-{name}")
    expected = host.run(whole).loss_by_iteration
    ranks = launches(spec, layout, task=f"own-killed-{name}")
    host.plan(ranks[0].task, [lingering(3)])
    pids = host.start(ranks)

    kill(host, ranks, pids, lost)
    kept = 1 - lost
    parked = Parked(layout, spec.num_micro_batches, {kept: host.wait_for_position(ranks[kept])})
    decision = decide(parked, layout, {kept: kept})
    following = [
        launch.model_copy(update={"generation": 2, "resume": decision.resume}) for launch in ranks
    ]
    ref = RankRef(generation=ranks[kept].generation, global_rank=kept)
    following[kept] = following[kept].model_copy(update={"continues": ref})
    host.start([following[lost]])
    host.join(ranks[kept], following[kept])

    assert host.wait_for_exit(following[lost], 60)["exit_code"] == 0, decision.reason
    assert host.wait_for_exit(ranks[kept], 60)["exit_code"] == 0, decision.reason
    sources = [host.record(launch).of_kind("rank_joined")[0].source for launch in following]
    assert sources == ["peer" if number == lost else "own" for number in (0, 1)]
    losses = {
        # Where rank 0 is the lost one it may not have told of the newest.
        **{vote.iteration: vote.loss for vote in known_votes(parked).values()},
        **host.record(ranks[0]).loss_by_iteration,
        **host.record(following[0]).loss_by_iteration,
    }
    assert losses == pytest.approx(expected, rel=1e-5)
    if decision.rung in {"commit", "re-run"}:
        assert losses == {number: expected[number] for number in losses}


def test_of_four_ranks_one_builds_the_index_and_a_replacement_builds_it_alone(
    host: RankHost, spec: TrainingSpec
) -> None:
    ranks = launches(
        spec.model_copy(update={"num_iterations": None}), Layout(dp=4), task="own-index"
    )
    pids = host.start(ranks)
    host.wait_for(lambda: 1 in host.record(ranks[0]).loss_by_iteration)
    built = "indices are built directory="
    assert sum(host.log(launch).count(built) for launch in ranks) == 1
    index = Path(spec.checkpoint_dir, "index")
    [mark] = index.glob("*.done")
    assert all((index / name).exists() for name in json.loads(mark.read_text())["files"])

    os.kill(pids[3], signal.SIGKILL)
    host.halt(ranks[:3], [3])
    shutil.rmtree(index)
    # A spare: its peers are not there, and it is not rank 0.
    spare = ranks[3].model_copy(update={"generation": 2, "prepares_for": 3})
    host.start([spare])
    [halted] = host.wait_for(lambda: host.record(spare).of_kind("rank_halted"))
    assert halted.position is not None
    assert host.log(spare).count(built) == 1
    assert list(index.glob("*.done")) == [mark]
    host.kill_ranks()


def test_one_that_does_not_recover_gives_way_where_it_can_not_load(
    host: RankHost, spec: TrainingSpec, tmp_path: Path
) -> None:
    program = unusual(tmp_path, "overlap_grad_reduce")
    elsewhere = {**program.options, "index_directory": str(tmp_path)}
    program = program.model_copy(update={"options": elsewhere})
    directory = tmp_path / "no directory"
    directory.write_text("a file")
    unusual_spec = spec.model_copy(update={"program": program, "checkpoint_dir": str(directory)})
    ranks = launches(unusual_spec, Layout(dp=2), task="own-no-directory")
    host.start(ranks)
    for launch in ranks:
        raised = host.wait_for_raise(launch)
        assert raised.exception_type == "CheckpointError"
        assert raised.position is None
    host.kill_ranks()


@pytest.mark.parametrize(
    "setting",
    ["overlap_grad_reduce", pytest.param("grad_reduce_in_fp32", marks=pytest.mark.thorough)],
)
def test_an_option_that_does_not_recover_is_named_and_gets_new_processes_from_disk(
    faulty_host: RankHost, spec: TrainingSpec, tmp_path: Path, setting: str
) -> None:
    host = faulty_host
    layout, task = Layout(dp=2), f"own-{setting}"
    expected = host.run(launches(beside(spec, "whole"), layout, task=f"{task}-whole"))
    program = unusual(tmp_path, setting)
    unusual_spec = spec.model_copy(update={"checkpoint_interval": 1, "program": program})
    ranks = launches(unusual_spec, layout, task=task)
    host.plan(task, [lingering(3)])
    pids = host.start(ranks)

    host.wait_for(Path(spec.checkpoint_dir, "iter_0000001").exists)
    kill(host, ranks, pids, 1)
    for launch in ranks:
        told = host.record(launch).of_kind("rank_joined")[0].unsupported
        assert f"{setting} = False" in {each.partition(":")[0] for each in told}
    host.wait_for_position(ranks[0])
    # As the controller does: the old process is ended, all ranks are new.
    os.kill(pids[0], signal.SIGKILL)
    host.wait_for_exit(ranks[0])
    resume = Resume(source="disk")
    following = [launch.model_copy(update={"generation": 2, "resume": resume}) for launch in ranks]
    losses = host.run(following).loss_by_iteration

    joined = [host.record(launch).of_kind("rank_joined")[0] for launch in following]
    assert [one.source for one in joined] == ["disk", "disk"]
    assert list(losses) == list(range(joined[0].iteration + 1, 11))
    assert joined[0].iteration >= 1
    losses |= host.record(ranks[0]).loss_by_iteration
    assert losses == pytest.approx(expected.loss_by_iteration, rel=1e-5)


def test_a_process_that_does_not_recover_will_not_go_on(
    host: RankHost, spec: TrainingSpec, tmp_path: Path
) -> None:
    program = unusual(tmp_path, "overlap_grad_reduce")
    spec = spec.model_copy(update={"program": program, "num_iterations": None})
    ranks = launches(spec, Layout(dp=2), task="own-stays")
    pids = host.start(ranks)
    kill(host, ranks, pids, 1)
    host.wait_for_position(ranks[0])
    ref = RankRef(generation=ranks[0].generation, global_rank=0)
    alone = ranks[0].model_copy(update={"generation": 2, "layout": Layout(), "continues": ref})
    host.join(ranks[0], alone)
    raised = host.wait_for_raise(alone)
    assert (raised.exception_type, raised.is_in_collective) == ("CannotRejoinError", False)
    assert "overlap_grad_reduce = False" in raised.message


def test_one_that_is_halted_before_it_joins_says_that_it_does_not_recover(
    host: RankHost, spec: TrainingSpec, tmp_path: Path
) -> None:
    program = unusual(tmp_path, "overlap_grad_reduce")
    ranks = launches(spec.model_copy(update={"program": program}), Layout(dp=2), task="own-early")
    # Rank 0 has its groups, and comes to no model: it names no checkpoint, and rank 1 waits for
    # that.
    (tmp_path / "unusual.py").write_text(LATE)
    pids = host.start(ranks)
    host.wait_for((tmp_path / "has_a_model").exists)
    os.kill(pids[0], signal.SIGKILL)
    host.halt(ranks[1:], [0])
    record = host.record(ranks[1])
    [halted] = host.wait_for(lambda: record.of_kind("rank_halted"))
    assert not record.of_kind("rank_joined")
    assert "overlap_grad_reduce = False" in {each.partition(":")[0] for each in halted.unsupported}


def changed(kind: str, settings: str) -> str:
    """Return the example with other settings in one of Megatron's configurations."""
    return f"""
    return loop

def build(context, usual=build):
    import functools
    train.{kind} = functools.partial(train.{kind}, {settings})
    return usual(context)"""


MISTAKES: dict[str, tuple[str | None, str]] = {
    "no module": (None, "no module mine in {directory} on this node"),
    "import of what is missing": ("import nowhere_to_be_found", "imports nowhere_to_be_found"),
    "raises on import": ("1 / 0", "importing mine raised ZeroDivisionError"),
    "ends on import": ("raise SystemExit(2)", "importing mine raised SystemExit"),
    "no function": ("def bild(context): ...", "has no function build"),
    "not a function": ("build = 3", "can't call build"),
    "no loop": (
        "def build(context): return 3",
        "returned int; it must return a nodeagent.public.Loop",
    ),
    "no chunks": ("return replace(loop, chunks=[])", "the loop has 0 chunks"),
    "not wrapped": (
        "return replace(loop, chunks=[loop.chunks[0].module])",
        "the chunk is GPTModel; wrap it in megatron.core.distributed.DistributedDataParallel",
    ),
    "other optimizer": (
        "return replace(loop, optimizer=loop.optimizer.optimizer)",
        "make it with megatron.core.optimizer.get_megatron_optimizer",
    ),
    "optimizer of another library": (
        """
    adam = loop.optimizer.chained_optimizers[0].optimizer
    adam.__class__ = type("FusedAdam", (torch.optim.Optimizer,), {})
    return loop""",
        "state of FusedAdam can't be handed over in process",
    ),
    "parameters in two types": (
        """
    mixed = loop.optimizer.chained_optimizers[0]
    mixed.__class__ = train.Mixed
    mixed.fp32_from_fp32_groups = [[torch.zeros(1)]]
    return loop""",
        "parameters in bfloat16 and in float32 can't be distinguished",
    ),
    "other number of micro-batches": (
        "return replace(loop, num_micro_batches=7)",
        "num_micro_batches of the loop is 7, but 4 in the task",
    ),
    "no samples": ("return replace(loop, seq_length=0)", "seq_length 0 is less than 1"),
    "negative norm": ("return replace(loop, max_grad_norm=-1)", "max_grad_norm -1 is negative"),
    "no function of the loop": (
        "return replace(loop, before_step=None)",
        "before_step of the loop is not a function",
    ),
    "data from an iterator": (
        """
    batches = (loop.micro_batch(i, 0) for i in range(1, 100))
    return replace(loop, micro_batch=lambda iteration, index: next(batches))""",
        "micro_batch(1, 0) returned other tensors in its second call",
    ),
    "communicates": (
        """
    import torch
    torch.distributed.broadcast(next(loop.chunks[0].parameters()).data, 0)
    return loop""",
        "torch.distributed.broadcast was called while the loop was built",
    ),
    "meets its peers": (
        """
    import torch
    torch.distributed.barrier()
    return loop""",
        "torch.distributed.barrier was called while the loop was built",
    ),
    "Megatron's distributed optimizer": (
        changed("DistributedDataParallelConfig", "use_distributed_optimizer=True"),
        "use_distributed_optimizer = True: its shards are tied to Megatron's own reduction",
    ),
    "precision-aware optimizer": (
        changed("OptimizerConfig", "use_precision_aware_optimizer=True"),
        "use_precision_aware_optimizer = True: its shards are tied to Megatron's own reduction",
    ),
    "context parallelism": (
        changed("TransformerConfig", "context_parallel_size=2"),
        "context_parallel_size = 2: Megatron counts the ranks that share a micro-batch",
    ),
    "top-1 experts": (
        changed("TransformerConfig", "num_moe_experts=4, moe_router_topk=1"),
        "num_moe_experts = 4: experts are reduced over other ranks",
    ),
    "set later, and Megatron fails": (
        """
    return loop

def build(context, usual=build):
    def late(context, made=train.model_config):
        config = made(context)
        config.context_parallel_size = 2
        return config
    train.model_config = late
    return usual(context)""",
        "context_parallel_size = 2: Megatron counts the ranks that share a micro-batch",
    ),
    "layers of Transformer Engine": (
        """
    return loop

def build(context, usual=build):
    from megatron.core.models.gpt import gpt_layer_specs
    with_te = gpt_layer_specs.get_gpt_layer_with_transformer_engine_spec
    train.get_gpt_layer_local_spec = lambda **_: with_te()
    return usual(context)""",
        "transformer_engine is not installed on this node; use Megatron's local layers",
    ),
    "clips by itself": (
        """
    loop.optimizer.config.clip_grad = 1.0
    return loop""",
        "uses options that the loop can't train with: clip_grad = 1.0",
    ),
}


@pytest.mark.parametrize(("text", "expected"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_one_error_that_names_the_program_and_the_mend(
    host: RankHost,
    training: TrainingSpec,
    tmp_path: Path,
    text: str | None,
    expected: str,
    request: pytest.FixtureRequest,
) -> None:
    if text is not None:
        is_whole = "loop" not in text
        head = "" if is_whole else HEAD
        body = text if is_whole or text.startswith("\n") else f"    {text}"
        (tmp_path / "mine.py").write_text(head + body)
    program = Program(function="mine:build", directory=str(tmp_path))
    number = list(MISTAKES.values()).index((text, expected))
    ranks = launches(spec_of(training, program), Layout(), task=f"mistake-{number}")
    host.start(ranks)
    raised = host.wait_for_raise(ranks[0])
    assert raised.exception_type == "ProgramError"
    assert raised.message.startswith("program mine:build")
    assert expected.format(directory=tmp_path) in raised.message
    assert "\n" not in raised.message
    assert not raised.is_in_collective
