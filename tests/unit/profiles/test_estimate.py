"""The throughput estimate: formulae against hand-computed numbers, the search, its memory limit."""

from dataclasses import replace

import pytest

from profiles.estimate.constants import Constants, published_points
from profiles.estimate.gpu_memory import (
    available_bytes,
    input_bytes,
    layer_activation_bytes,
    needed_bytes,
    stage_layers,
    stage_parameters,
)
from profiles.estimate.hardware import GPU_BY_NAME, GPUS, find_gpu, unmeasured
from profiles.estimate.iteration_time import exchange_s, flops_per_s, iteration_s
from profiles.estimate.layer import GpuSpeed
from profiles.estimate.layout_search import LayoutRequest, best, layouts, setups
from profiles.estimate.points import parse_points
from profiles.estimate.prediction import stack_of
from profiles.estimate.shape import SHAPE_BY_NAME, gpt
from profiles.estimate.training_setup import (
    CLASSIC,
    CORE,
    CORE_FSDP,
    DEEPSPEED,
    FSDP,
    HSDP,
    PTD,
    Recompute,
    Stack,
    TrainingSetup,
)
from profiles.layout import Layout
from profiles.model import ModelShape

GPT_175B = SHAPE_BY_NAME["gpt3-175b"]
A100 = GPU_BY_NAME["a100-80g"]
PERFECT = Constants(
    matmul_ampere=1.0, matmul_hopper=1.0, matmul_blackwell=1.0, link=1.0, hidden_tensor=0.5,
    hidden_data=0.75, hidden_sharded=0.0, memory=0.8, square_bytes=6.0, straggle=0.0, fixed_s=0.0,
    fp8=2.0, eager=2.0, hop_s=1e-3, deepspeed=1.0, deepspeed_layer_s=0.0,
)  # fmt: skip
MACHINE = GpuSpeed(A100, PERFECT)


def setup_of(tp: int = 1, pp: int = 1, dp: int = 1, **options: object) -> TrainingSetup:
    return replace(TrainingSetup(Layout(tp, pp, dp)), **options)  # type: ignore[arg-type]


def test_flops_are_megatrons_formula() -> None:
    # 72 s l h^2 (1 + s / 6h + V / 12 l h) = 36864 (1 + 1/12 + 1/12)
    shape = gpt(2, 8, 2, seq=4, vocab=16)
    assert shape.flops_per_sample == pytest.approx(43008.0)
    same = ModelShape(
        num_layers=2, hidden_size=8, num_attention_heads=2, seq_length=4, vocab_size=16
    )
    assert shape.flops_per_sample == pytest.approx(same.flops_per_sample())


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("gpt3-1.3b", 1.3), ("gpt3-7b", 6.7), ("gpt3-13b", 12.8), ("gpt3-70b", 64.8),
        ("gpt3-175b", 174.6), ("llama3-8b", 8.03), ("llama3-70b", 70.55), ("llama3-405b", 405.85),
    ],
)  # fmt: skip
def test_models_have_their_published_sizes(name: str, billions: float) -> None:
    assert SHAPE_BY_NAME[name].num_parameters / 1e9 == pytest.approx(billions, rel=0.01)


@pytest.mark.parametrize(
    ("stack", "recompute", "per_element"),
    [
        (CLASSIC, Recompute.NONE, (34 + 80) / 8),
        (CLASSIC, Recompute.SELECTIVE, 34 / 8),
        (CLASSIC, Recompute.FULL, 2 / 8),
        (CORE, Recompute.NONE, 34 / 8),
        (PTD, Recompute.NONE, 10 + (24 + 80) / 8),
        (PTD, Recompute.FULL, 2),
    ],
)
def test_activations_are_those_of_korthikanti(
    stack: Stack, recompute: Recompute, per_element: float
) -> None:
    # 5 a s / h = 5 * 96 * 2048 / 12288 = 80
    setup = setup_of(8, recompute=recompute)
    kept = input_bytes if recompute is Recompute.FULL else layer_activation_bytes
    assert kept(GPT_175B, setup, stack) == pytest.approx(2048 * 12288 * per_element)


def test_state_of_a_parameter_is_18_bytes_or_6_and_a_share_of_12() -> None:
    shape = gpt(4, 1024, 8, seq=1, vocab=1024)
    parameters = stage_parameters(shape, setup_of(2, 2))
    assert parameters == (2 * 12 * 1024**2 + 1024 * 1024) / 2
    whole = needed_bytes(shape, setup_of(2, 2, 4), CORE, 1)
    shared = needed_bytes(shape, setup_of(2, 2, 4, sharded=True), CORE, 1)
    assert whole - shared == pytest.approx(parameters * 12 * 3 / 4)


