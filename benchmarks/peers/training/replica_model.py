"""One replica of the GPT: model, optimizer and data, on plain megatron-core.

The same model, weights and micro-batches as ``nodeagent.rank`` makes for one rank without tensor
or pipeline parallelism, so that losses can be compared. Built here from megatron-core alone: what
is measured must not change with the product that it is compared with.
"""
# ruff: noqa: TID253 - only rank processes import this

import hashlib
import math
import warnings

import torch

from peers.runs.workload_plan import Workload

warnings.simplefilter("ignore")  # Megatron warns once per optional package that is not installed

from megatron.core import parallel_state  # noqa: E402
from megatron.core.distributed import (  # noqa: E402
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.optimizer import (  # noqa: E402
    MegatronOptimizer,
    OptimizerConfig,
    get_megatron_optimizer,
)
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402

from nodeagent.rank.groups.device_shim import prepare_device  # noqa: E402
from profiles.corpus import load_corpus, sample_offset  # noqa: E402

_INIT_STD = 0.02
_RESIDUAL_PROJECTIONS = ("linear_proj.weight", "linear_fc2.weight")


def prepare_process(seed: int) -> None:
    """Make this process one that Megatron can use without a GPU. Once per process."""
    torch.set_num_threads(1)
    prepare_device("gloo", 0, seed)


def form_parallel_state(timeout_s: float) -> None:
    """Make Megatron's groups over ``torch.distributed``'s world, all of it data parallel.

    ``timeout_s`` bounds each of their collectives.
    """
    if parallel_state.model_parallel_is_initialized():
        parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(
        create_gloo_process_groups=False, distributed_timeout_minutes=timeout_s / 60
    )


def build_model(workload: Workload) -> DistributedDataParallel:
    """Return the initialised model in Megatron's data-parallel wrapper."""
    config = TransformerConfig(
        num_layers=workload.num_layers,
        hidden_size=workload.hidden_size,
        num_attention_heads=workload.num_attention_heads,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        params_dtype=torch.float32,
        use_cpu_initialization=True,
        # Fused kernels need Apex or a compiler at run time.
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        persist_layer_norm=False,
    )
    model = GPTModel(
        config,
        get_gpt_layer_local_spec(),
        vocab_size=workload.vocab_size,
        max_sequence_length=workload.seq_length,
        share_embeddings_and_output_weights=False,
    )
    _initialise(model, workload)
    ddp_config = DistributedDataParallelConfig(grad_reduce_in_fp32=True)
    wrapped = DistributedDataParallel(config, ddp_config, model)
    config.finalize_model_grads_func = finalize_model_grads
    return wrapped


def build_optimizer(model: DistributedDataParallel, workload: Workload) -> MegatronOptimizer:
    """Return Megatron's Adam. It doesn't clip: its clipping asserts CUDA tensors."""
    config = OptimizerConfig(
        optimizer="adam", lr=workload.learning_rate, weight_decay=0.0, clip_grad=0.0
    )
    return get_megatron_optimizer(config, [model], use_gloo_process_groups=False)


def _initialise(model: GPTModel, workload: Workload) -> None:
    residual_std = _INIT_STD / math.sqrt(2 * workload.num_layers)
    for name, parameter in model.named_parameters():
        std = residual_std if name.endswith(_RESIDUAL_PROJECTIONS) else _INIT_STD
        if name.endswith("bias"):
            torch.nn.init.zeros_(parameter)
        elif "layernorm" in name:
            torch.nn.init.ones_(parameter)
        else:
            digest = hashlib.blake2b(f"{workload.seed}/{name}".encode(), digest_size=7).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest, "big"))
            with torch.no_grad():
                parameter.normal_(0.0, std, generator=generator)


class ReplicaMicroBatches:
    """Random access to the micro-batches: (tokens, position ids, labels) of int64."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        corpus = load_corpus("", seq_length=workload.seq_length, vocab_size=workload.vocab_size)
        self._num_offsets = len(corpus) - workload.seq_length
        self._text = torch.frombuffer(bytearray(corpus), dtype=torch.uint8)

    def get(self, iteration: int, index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return micro-batch ``index`` of the global batch of ``iteration``."""
        workload = self._workload
        windows = []
        for sample in range(workload.micro_batch_size):
            begin = sample_offset(
                self._num_offsets,
                seed=workload.seed,
                iteration=iteration,
                micro_batch=index,
                sample=sample,
            )
            windows.append(self._text[begin : begin + workload.seq_length + 1])
        text = torch.stack(windows).long()
        positions = torch.arange(workload.seq_length).expand(workload.micro_batch_size, -1)
        return text[:, :-1].contiguous(), positions.contiguous(), text[:, 1:].contiguous()


def gradient_buffers(model: DistributedDataParallel) -> list[torch.Tensor]:
    """Return Megatron's contiguous gradient buffers; all gradients are in them."""
    return [buffer.grad_data for buffer in model.buffers]
