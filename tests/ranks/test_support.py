"""What recovers in process is told from real Megatron settings, and the page says the same."""

import dataclasses
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from profiles.layout import Layout
from profiles.model import ModelShape
from tests.fakes.model_cases import TINY

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.timeout(60),
    pytest.mark.usefixtures("training_program"),
    pytest.mark.filterwarnings("ignore"),  # Megatron's own, about its settings
]

PAGE = Path(__file__).parents[2] / "docs" / "in-process-support.md"
EVERYTHING = TINY.model_copy(
    update={
        "hidden_dropout": 0.1,
        "attention_dropout": 0.1,
        "sequence_parallel": True,
        "share_embeddings_and_output_weights": True,
    }
)
SPLIT = Layout(tp=2, pp=2)

Settings = dict[str, object]
Check = Callable[..., list[tuple[str, str]]]


@pytest.fixture(scope="module")
def check() -> Check:
    """Return a function that checks the built-in settings after changes to them."""
    gpt = import_module("nodeagent.rank.program.gpt")
    places = import_module("nodeagent.rank.groups.rank_place")
    support = import_module("nodeagent.rank.program.in_process_support")
    torch = import_module("torch")

    def check(
        model: Settings | None = None,
        ddp: Settings | None = None,
        optimizer: Settings | None = None,
        *,
        shape: ModelShape = EVERYTHING,
        layout: Layout = SPLIT,
    ) -> list[tuple[str, str]]:
        place = places.Place(0, layout, torch.device("cpu"))
        config = gpt.transformer_config(shape, place)
        fields = {one.name for one in dataclasses.fields(config) if one.init}
        as_built = {name: getattr(config, name) for name in fields} | {"no_sync_func": print}
        found = support.unsupported(
            type(config)(**as_built | (model or {})),
            dataclasses.replace(gpt.wrapper_config(None), **(ddp or {})),
            dataclasses.replace(gpt.optimizer_config(1e-3, bf16=shape.bf16), **(optimizer or {})),
        )
        return [(one.name, one.reason) for one in found]

    return check


@pytest.mark.parametrize("layout", [Layout(), Layout(tp=2), Layout(pp=2), Layout(tp=2, pp=2)])
@pytest.mark.parametrize("shape", [TINY, EVERYTHING, TINY.model_copy(update={"bf16": True})])
def test_built_in_model_recovers_in_process(
    check: Check, shape: ModelShape, layout: Layout
) -> None:
    assert check(shape=shape, layout=layout) == []


@pytest.mark.parametrize(
    "config",
    [
        {
            "recompute_granularity": "full",
            "recompute_method": "uniform",
            "recompute_num_layers": 1,
        },
        {"recompute_granularity": "selective", "recompute_modules": ["core_attn"]},
        {"deallocate_pipeline_outputs": True},
        {"normalization": "RMSNorm", "gated_linear_unit": True, "num_query_groups": 2},
    ],
)
def test_option_that_recovers_is_not_refused(check: Check, config: Settings) -> None:
    assert check(model=config) == []


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"enable_autocast": True}, "enable_autocast = True"),
        ({"fp16": True}, "fp16 = True"),
        ({"context_parallel_size": 2}, "context_parallel_size = 2"),
        ({"num_moe_experts": 4, "add_bias_linear": False}, "num_moe_experts = 4"),
        ({"mtp_num_layers": 1}, "mtp_num_layers = 1"),
        (
            {"virtual_pipeline_model_parallel_size": 2, "num_layers": 4},
            "virtual_pipeline_model_parallel_size = 2",
        ),
        ({"calculate_per_token_loss": False}, "calculate_per_token_loss = False"),
        ({"tp_comm_overlap": True}, "tp_comm_overlap = True"),
        ({"gradient_accumulation_fusion": True}, "gradient_accumulation_fusion = True"),
        ({"no_sync_func": None}, "no_sync_func = None"),
        ({"fp8": "hybrid"}, "fp8 = 'hybrid'"),
        ({"qk_clip": True}, "qk_clip = True"),
        (
            {"recompute_granularity": "selective", "recompute_modules": ["mlp"]},
            "recompute_modules = ['mlp']",
        ),
    ],
)
def test_setting_of_the_model_is_refused_by_name(check: Check, config: Settings, name: str) -> None:
    assert [refused for refused, _ in check(model=config)] == [name]


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"use_distributed_optimizer": True}, "use_distributed_optimizer = True"),
        ({"overlap_grad_reduce": False}, "overlap_grad_reduce = False"),
        ({"bucket_size": None}, "bucket_size = None"),
        ({"grad_reduce_in_fp32": False}, "grad_reduce_in_fp32 = False"),
        ({"average_in_collective": True}, "average_in_collective = True"),
        ({"use_megatron_fsdp": True}, "use_megatron_fsdp = True"),
        ({"overlap_param_gather": True}, "overlap_param_gather = True"),
    ],
)
def test_setting_of_the_wrapper_is_refused_by_name(
    check: Check, config: Settings, name: str
) -> None:
    assert [refused for refused, _ in check(ddp=config)] == [name]


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"clip_grad": 1.0}, "clip_grad = 1.0"),
        ({"optimizer": "sgd"}, "optimizer = 'sgd'"),
        ({"log_num_zeros_in_grad": True}, "log_num_zeros_in_grad = True"),
        ({"optimizer_cpu_offload": True}, "optimizer_cpu_offload = True"),
    ],
)
def test_setting_of_the_optimizer_is_refused_by_name(
    check: Check, config: Settings, name: str
) -> None:
    assert [refused for refused, _ in check(optimizer=config)] == [name]