def test_a_stage_of_an_uneven_pipeline_has_the_rounded_up_layers() -> None:
    assert stage_layers(106, 12, 1) == 9
    assert stage_layers(126, 8, 16) == 16
    assert stage_layers(96, 8, 6) == 12


def test_pipeline_keeps_as_many_micro_batches_as_stages() -> None:
    setup = setup_of(8, 8, sharded=True)
    one, eight, many = (needed_bytes(GPT_175B, setup, CORE, count) for count in (1, 8, 64))
    layer = layer_activation_bytes(GPT_175B, setup, CORE)
    assert eight - one == pytest.approx(7 * 12 * layer)
    assert many == eight


def test_a_matrix_product_takes_its_operations_and_its_traffic() -> None:
    seconds = MACHINE.matmul_s(1024, 2048, 4096)
    traffic = 2 * (1024 * 4096 + 4096 * 2048 + 1024 * 2048) / 2.039e12
    assert seconds == pytest.approx(2 * 1024 * 2048 * 4096 / 312e12 + traffic + 1e-5)


def test_tensor_parallel_traffic_is_two_rings_a_pass() -> None:
    time = MACHINE.layer(GPT_175B, setup_of(8), CLASSIC)
    assert time.collective_s == pytest.approx(2 * 7 / 8 * 2 * (2 * 2048 * 12288) / 300e9)
    hidden = MACHINE.layer(GPT_175B, setup_of(8), CORE)
    assert hidden.collective_s == pytest.approx(time.collective_s / 2)
    assert MACHINE.layer(GPT_175B, setup_of(1), CLASSIC).collective_s == 0.0


def test_traffic_leaves_the_node_where_the_tensor_group_does() -> None:
    inside = MACHINE.layer(GPT_175B, setup_of(8), CLASSIC).collective_s
    outside = MACHINE.layer(GPT_175B, setup_of(16), CLASSIC).collective_s
    assert outside / inside == pytest.approx((15 / 16) / (7 / 8) * 300 / (25 * 0.9))


def test_bubble_is_stages_over_micro_batches_and_interleaving_divides_it() -> None:
    shape = gpt(64, 16384, 128, vocab=64)  # next to no output layer

    def seconds(virtual: int, batch: int) -> float:
        return iteration_s(shape, setup_of(1, 8, virtual=virtual), CORE, MACHINE, batch)

    steady = (seconds(1, 800) - seconds(1, 400)) / 400
    assert seconds(1, 8) - seconds(4, 8) == pytest.approx(7 * (1 - 1 / 4) * steady, rel=0.05)
    assert seconds(1, 8) - 8 * steady > 7 * (1 - 1 / 100) * steady


def test_the_slowest_stage_counts() -> None:
    even, uneven = gpt(96, 4096, 32, vocab=64), gpt(97, 4096, 32, vocab=64)
    ratio = iteration_s(uneven, setup_of(1, 8), CORE, MACHINE, 1024) / iteration_s(
        even, setup_of(1, 8), CORE, MACHINE, 1024
    )
    assert ratio == pytest.approx(13 / 12, rel=0.01)


def test_full_recomputation_costs_about_a_third_and_selective_little() -> None:
    def seconds(recompute: Recompute) -> float:
        return iteration_s(GPT_175B, setup_of(8, 8, recompute=recompute), CLASSIC, MACHINE, 512)

    assert seconds(Recompute.FULL) / seconds(Recompute.NONE) == pytest.approx(4 / 3, rel=0.02)
    assert 1.0 < seconds(Recompute.SELECTIVE) / seconds(Recompute.NONE) < 1.1


def test_replicas_exchange_gradients_and_weights_over_the_network() -> None:
    def between_iterations(setup: TrainingSetup, batch: int) -> float:
        """Return what no micro-batch adds: the bubble, the exchange and the optimizer's step."""
        once, twice = (
            iteration_s(GPT_175B, setup, CLASSIC, MACHINE, size) for size in (batch, 2 * batch)
        )
        return 2 * once - twice

    parameters = stage_parameters(GPT_175B, setup_of(8, 8))
    step = 30 * parameters / (2.039e12 * 0.8)
    exchange = parameters * (4 + 2) * 3 / 4 / (25e9 * 0.9)
    replicated = between_iterations(setup_of(8, 8, 4, sharded=True), 512)
    alone = between_iterations(setup_of(8, 8), 128)
    assert replicated - alone == pytest.approx(exchange - step * 3 / 4, rel=1e-6)


