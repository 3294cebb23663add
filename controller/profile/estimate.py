"""``unicron profile estimate``: estimates T(t, x), a model's throughput, with layouts."""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from controller.arguments import HelpText, file_path
from controller.printing import plain_console, print_table, refuse
from controller.profile.profile_options import check_output, count, sizes
from profiles.estimate.constants import fitted_constants
from profiles.estimate.gpu_memory import memory_excess
from profiles.estimate.hardware import GIB, GPU_BY_NAME, Gpu, find_gpu, unmeasured
from profiles.estimate.iteration_time import flops_per_s
from profiles.estimate.layer import GpuSpeed
from profiles.estimate.layout_search import Estimate, LayoutRequest, best
from profiles.estimate.shape import SHAPE_BY_NAME, DecoderShape
from profiles.estimate.shape_file import find_shape
from profiles.estimate.training_setup import CORE, STACK_BY_NAME, Stack
from profiles.records import RecordError
from profiles.table_file import estimated_table, save_table

_DEFAULT_WORKERS: Final = (8, 16, 32, 64, 128, 256, 512, 1024)
_DEFAULT_TOKENS: Final = 2**22
"""Tokens of an iteration if no batch is given: about those of GPT-3 and Llama 3."""

_EPILOG = f"""\
models:   {", ".join(SHAPE_BY_NAME)}, or a JSON file:
          {{"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "gated": true,
           "seq": 8192, "vocab": 128256, "tied": false}}
hardware: {", ".join(GPU_BY_NAME)}

"throughput" in the JSON output can be used in a task of `unicron plan solve`: FLOP/s by number of workers,
for the sizes at which the model fits into memory.

examples:
  unicron profile estimate --model gpt3-7b --hardware a800-80g
  unicron profile estimate --model llama3-70b --hardware h100-80g --workers 64,128,256 --json
"""


