"""Finds the training program of a task, calls it, and checks its loop before training begins.

A user's program is imported in the rank, after the fork, and never in the warm template. All tasks
of a node share the template, and an import may start threads, initialise CUDA, block, or end the
process. Each of these would end the warm start of every task there. Torch and Megatron, the slow
part, are imported in the template.

A mistake is one ``ProgramError`` that names the program and the mend. The same settings give the
same error again, so the controller makes no second try.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from megatron.core.distributed import DistributedDataParallel
from megatron.core.optimizer import MegatronOptimizer
from megatron.core.utils import get_model_config

from nodeagent.rank.groups.build_guard import CollectiveWhileBuildingError, refusing_collectives
from nodeagent.rank.program import builtin
from nodeagent.rank.program.dataset_building import datasets_without_peers
from nodeagent.rank.program.in_process_support import Unsupported, as_chosen, unsupported
from nodeagent.rank.program.loop import Context, Loop
from nodeagent.rank.program.refused_settings import RefusedSettingsError, refusing_settings
from nodeagent.rank.state.optimizers import UnsupportedOptimizerError, adams_of
from profiles.training_program import Program

BuildLoop = Callable[[Context], Loop]

_BUILT_IN: Final = "the built-in program"
_CANT_TRAIN: Final = "uses options that the loop can't train with"


class ProgramError(ValueError):
    """The task's program can't be used. The text is one line with the program and the mend."""


def build_loop(context: Context) -> Loop:
    """Return the loop of this rank, built by the task's program. The process groups must be formed.

    Raises:
        ProgramError: The program is not found, or returns no loop, or its loop contradicts the task
            or the contract of a loop.
        Exception: The program's function raised it.
    """
    program = context.training.program
    name = f"program {program.function}" if program else _BUILT_IN
    build = _find(program, name) if program else builtin.build_loop
    try:
        limit_s = program.index_limit_s if program else 0.0
        with refusing_collectives(), datasets_without_peers(limit_s), refusing_settings():
            loop: object = build(context)
    except CollectiveWhileBuildingError as error:
        raise ProgramError(
            f"{name}: {error} while the loop was built; a replacement builds it without peers: make"
            " weights from the seed, and no process groups of your own"
        ) from error
    except RefusedSettingsError as error:
        raise ProgramError(f"{name} {_CANT_TRAIN}: {error}") from error
    if not isinstance(loop, Loop):
        raise ProgramError(
            f"{name} returned {type(loop).__name__}; it must return a nodeagent.public.Loop"
        )
    mistake = _mistake(loop, context) or _mistake_in_data(loop)
    if mistake:
        raise ProgramError(f"{name}: {mistake}")
    refused = [one for one in _unsupported(loop) if not one.can_train]
    if refused:
        names = "; ".join(map(str, refused))
        raise ProgramError(f"{name} {_CANT_TRAIN}: {names}")
    return loop


def restart_reasons(loop: Loop) -> tuple[str, ...]:
    """Return the names of the settings that prevent recovery in process.

    Empty if there are none.
    """
    return tuple(str(one) for one in _unsupported(loop))


def _unsupported(loop: Loop) -> list[Unsupported]:
    chunk: Any = loop.chunks[0]
    optimizer: Any = loop.optimizer
    ddp_config = as_chosen(chunk.ddp_config, chunk.dp_group.size())
    return unsupported(get_model_config(chunk), ddp_config, optimizer.config, [chunk.module])


# --- the function --------------------------------------------------------------------------


def _find(program: Program, name: str) -> BuildLoop:
    module_name, _, function_name = program.function.partition(":")
    if program.directory and program.directory not in sys.path:
        sys.path.insert(0, program.directory)
        importlib.invalidate_caches()
    where = program.directory or "the installed packages"
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise ProgramError(
                f"{name}: no module {error.name} in {where} on this node; set the program's"
                " directory to the one that holds it"
            ) from error
        raise ProgramError(
            f"{name}: {module_name} imports {error.name}, which is not installed on this node"
        ) from error
    except (Exception, SystemExit) as error:
        raise ProgramError(
            f"{name}: importing {module_name} raised {type(error).__name__}: {error}; it must be"
            " importable without being run"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        what = "has no function" if function is None else "can't call"
        raise ProgramError(
            f"{name}: {module.__file__} {what} {function_name}; write module:function"
        )
    build: BuildLoop = function
    return build


# --- what it returned ----------------------------------------------------------------------


def _mistake(loop: Loop, context: Context) -> str | None:
    """Return the loop's first mistake against the contract or the task, with the mend."""
    return _mistake_in_model(loop) or _mistake_in_numbers(loop, context)


def _mistake_in_model(loop: Loop) -> str | None:
    if len(loop.chunks) != 1:
        return f"the loop has {len(loop.chunks)} chunks; it must have one, the model of this stage"
    if not isinstance(loop.chunks[0], DistributedDataParallel):
        kind = type(loop.chunks[0]).__name__
        return f"the chunk is {kind}; wrap it in megatron.core.distributed.DistributedDataParallel"
    if not isinstance(loop.optimizer, MegatronOptimizer):
        kind = type(loop.optimizer).__name__
        return (
            f"the optimizer is {kind}; make it with megatron.core.optimizer.get_megatron_optimizer"
        )
    try:
        adams_of(loop.optimizer)
    except UnsupportedOptimizerError as error:
        return f"the optimizer: {error}"
    for name in ("forward_step", "micro_batch", "reseed", "before_step"):
        if not callable(getattr(loop, name)):
            return f"{name} of the loop is not a function"
    return None


def _mistake_in_numbers(loop: Loop, context: Context) -> str | None:
    training, layout = context.training, context.place.layout
    for name in ("num_micro_batches", "micro_batch_size"):
        own, wanted = getattr(loop, name), getattr(training, name)
        if own != wanted:
            return f"{name} of the loop is {own}, but {wanted} in the task; use the task's number"
    if loop.num_micro_batches < layout.dp:
        return f"num_micro_batches {loop.num_micro_batches} is less than dp {layout.dp}"
    if loop.seq_length < 1:
        return f"seq_length {loop.seq_length} is less than 1"
    if not loop.max_grad_norm >= 0:
        return f"max_grad_norm {loop.max_grad_norm} is negative; 0 leaves gradients as they are"
    return None


def _mistake_in_data(loop: Loop) -> str | None:
    """Make a micro-batch, then another, then the first again: both results must be equal."""
    first = _tensors(loop.micro_batch(1, 0))
    before = [tensor.clone() for tensor in first]
    loop.micro_batch(1, loop.num_micro_batches - 1)
    again = list(_tensors(loop.micro_batch(1, 0)))
    if len(before) != len(again) or not all(map(torch.equal, before, again)):
        return (
            "micro_batch(1, 0) returned other tensors in its second call; it must be a function of"
            " iteration and index, not draw from an iterator"
        )
    return None


def _tensors(batch: object) -> Iterator[torch.Tensor]:
    match batch:
        case torch.Tensor():
            yield batch
        case dict():
            for value in batch.values():
                yield from _tensors(value)
        case list() | tuple():
            for value in batch:
                yield from _tensors(value)
        case _:
            pass