def test_throughput_is_the_models_operations_over_time() -> None:
    assert flops_per_s(GPT_175B, 10, 2.0) == pytest.approx(GPT_175B.flops_per_sample * 5)


def test_the_best_setup_fits_into_memory_and_uses_all_workers() -> None:
    for workers in (64, 96, 128, 1000):
        found = best(GPT_175B, LayoutRequest(workers, 1536), CORE, MACHINE)
        assert found is not None
        assert found.fits
        assert found.needed_bytes <= available_bytes(A100)
        assert found.setup.layout.num_workers == workers


def test_no_setup_that_fits_is_faster_than_the_best() -> None:
    shape, request = SHAPE_BY_NAME["gpt3-13b"], LayoutRequest(32, 64)
    found = best(shape, request, CORE, MACHINE)
    assert found is not None
    for setup in setups(shape, request, CORE):
        needed = needed_bytes(shape, setup, CORE, setup.num_micro_batches(64))
        if needed <= available_bytes(A100):
            assert iteration_s(shape, setup, CORE, MACHINE, 64) >= found.iteration_s


def test_what_does_not_fit_is_told_with_what_it_needs() -> None:
    found = best(GPT_175B, LayoutRequest(8, 1536), CORE, MACHINE)
    assert found is not None
    assert not found.fits
    assert found.needed_bytes > available_bytes(A100)


def test_smaller_memory_makes_the_search_recompute_or_divide_more() -> None:
    small = GpuSpeed(GPU_BY_NAME["a100-40g"], PERFECT)
    shape = SHAPE_BY_NAME["gpt3-13b"]
    for machine in (small, MACHINE):
        found = best(shape, LayoutRequest(8, 512), CORE, machine)
        assert found is not None
        assert found.needed_bytes <= available_bytes(machine.gpu)


def test_no_more_layers_are_computed_again_than_memory_asks_for() -> None:
    request = LayoutRequest(64, 256, tp=8, pp=8, micro_batch=4)
    found = best(GPT_175B, request, CORE, MACHINE)
    assert found is not None
    layers = found.setup.recompute_layers
    assert layers is not None
    assert 1 < layers < stage_layers(96, 8, found.setup.virtual)
    count = found.setup.num_micro_batches(256)
    fewer = replace(found.setup, recompute_layers=layers - 1)
    assert needed_bytes(GPT_175B, fewer, CORE, count) > available_bytes(A100) >= found.needed_bytes
    every = replace(found.setup, recompute_layers=None)
    assert iteration_s(GPT_175B, every, CORE, MACHINE, 256) > found.iteration_s


def test_what_a_source_says_of_recomputation_is_taken_for_all_layers() -> None:
    found = best(
        GPT_175B, LayoutRequest(64, 256, tp=8, pp=8, recompute=Recompute.FULL), CORE, MACHINE
    )
    assert found is not None
    assert found.setup.recompute_layers is None


def test_uneven_stages_are_searched() -> None:
    shape = SHAPE_BY_NAME["llama3-405b"]
    assert Layout(8, 16, 4) in set(layouts(shape, LayoutRequest(512, 512)))
    request = LayoutRequest(512, 512, tp=8, pp=16)
    assert 8 in {setup.virtual for setup in setups(shape, request, CORE)}


def test_a_named_layout_is_taken_as_it_is() -> None:
    request = LayoutRequest(1120, 2240, tp=8, pp=35, micro_batch=1, recompute=Recompute.FULL)
    assert {setup.layout for setup in setups(gpt(105, 20480, 128), request, PTD)} == {
        Layout(8, 35, 4)
    }


@pytest.mark.parametrize(
    ("published", "name"),
    [
        ("A100-80GB", "a100-80g"), ("A100-40GB", "a100-40g"), ("A100", "a100-80g"),
        ("NVIDIA H100 80GB HBM3", "h100-80g"), ("H100-80GB-SXM", "h100-80g"), ("H800", "h800-80g"),
        ("H200", "h200-141g"), ("A100-SXM4-80GB", "a100-80g"), ("B200", "b200-180g"),
        ("GB300", "gb300-288g"), ("B300", "b300-288g"), ("H20", "h20-96g"),
        ("AMD Instinct MI300X", "mi300x-192g"), ("H100", "h100-80g"), ("H100-96GB", "h100-96g"), ("GB200", "gb200-186g"), ("a800-80g", "a800-80g"),
    ],
)  # fmt: skip
def test_hardware_is_found_by_published_names(published: str, name: str) -> None:
    found = find_gpu(published)
    assert found is not None
    assert found.name == name