def add_arguments(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Define the options."""
    parser = actions.add_parser(
        "estimate",
        help="estimate a model's throughput by number of workers",
        description="Estimate the FLOP/s of a model for several numbers of workers, each in the fastest"
        " layout that fits into memory.",
        formatter_class=HelpText,
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--model", required=True, metavar="NAME|FILE.json", help="the model (see models below)"
    )
    parser.add_argument(
        "--hardware", required=True, metavar="NAME", help="the GPU (see hardware below)"
    )
    parser.add_argument(
        "--workers",
        metavar="N,N,...",
        help="numbers of GPUs (default 8,16,32,64,128,256,512,1024)",
    )
    parser.add_argument(
        "--global-batch",
        metavar="SAMPLES",
        help="samples of an iteration (default: 4,194,304 tokens)",
    )
    parser.add_argument("--seq", metavar="TOKENS", help="tokens of a sample (default: the model's)")
    parser.add_argument(
        "--stack",
        choices=list(STACK_BY_NAME),
        default=CORE.name,
        help="training software: core (Megatron-Core since 2024, the default), core-fsdp (the same with"
        " FSDP), fsdp or hsdp (PyTorch), classic (2022), ptd or deepspeed (2021)",
    )
    parser.add_argument(
        "--precision",
        choices=("bf16", "fp8"),
        default="bf16",
        help="of the layers' matrix products (default bf16)",
    )
    parser.add_argument(
        "--context-parallel",
        metavar="N",
        help="GPUs that divide the tokens of each sample (default 1); they are part of the workers",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--output",
        type=file_path,
        metavar="FILE.json",
        help="also write a table for `unicron profile show` and `merge`",
    )


def run(arguments: argparse.Namespace) -> int:
    """Estimate and print; return 0, or 2 if an argument is wrong."""
    try:
        shape = find_shape(arguments.model)
        if arguments.seq is not None:
            shape = shape.with_sequence(count("--seq", arguments.seq, 10**8))
        gpu = _gpu(arguments.hardware)
        given = arguments.workers
        wanted = _DEFAULT_WORKERS if given is None else sizes("--workers", given)
        global_batch = _global_batch(arguments.global_batch, shape)
        stack = STACK_BY_NAME[arguments.stack]
        cp = _context_parallel(arguments, shape, stack)
        is_fp8 = _is_fp8(arguments.precision, gpu)
        check_output(arguments.output)
    except RecordError as error:
        return refuse("unicron profile", str(error))
    machine = GpuSpeed(gpu, fitted_constants(), is_fp8=is_fp8)
    answer = {
        "model": arguments.model,
        "hardware": gpu.name,
        "stack": stack.name,
        "precision": arguments.precision,
        "context_parallel": cp,
        "unmeasured": unmeasured(gpu, is_fp8=is_fp8, cp=cp, most_gpus=max(wanted)),
        "global_batch": global_batch,
        "seq": shape.seq,
        **estimate(shape, machine, stack, wanted, LayoutRequest(0, global_batch, cp=cp)),
    }
    if arguments.json:
        sys.stdout.write(f"{json.dumps(answer)}\n")
    else:
        _print(answer)
    return 0 if arguments.output is None else _write(answer, arguments.output)


def _write(answer: dict[str, Any], path: Path) -> int:
    title = f"{answer['model']} on {answer['hardware']}"
    if not answer["layouts"]:
        return refuse("unicron profile", f"{path}: not written: the model fits none of the sizes")
    try:
        save_table(estimated_table(title, answer["layouts"]), path)
    except OSError as error:
        return refuse("unicron profile", f"{path}: {error.strerror}")
    return 0


def estimate(
    shape: DecoderShape,
    machine: GpuSpeed,
    stack: Stack,
    wanted: tuple[int, ...],
    request: LayoutRequest,
) -> dict[str, Any]:
    """Return throughput and layout of each usable size, and for each other size the reason."""
    throughput: dict[str, float] = {}
    layouts: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    for workers in wanted:
        if workers % request.cp:
            left_out[str(workers)] = f"not a multiple of {request.cp}, the context-parallel size"
            continue
        found = best(shape, replace(request, workers=workers), stack, machine)
        if found is None:
            left_out[str(workers)] = "every layout has more replicas than the batch has samples"
        elif not found.fits:
            left_out[str(workers)] = memory_excess(found.needed_bytes, machine.gpu)
        else:
            rate = flops_per_s(shape, request.global_batch, found.iteration_s)
            throughput[str(workers)] = rate
            layouts.append(_layout(found, workers, rate, stack))
    return {"throughput": throughput, "layouts": layouts, "left_out": left_out}


def _layout(found: Estimate, workers: int, rate: float, stack: Stack) -> dict[str, Any]:
    setup = found.setup
    return {
        "workers": workers,
        "flops_per_s": rate,
        "tflops_per_gpu": rate / workers / 1e12,
        "iteration_s": found.iteration_s,
        "tp": setup.layout.tp,
        "pp": setup.layout.pp,
        "dp": setup.layout.dp,
        "cp": setup.cp,
        "virtual_stages": setup.virtual,
        "micro_batch": setup.micro_batch,
        "recompute": setup.recompute.value,
        "recompute_layers": setup.recompute_layers,
        "distributed_optimizer": setup.sharded or stack.fully_sharded,
        "memory_gib": found.needed_bytes / GIB,
    }


def _recomputed(row: dict[str, Any]) -> str:
    mode, layers = str(row["recompute"]), row["recompute_layers"]
    return mode + ("" if layers is None else f", {layers} a stage")


def _gpu(name: str) -> Gpu:
    gpu = find_gpu(name)
    if gpu is None:
        raise RecordError(f"--hardware {name!r:.80}: unknown GPU; known: {', '.join(GPU_BY_NAME)}")
    return gpu


def _is_fp8(precision: str, gpu: Gpu) -> bool:
    if precision == "fp8" and not gpu.has_fp8:
        raise RecordError(f"--precision fp8: {gpu.name} has no fp8; use bf16")
    return precision == "fp8"


def _context_parallel(arguments: argparse.Namespace, shape: DecoderShape, stack: Stack) -> int:
    option = "--context-parallel"
    if arguments.context_parallel is None:
        return 1
    cp = count(option, arguments.context_parallel, 1024)
    if cp > 1 and not stack.flash:
        raise RecordError(
            f"{option} {cp}: the stack {stack.name} has none; use --stack {CORE.name}"
        )
    if shape.seq % (2 * cp) and cp > 1:
        raise RecordError(f"{option} {cp}: {shape.seq} tokens are not a multiple of {2 * cp}")
    return cp


def _global_batch(text: str | None, shape: DecoderShape) -> int:
    if text is None:
        return max(1, _DEFAULT_TOKENS // shape.seq)
    return count("--global-batch", text, 10**7)


def _print(answer: dict[str, Any]) -> None:
    console = plain_console()
    layout = ("tp", "pp", "dp", "cp") if answer["context_parallel"] > 1 else ("tp", "pp", "dp")
    heads = (
        "workers", "PFLOP/s", "TFLOP/s per GPU", "iteration, s", *layout, "virtual",
        "micro-batch", "recompute", "optimizer", "GiB",
    )  # fmt: skip
    rows = [
        (
            str(row["workers"]),
            f"{row['flops_per_s'] / 1e15:.4g}",
            f"{row['tflops_per_gpu']:.1f}",
            f"{row['iteration_s']:.3g}",
            *(str(row[key]) for key in (*layout, "virtual_stages", "micro_batch")),
            _recomputed(row),
            "sharded" if row["distributed_optimizer"] else "whole",
            f"{row['memory_gib']:.0f}",
        )
        for row in answer["layouts"]
    ]
    print_table(console, heads, rows, numbers=range(len(heads)))
    for size, reason in answer["left_out"].items():
        console.print(f"{size} workers: {reason}")
    console.print(
        f"estimated, not measured: {answer['model']} on {answer['hardware']}, {answer['global_batch']}"
        f" samples of {answer['seq']} tokens per iteration; docs/profiles.md gives the usual error"
    )
    if answer["unmeasured"]:
        names = ", ".join(answer["unmeasured"])
        console.print(f"not measured: {names}; expect larger errors")
