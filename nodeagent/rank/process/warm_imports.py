"""Imports torch, Megatron and the training program once, without warnings and with one thread.

Libraries read the settings here when they are imported, so the settings come first. They hold for
the template, for every rank forked from it, and for a cold rank. No tensor is touched: an operation
may start the thread pool, and a process with two threads can't be forked.
"""

import contextlib
import gc
import importlib
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from nodeagent.protocol.rank_launch import RankLaunch

RunRank = Callable[[Path, RankLaunch], int]
"""``rank_main.run_rank``: trains as one rank and returns the process's exit code."""

_SETTINGS: Final = {
    # Thread pools would start at import (OpenBLAS) or at the first operation (OpenMP).
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # Asking whether there is a GPU must not initialise CUDA: ``is_available`` then counts them.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    # Megatron's tensor parallelism wants kernels queued in the order they are issued.
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",
}
_RECORDER_SIZE: Final = "256"
"""Collectives that torch's flight recorder keeps, which cover some iterations.

Its default of 2,000 takes too long to read (``flight_recorder``).
"""
_RECORDER_SETTINGS: Final = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")


def import_training_program() -> RunRank:
    """Import everything that a rank needs, and return the function that runs one. Takes seconds."""
    os.environ.update(_SETTINGS)
    if not any(name in os.environ for name in _RECORDER_SETTINGS):
        os.environ[_RECORDER_SETTINGS[0]] = _RECORDER_SIZE
    with (
        warnings.catch_warnings(),
        _without_garbage_collection(),
        _without_compiler(),
        _without_driver(),
    ):
        # Megatron warns once per optional package that is not installed.
        warnings.simplefilter("ignore")
        main: Any = importlib.import_module("nodeagent.rank.process.rank_main")
        # Every optimizer step looks for it. Imported here, it costs no time in each rank.
        importlib.import_module("torch._dynamo")
        # The default data set imports it. Imported here, all ranks share its memory pages.
        importlib.import_module("pydoc_data.topics")
    run_rank: RunRank = main.run_rank
    return run_rank


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Keep the collector off, and have it never visit what is imported.

    It would take a sixth of the time and find almost nothing to free, also right afterwards: were
    nothing frozen, the first new object would set it off. Memory pages of frozen objects stay
    shared with forked children.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def _without_compiler() -> Iterator[None]:
    """Make ``torch.compile`` a no-op, which saves 1.3 s and 44 MB of imports.

    Megatron decorates its fused functions with it when it is imported, and that alone loads the
    whole compiler. ``gpt`` switches all fused functions off. A fused function that is called anyway
    runs uncompiled.
    """
    torch: Any = importlib.import_module("torch")
    compile_function = torch.compile
    torch.compile = _uncompiled
    try:
        yield
    finally:
        torch.compile = compile_function


@contextlib.contextmanager
def _without_driver() -> Iterator[None]:
    """Have torch count GPUs by their device files.

    ``torch.utils.cpp_extension``, which Megatron imports, looks for GPUs when it is imported.
    CUDA's driver can't be used after a fork. Neither can NVML, which starts a thread (driver 580).
    """
    torch: Any = importlib.import_module("torch")
    count = torch.cuda.device_count
    torch.cuda.device_count = _num_device_files
    try:
        yield
    finally:
        torch.cuda.device_count = count


def _num_device_files() -> int:
    return sum(1 for _ in Path("/dev").glob("nvidia[0-9]*"))


def _uncompiled(function: Callable[..., Any] | None = None, **_: object) -> object:
    return function if function is not None else _uncompiled