def test_every_obstacle_is_named_with_its_reason(check: Check) -> None:
    found = check(model={"fp16": True}, ddp={"average_in_collective": True})
    assert {name for name, _ in found} == {"fp16 = True", "average_in_collective = True"}
    assert all(reason for _, reason in found)


@pytest.mark.parametrize(
    ("model", "optimizer", "missing"),
    [
        ({"bf16": True}, {"bf16": True}, "params_dtype"),
        ({"params_dtype": "bfloat16"}, {}, "bf16 of the model, bf16 of the optimizer"),
        ({"bf16": True, "params_dtype": "bfloat16"}, {}, "bf16 of the optimizer"),
    ],
    ids=["float32 parameters", "parameters alone", "no copies"],
)
def test_bfloat16_in_part_is_named(
    check: Check, model: Settings, optimizer: Settings, missing: str
) -> None:
    if "params_dtype" in model:
        model = model | {"params_dtype": import_module("torch").bfloat16}
    assert [name for name, _ in check(model=model, optimizer=optimizer)] == [
        f"bfloat16 without {missing}"
    ]
    both = {"bf16": True, "params_dtype": import_module("torch").bfloat16}
    assert check(model=both, optimizer={"bf16": True}) == []


def test_megatrons_defaults_are_refused_for_what_has_to_be_set() -> None:
    transformer = import_module("megatron.core.transformer.transformer_config")
    distributed = import_module("megatron.core.distributed")
    optimizer = import_module("megatron.core.optimizer")
    found = import_module("nodeagent.rank.program.in_process_support").unsupported(
        transformer.TransformerConfig(num_layers=2, hidden_size=32, num_attention_heads=4),
        distributed.DistributedDataParallelConfig(),
        optimizer.OptimizerConfig(),
    )
    assert {one.name.split(" = ")[0] for one in found} == {
        "grad_reduce_in_fp32",
        "overlap_grad_reduce",
        "no_sync_func",
        "bucket_size",
        "calculate_per_token_loss",
        "clip_grad",
    }


def test_layers_of_transformer_engine_are_found_in_the_model() -> None:
    torch = import_module("torch")
    support = import_module("nodeagent.rank.program.in_process_support")
    transformer = import_module("megatron.core.transformer.transformer_config")
    ddp = import_module("megatron.core.distributed").DistributedDataParallelConfig(
        grad_reduce_in_fp32=True, overlap_grad_reduce=True, bucket_size=1
    )
    config = transformer.TransformerConfig(
        num_layers=2, hidden_size=32, num_attention_heads=4, calculate_per_token_loss=True
    )
    config.no_sync_func = print
    engine_linear = type(
        "TELinear", (torch.nn.Linear,), {"__module__": "transformer_engine.pytorch"}
    )
    plain = torch.nn.Sequential(torch.nn.Linear(2, 2))
    mixed = torch.nn.Sequential(torch.nn.Linear(2, 2), engine_linear(2, 2))
    assert support.unsupported(config, ddp, None, [plain]) == []
    assert [one.name for one in support.unsupported(config, ddp, None, [mixed])] == ["TELinear"]


OF_OTHER_VERSIONS = {
    "tensor_parallel_num_weight_shards", "gtp_weight_remat_size", "expert_gtp_weight_remat_size",
    "expert_tensor_parallel_num_weight_shards", "use_mup", "optimizer_cuda_graph", "num_buckets",
    "grad_norm_skip_threshold",
    "param_name_patterns_for_fp32_local_accumulation", "fp4_param_gather",
    "use_layer_wise_distributed_optimizer",
}  # fmt: skip
"""Settings of the table that some supported version of Megatron lacks."""


def test_every_setting_of_the_table_exists_in_this_megatron() -> None:
    classes = import_module("nodeagent.rank.program.refused_settings").WATCHED
    table = import_module("nodeagent.rank.program.option_table")
    for option in table.OPTIONS:
        for setting in option.settings:
            names = {one.name for one in dataclasses.fields(classes[setting.holder])}
            assert setting.name in names | OF_OTHER_VERSIONS, option.title


