"""Prepares a rank's device: patches Megatron for the CPU, or selects the GPU.

Megatron names ``cuda`` in a few places that need no GPU. With the ``gloo`` backend
``prepare_device`` patches exactly those places; with ``nccl`` it patches nothing. Each patch says
which file of Megatron needs it. The patches apply to one rank process, after the fork. They change
no kernels and no arithmetic: on CPU the same Megatron code runs.
"""

import os
from collections.abc import Callable
from typing import Any, Literal

import torch
from megatron.core.optimizer.optimizer import Float16OptimizerWithFloat16Params
from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed, random as megatron_random

from nodeagent.rank.groups.nccl import prepare_nccl
from nodeagent.rank.groups.random_state import CpuGenerators

_CPU = torch.device("cpu")
_FACTORIES = ("empty", "ones", "tensor", "zeros")


def prepare_device(backend: Literal["gloo", "nccl"], worker: int, seed: int) -> torch.device:
    """Return the device of this rank and make this process ready to use it.

    Args:
        backend: ``gloo`` for CPU, ``nccl`` for GPUs.
        worker: Slot on the node; the GPU's index with ``nccl``.
        seed: Seed of the task, for random numbers that are drawn before the first forward pass.
    """
    if backend == "gloo":
        _patch_for_cpu()
        device = _CPU
    else:
        device = _prepare_gpu(worker)
    # Makes Megatron's generators; ``reseed`` gives them their states before each forward pass.
    model_parallel_cuda_manual_seed(seed, tp_rank=0, ep_rank=0, etp_rank=0)
    return device


def _prepare_gpu(worker: int) -> torch.device:
    prepare_nccl()
    device = torch.device("cuda", worker)
    use_device(device)
    # Equal losses on every layout are promised in float32; TF32 keeps 10 bits of the mantissa.
    torch.backends.cuda.matmul.allow_tf32 = False
    # Equal runs give equal losses: no atomics in kernels, and one fixed workspace for cuBLAS.
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True, warn_only=True)
    # The mode would also fill all newly allocated memory, pinned host memory included.
    deterministic: Any = torch.utils.deterministic
    deterministic.fill_uninitialized_memory = False
    return device


def use_device(device: torch.device) -> None:
    """Select ``device`` for the calling thread.

    A thread's first call to CUDA makes a context, without a selection on the first GPU.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)


def _patch_for_cpu() -> None:
    # schedules.py and optimizer.py make small tensors with device="cuda"; fused_softmax.py its
    # mask.
    for name in _FACTORIES:
        setattr(torch, name, _on_cpu(getattr(torch, name)))
    cuda: Any = torch.cuda
    # param_and_grad_buffer.py and p2p_communication.py allocate on the current device.
    cuda.current_device = lambda: _CPU
    # p2p_communication.py synchronises after batched sends and receives.
    cuda.synchronize = lambda *_: None
    # param_and_grad_buffer.py of 0.19 has gradients wait for the stream that made them.
    cuda.current_stream = lambda *_: _NoStream()
    # optimizer.py distinguishes bfloat16 and float32 parameters by the names of CUDA's types.
    mixed: Any = Float16OptimizerWithFloat16Params
    mixed.__init__ = _with_types_of_cuda(mixed.__init__)
    _patch_generators()


class _NoStream:
    """The stream of a CPU: everything is done when it was called."""

    def synchronize(self) -> None:
        """Do nothing."""

    def wait_stream(self, stream: object) -> None:
        """Do nothing."""


def _patch_generators() -> None:
    cuda: Any = torch.cuda
    random: Any = megatron_random
    # dot_product_attention.py and transformer_block.py fork the tracker around dropout.
    random._CUDA_RNG_STATE_TRACKER = CpuGenerators()  # noqa: SLF001 - no public way to set it
    random._CUDA_RNG_STATE_TRACKER_INITIALIZED = True  # noqa: SLF001
    # random.py seeds the default generator, and saves and restores it to recompute activations.
    cuda.manual_seed = torch.default_generator.manual_seed
    random._get_cuda_rng_state = lambda **_: torch.get_rng_state()  # noqa: SLF001
    random._set_cuda_rng_state = lambda state, **_: torch.set_rng_state(state)  # noqa: SLF001


def _with_types_of_cuda(function: Callable[..., None]) -> Callable[..., None]:
    def with_types(*args: object, **kwargs: object) -> None:
        tensor: Any = torch.Tensor
        type_of = tensor.type
        tensor.type = lambda one: type_of(one).replace("torch.", "torch.cuda.")
        try:
            function(*args, **kwargs)
        finally:
            tensor.type = type_of

    return with_types


def _on_cpu(factory: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def on_cpu(*args: object, **kwargs: object) -> torch.Tensor:
        if kwargs.get("device") == "cuda":
            kwargs["device"] = _CPU
        return factory(*args, **kwargs)

    return on_cpu
