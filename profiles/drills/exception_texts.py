"""Exceptions as the real software words them, one for each status that surfaces as an exception.

A drill raises them in a rank. Names are of classes that a rank can import (``nodeagent.rank.agent_link.staged_faults``);
texts are written after the wording of CUDA, NCCL, gloo, PyTorch and Megatron, with invented hosts,
addresses and sizes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_CUDA_ADVICE: Final = (
    "\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace"
    " below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception: the name of its class, and its message."""

    exception: str
    message: str


RAISED_BY_STATUS: Final[Mapping[str, Raised]] = {
    "illegal_memory_access": Raised(
        "AcceleratorError",
        f"CUDA error: an illegal memory access was encountered{_CUDA_ADVICE}",
    ),
    "ecc_error": Raised(
        "AcceleratorError",
        f"CUDA error: uncorrectable ECC error encountered{_CUDA_ADVICE}",
    ),
    "invalid_dma_mapping": Raised(
        "AcceleratorError",
        "CUDA error: OS call failed or operation not supported on this OS\n"
        "NVRM: Failed to create a DMA mapping!",
    ),
    "cuda_error": Raised(
        "AcceleratorError", f"CUDA error: device-side assert triggered{_CUDA_ADVICE}"
    ),
    "nvlink_error": Raised(
        "AcceleratorError",
        "CUDA error: uncorrectable NVLink error detected during the execution" + _CUDA_ADVICE,
    ),
    "gpu_driver_error": Raised(
        "RuntimeError",
        "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.  Reboot the system"
        " to recover this GPU",
    ),
    "other_network_error": Raised(
        "DistBackendError",
        "NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3690, remote process"
        " exited or there was a network error, NCCL version 2.27.3\nncclRemoteError: A call failed"
        " possibly due to a network error or a remote process exiting prematurely.\nLast error:\n"
        "NET/IB: Got completion from peer 192.0.2.17<41230> with status=12 opcode=0 len=0 vendor err 129",
    ),
    "connection_refused_or_reset": Raised(
        "RuntimeError",
        "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] Read error [192.0.2.17]:41230:"
        " Connection reset by peer",
    ),
    "nccl_timeout": Raised(
        "DistBackendError",
        "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2114, OpType=ALLREDUCE,"
        " NumelIn=25165824, NumelOut=25165824, Timeout(ms)=600000) ran for 600021 milliseconds before"
        " timing out.",
    ),
    "out_of_memory": Raised(
        "OutOfMemoryError",
        "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.11 GiB of"
        " which 1.07 GiB is free. Including non-PyTorch memory, this process has 78.03 GiB memory in"
        " use. Of the allocated memory 74.92 GiB is allocated by PyTorch, and 1.66 GiB is reserved by"
        " PyTorch but unallocated.",
    ),
    "other_software_error": Raised("KeyError", "'decoder.layers.1.mlp.linear_fc2.weight'"),
    "disk_full": Raised(
        "OSError", "[Errno 28] No space left on device: '/checkpoints/iter_0000040'"
    ),
    "nan_loss": Raised(
        "RuntimeError",
        "Rank 1: found NaN in local grad norm for bucket #0 in backward pass before data-parallel"
        " communication collective. Device: 0, node: host-17",
    ),
}