@pytest.mark.parametrize("holder", ["model", "ddp", "optimizer"])
def test_every_setting_of_this_megatron_was_looked_at(holder: str) -> None:
    support = import_module("nodeagent.rank.program.in_process_support")
    assert support.unknown_settings(holder) == [], (
        "decide for each whether recovery depends on it: option_table or harmless_settings"
    )


def test_a_changed_setting_that_nobody_has_looked_at_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    support = import_module("nodeagent.rank.program.in_process_support")
    kinds = import_module("nodeagent.rank.program.refused_settings").WATCHED
    known = {
        **support.HARMLESS,
        "model": support.HARMLESS["model"] - {"softmax_type", "window_size"},
    }
    monkeypatch.setattr(support, "HARMLESS", known)
    config = kinds["model"](
        num_layers=2, hidden_size=32, num_attention_heads=4, softmax_type="off-by-one",
        calculate_per_token_loss=True,
    )  # fmt: skip
    ddp = kinds["ddp"](grad_reduce_in_fp32=True, overlap_grad_reduce=True, bucket_size=4096)
    named = [each.name for each in support.unsupported(config, ddp)]
    assert "softmax_type = 'off-by-one'" in named
    assert not [name for name in named if "window_size" in name], "it has its default"


@pytest.mark.parametrize(("num_replicas", "is_named"), [(2, False), (40, False), (41, True)])
def test_bucket_size_that_megatron_filled_in_is_named_where_it_follows_the_replicas(
    num_replicas: int, is_named: bool
) -> None:
    support = import_module("nodeagent.rank.program.in_process_support")
    filled_in = max(40_000_000, 1_000_000 * num_replicas)
    config = import_module("megatron.core.distributed").DistributedDataParallelConfig(
        grad_reduce_in_fp32=True, overlap_grad_reduce=True, bucket_size=filled_in
    )
    chosen = support.as_chosen(config, num_replicas)
    found = support.unsupported(SimpleNamespace(), chosen)
    assert [one.name for one in found] == ["bucket_size = None"] * is_named


@pytest.mark.parametrize(
    ("config", "can_train"),
    [
        ({"tp_comm_overlap": True}, True),
        ({"calculate_per_token_loss": False}, False),
        ({"fp16": True}, False),
    ],
)
def test_what_the_loop_would_compute_wrongly_is_told_from_what_only_restarts(
    config: Settings, can_train: bool
) -> None:
    support = import_module("nodeagent.rank.program.in_process_support")
    [found] = support.unsupported(SimpleNamespace(**config), SimpleNamespace())
    assert found.can_train is can_train


def test_unknown_setting_of_another_megatron_is_passed_over() -> None:
    support = import_module("nodeagent.rank.program.in_process_support")
    assert support.unsupported(SimpleNamespace(), SimpleNamespace(), None) == []


def test_the_page_holds_the_table() -> None:
    assert (
        import_module("nodeagent.rank.program.in_process_support").markdown_table()
        in PAGE.read_text()
    )


BAD_VALUES: dict[object, object] = {"adam": "sgd", "no_shard": "optim"}
"""By the default of a field. Any other field gets 2, which switches it on and is no function."""
NEEDED: dict[str, Settings] = {
    "model": {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 4},
    "ddp": {},
    "optimizer": {},
}


def test_each_refused_setting_is_refused_before_megatron_checks_it() -> None:
    refusing = import_module("nodeagent.rank.program.refused_settings")
    table = import_module("nodeagent.rank.program.option_table")
    settings = [
        (option, one)
        for option in table.OPTIONS
        if not option.can_train
        for one in option.settings
        if one.name != "calculate_per_token_loss"  # of which Megatron's default is refused
    ]
    assert len(settings) > 30
    for option, setting in settings:
        kind = refusing.WATCHED[setting.holder]
        defaults = [one.default for one in dataclasses.fields(kind) if one.name == setting.name]
        if not defaults:
            assert setting.name in OF_OTHER_VERSIONS
            continue
        [default] = defaults
        bad = BAD_VALUES.get(default, 2)
        with (
            pytest.raises(refusing.RefusedSettingsError) as caught,
            refusing.refusing_settings(),
        ):
            kind(**NEEDED[setting.holder] | {setting.name: bad})
        assert str(caught.value) == f"{setting.name} = {bad!r}: {option.reason}"


def test_defaults_and_failures_of_a_program_are_not_taken_for_refused_settings() -> None:
    refusing = import_module("nodeagent.rank.program.refused_settings")
    hooks = [kind.__post_init__ for kind in refusing.WATCHED.values()]

    def build() -> None:
        for holder, kind in refusing.WATCHED.items():
            kind(**NEEDED[holder])
        raise FileNotFoundError("corpus of transformer_engine")

    with pytest.raises(FileNotFoundError, match="corpus"), refusing.refusing_settings():
        build()
    assert [kind.__post_init__ for kind in refusing.WATCHED.values()] == hooks