def test_other_hardware_is_not_guessed() -> None:
    assert find_gpu("MI250X") is None
    assert find_gpu("H200000") is None
    assert find_gpu("") is None
    assert find_gpu("A1000") is None
    assert find_gpu("GH200") is None


def test_a_slower_link_costs_throughput_where_tensors_are_divided() -> None:
    a800 = GpuSpeed(GPU_BY_NAME["a800-80g"], PERFECT)
    setup = setup_of(8, 8, 2, sharded=True)
    assert iteration_s(GPT_175B, setup, CORE, a800, 512) > iteration_s(
        GPT_175B, setup, CORE, MACHINE, 512
    )


GPT_7B = SHAPE_BY_NAME["gpt3-7b"]


@pytest.mark.parametrize(
    ("gpu", "framework", "precision", "stack"),
    [
        ("a100-80g", "llm-foundry (PyTorch FSDP)", "bf16", FSDP),
        ("a100-80g", "torchtitan", "bf16", FSDP),
        ("a100-80g", "OLMo (HSDP)", "bf16", HSDP),
        ("h100-80g", "Megatron-Bridge / Megatron-Core (FSDP)", "fp8", CORE_FSDP),
        ("a100-80g", "NeMo / Megatron-Core", "bf16", CORE),
        ("a100-80g", "", "bf16", CORE),
        ("a100-80g", "Megatron-LM (Megatron-Core 0.9)", "bf16", CORE),
        ("a100-80g", "NeMo Megatron", "bf16", CLASSIC),
        ("a100-80g", "Megatron-LM PTD-P", "fp16", PTD),
        ("a100-80g", "Megatron-DeepSpeed", "fp16", DEEPSPEED),
        ("h100-80g", "Megatron-LM", "bf16", CORE),
    ],
)  # fmt: skip
def test_software_follows_from_the_framework_on_any_gpu(
    gpu: str, framework: str, precision: str, stack: Stack
) -> None:
    assert stack_of(GPU_BY_NAME[gpu], framework, precision, Recompute.FULL) == stack


def test_fully_sharded_state_is_divided_over_all_replicas_or_over_a_node() -> None:
    parameters = stage_parameters(GPT_7B, setup_of())
    work = 2 * 6 * GPT_7B.layer_weights

    def state(stack: Stack, dp: int) -> float:
        setup = setup_of(dp=dp)
        alone = needed_bytes(GPT_7B, setup_of(), stack, 1)
        return parameters * (16 if stack.eager else 18) - (
            alone - needed_bytes(GPT_7B, setup, stack, 1)
        )

    assert state(CORE_FSDP, 64) == pytest.approx(parameters * 18 / 64)
    assert state(FSDP, 64) == pytest.approx(parameters * 16 / 64)
    assert state(HSDP, 64) == pytest.approx(parameters * 16 / 8)
    assert needed_bytes(GPT_7B, setup_of(), FSDP, 1) > parameters * 16 + work


def test_fully_sharded_replicas_exchange_in_every_micro_batch() -> None:
    parameters = stage_parameters(GPT_7B, setup_of())
    once = parameters * (2 * 2 + 4) * 63 / 64 / (8 * 25e9 * 0.9)
    for count in (1, 4):
        found = exchange_s(GPT_7B, setup_of(dp=64), CORE_FSDP, MACHINE, 1.0, count)
        assert found == pytest.approx(count * once)
    inside = parameters * (2 * 2 + 4) * 7 / 8 / 300e9
    between = 2 * 4 * parameters / 8 * 7 / 8 / (25e9 * 0.9)
    found = exchange_s(GPT_7B, setup_of(dp=64), HSDP, MACHINE, 1.0, 4)
    assert found == pytest.approx(4 * inside + between)


def test_interleaved_stages_hide_more_of_the_exchange() -> None:
    def exposed(virtual: int, compute_s: float = 0.6) -> float:
        setup = setup_of(4, 6, 448, virtual=virtual, sharded=True)
        return exchange_s(GPT_175B, setup, CORE, MACHINE, compute_s, 6)

    whole = stage_parameters(GPT_175B, setup_of(4, 6)) * (4 + 2) * 447 / 448 / (2 * 25e9 * 0.9)
    assert exposed(1) == pytest.approx(whole - 0.1)
    assert exposed(2) == pytest.approx(whole - 6 * 0.1 / 2)
    assert exposed(16) == pytest.approx(whole - 6 * 0.1 * 15 / 16)
    assert exposed(16, 60.0) == pytest.approx(whole * (1 - 0.75))


def test_fp8_doubles_products_but_not_what_memory_bounds() -> None:
    h100 = GPU_BY_NAME["h100-80g"]
    slow, fast = (GpuSpeed(h100, PERFECT, is_fp8=is_fp8) for is_fp8 in (False, True))

    def gain(hidden: int) -> float:
        shape = gpt(8, hidden, hidden // 128)
        setup = setup_of(micro_batch=4)
        return iteration_s(shape, setup, CORE, slow, 64) / iteration_s(shape, setup, CORE, fast, 64)

    assert 1.0 < gain(2048) < gain(4096) < gain(12288) < 2.0


def test_unfused_elementwise_work_costs_more_where_products_are_faster() -> None:
    def cost(name: str) -> float:
        machine = GpuSpeed(GPU_BY_NAME[name], PERFECT)
        eager = replace(CORE, name="eager", eager=True)
        times = [machine.layer(GPT_7B, setup_of(), stack).forward_s for stack in (eager, CORE)]
        return times[0] / times[1]

    assert 1.0 < cost("a100-80g") < cost("h100-80g")


def test_context_parallelism_divides_tokens_and_state() -> None:
    shape = SHAPE_BY_NAME["llama3-8b"].with_sequence(65536)
    one, eight = setup_of(dp=8), setup_of(cp=8)
    assert eight.num_workers == one.num_workers == 8
    assert eight.tokens(shape) == 8192
    kept = layer_activation_bytes(shape, one, CORE)
    assert layer_activation_bytes(shape, eight, CORE) == pytest.approx(kept / 8)
    # Eight samples: each replica alone takes one of them; a context group takes all in turn.
    alone, group = (iteration_s(shape, each, CORE, MACHINE, 8) for each in (one, eight))
    assert group == pytest.approx(alone, rel=0.1)


def test_keys_and_values_of_a_context_group_wait_where_attention_is_short() -> None:
    shape = gpt(4, 8192, 64, seq=4096)
    slow = GpuSpeed(replace(A100, link_bytes_per_s=1e9), PERFECT)
    waiting, hidden = (
        machine.layer(shape, setup_of(cp=4), CORE).forward_s for machine in (slow, MACHINE)
    )
    ring = 3 * 2 * 2 * 1024 * 8192 / 1e9
    attention = slow.layer(shape, setup_of(cp=4), CORE).attention_s
    assert waiting - hidden == pytest.approx(ring, rel=0.05)
    assert attention == pytest.approx(ring)


def test_activations_wait_in_the_memory_of_a_host_with_a_fast_link_only() -> None:
    shape, request = SHAPE_BY_NAME["llama3-70b"], LayoutRequest(64, 256, tp=1, pp=1, micro_batch=2)
    for name, mode in (("gb200-186g", Recompute.OFFLOAD), ("b200-180g", Recompute.FULL)):
        machine = GpuSpeed(GPU_BY_NAME[name], PERFECT, is_fp8=True)
        found = best(shape, request, CORE_FSDP, machine)
        assert found is not None
        assert found.fits
        assert found.setup.recompute is mode
    tiny = replace(GPU_BY_NAME["gb200-186g"], host_bytes=1e9)
    found = best(shape, request, CORE_FSDP, GpuSpeed(tiny, PERFECT, is_fp8=True))
    assert found is not None
    assert found.setup.recompute is Recompute.FULL


def test_causal_operations_leave_out_half_of_the_square() -> None:
    shape = SHAPE_BY_NAME["llama3-8b"]
    square = 12 * shape.layers * shape.seq**2 * shape.hidden
    assert shape.flops_per_sample - shape.causal_flops_per_sample == pytest.approx(square / 2)


def test_what_no_point_has_is_named() -> None:
    assert unmeasured(GPU_BY_NAME["h100-80g"], is_fp8=True) == []
    assert unmeasured(GPU_BY_NAME["mi300x-192g"], is_fp8=True, cp=2) == [
        "mi300x-192g", "fp8 on mi300x-192g", "context parallelism",
    ]  # fmt: skip
    h100 = GPU_BY_NAME["h100-80g"]
    assert unmeasured(h100, most_gpus=2048) == []
    assert unmeasured(h100, most_gpus=4096) == ["more than 2,048 GPUs"]
    points = parse_points(published_points(), "published.jsonl")
    found = {gpu for point in points if (gpu := find_gpu(point.gpu_type or ""))}
    assert found == {gpu for gpu in GPUS if gpu.measured}
