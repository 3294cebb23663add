"""Adam with state sharded over data-parallel ranks, like Megatron's distributed optimizer.

Megatron's distributed optimizer refuses CPU tensors. Here every replica reduces the whole gradient,
as without sharding. Then each rank updates its runs, about 1/dp of the elements of every parameter,
and the ranks gather the updated parameters. Adam works element by element, so the result equals
that of the unsharded optimizer to the last bit.

Every rank has the whole reduced gradient, so an iteration can be finished from partial results as
without sharding. Only the moments of its runs exist on one rank alone: they are its *shard*. With
bfloat16 parameters the shard includes the float32 copies, which Adam updates. The model's
parameters are then copied from them.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from megatron.core.dist_checkpointing.mapping import ShardedTensor
from megatron.core.optimizer import MegatronOptimizer
from megatron.core.optimizer.optimizer import Float16OptimizerWithFloat16Params, FP32Optimizer
from torch import distributed
from torch.distributed import ProcessGroup

from nodeagent.rank.checkpoint.manifest import CheckpointError
from nodeagent.rank.checkpoint.whole_model import FlatSlice, StateTree
from nodeagent.rank.groups.halting import wait_unless_halted
from nodeagent.rank.state.optimizers import (
    MOMENTS,
    UnsupportedOptimizerError,
    adams_of,
    model_parameters_of,
    new_adam_state,
    parameters_of,
)
from nodeagent.rank.tensors.packed_tensors import Extent

_GATHERED_AT_ONCE: Final = 16 * 1024 * 1024
"""Elements; bounds the memory that gathering needs."""

_KINDS: Final = (FP32Optimizer, Float16OptimizerWithFloat16Params)
# Megatron's names in the state of the second kind.
_COPIES: Final = "fp32_from_fp16_params"
_COPY: Final = "fp32_param"


class ShardedOptimizer:
    """Replaces a ``MegatronOptimizer``, and keeps one rank's shard of its state.

    Args:
        optimizer: Megatron's optimizer over float32 or bfloat16 parameters. Its own state becomes
            empty; learning rates and the like are set in its ``param_groups``, as usual.

    Raises:
        UnsupportedOptimizerError: The optimizer is not one Adam over the model's parameters or over
            their float32 copies.
    """

    def __init__(self, optimizer: MegatronOptimizer) -> None:
        self.inner = optimizer
        parts = getattr(optimizer, "chained_optimizers", [optimizer])
        if len(parts) != 1 or not isinstance(parts[0], _KINDS):
            kinds = ", ".join(type(part).__name__ for part in parts)
            known = " and ".join(kind.__name__ for kind in _KINDS)
            raise UnsupportedOptimizerError(f"only {known} are sharded, not {kinds}")
        (self._whole,) = adams_of(optimizer)
        self._parameters = model_parameters_of(parts[0])
        self._is_mixed = isinstance(parts[0], Float16OptimizerWithFloat16Params)
        for copy in parameters_of(self._whole) if self._is_mixed else ():
            copy.data = _without_memory(copy)
        self._runs: list[torch.nn.Parameter] = []
        self._adam: torch.optim.Optimizer | None = None
        self.partition = (0, 0)
        """The number of this shard and the number of shards; (0, 0) before ``enter``."""

    # --- as MegatronOptimizer ------------------------------------------------------------------

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Megatron's parameter groups, over whole parameters."""
        return self._whole.param_groups

    @property
    def chained_optimizers(self) -> list["ShardedOptimizer"]:
        """The optimizers that hold state."""
        return [self]

    @property
    def state(self) -> dict[Any, Any]:
        """Adam's state of the runs."""
        return self._sharded.state

    def zero_grad(self) -> None:
        """Drop the references to gradients."""
        self._whole.zero_grad()
        self._sharded.zero_grad()

    def prepare_grads(self) -> bool:
        """Give Adam the gradients of its runs.

        Return False: the vote has checked for infinities.
        """
        dp_rank, dp = self.partition
        for parameter, run in zip(self._parameters, self._runs, strict=True):
            begin, end = run_of(parameter.numel(), dp_rank, dp)
            whole: Any = parameter
            run.grad = whole.main_grad.view(-1)[begin:end]
        return False

    def step_with_ready_grads(self) -> bool:
        """Update this rank's runs. The runs of other ranks are stale until ``gather``."""
        for group, whole in zip(self._sharded.param_groups, self._whole.param_groups, strict=True):
            group.update({key: value for key, value in whole.items() if key != "params"})
        self._sharded.step()
        return True

    def sharded_state_dict(
        self, model: StateTree, *, is_loading: bool, metadata: dict[str, Any] | None = None
    ) -> StateTree:
        """Return Megatron's description of the state, with this rank's runs as leaves."""
        if is_loading:
            self.materialise()
        # Megatron describes whole parameters. Placeholders of their shape take no memory.
        for updated, run in zip(parameters_of(self._whole), self._runs, strict=True):
            if self.state.get(run):
                self._whole.state[updated] = {
                    "step": self.state[run]["step"],
                    **dict.fromkeys(MOMENTS, _without_memory(updated)),
                }
        try:
            tree = self.inner.sharded_state_dict(model, is_loading=False, metadata=metadata)
        finally:
            self._whole.state.clear()
        leaves_by_number = self._of_adam(tree)["state"]
        for number, leaves in leaves_by_number.items():
            if number != "common_step":
                leaves_by_number[number] = {
                    name: self._slice(int(number), name, leaf) for name, leaf in leaves.items()
                }
        numbers = itertools.count()
        if self._is_mixed:
            tree[_COPIES] = [
                [self._slice(next(numbers), _COPY, leaf) for leaf in group]
                for group in tree[_COPIES]
            ]
        return tree

    def load_state_dict(self, tree: StateTree) -> None:
        """Take the values that are not in tensors of the model's shape.

        Runs are filled in place.
        """
        adam = self._of_adam(tree)
        step = adam["state"].get("common_step")
        for run in self._runs if step is not None else ():
            self.state[run]["step"] = step.detach().clone()
        adam = {**adam, "state": {}}
        self.inner.load_state_dict({"optimizer": adam, _COPIES: []} if self._is_mixed else adam)

    # --- the shard -----------------------------------------------------------------------------

    def enter(self, dp_rank: int, dp: int) -> None:
        """Keep shard ``dp_rank`` of ``dp``.

        A shard that differs from the old one has no state yet.
        """
        if self.partition == (dp_rank, dp):
            return
        self.partition = (dp_rank, dp)
        # In float32 the runs are views, so the update changes the model's parameters directly.
        self._runs = [
            torch.nn.Parameter(_run(parameter, dp_rank, dp).to(self._type_of_run(parameter)))
            for parameter in self._parameters
        ]
        runs = iter(self._runs)
        groups = [
            {**group, "params": [next(runs) for _ in group["params"]]}
            for group in self._whole.param_groups
        ]
        make: Callable[..., torch.optim.Optimizer] = type(self._whole)
        self._adam = make(groups)

    def materialise(self) -> None:
        """Make Adam's state before the first step, if there is none yet."""
        for run in self._runs:
            if not self.state.get(run):
                self.state[run].update(new_adam_state(run))

    def shard_of(self, parameter: torch.Tensor) -> tuple[tuple[int, int], dict[str, torch.Tensor]]:
        """Return this rank's run of a parameter, and the optimizer's state of that run."""
        number = next(i for i, one in enumerate(self._parameters) if one is parameter)
        run = self._runs[number]
        state: dict[str, torch.Tensor] = dict(self.state.get(run, {}))
        if self._is_mixed:
            state[_COPY] = run.detach()
        return run_of(parameter.numel(), *self.partition), state

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors of the shard, in the order of ``extents``."""
        self.materialise()
        return [
            tensor
            for run in self._runs
            for tensor in (run.detach(), *(self.state[run][name] for name in ("step", *MOMENTS)))
        ]

    def extents(self, dp_rank: int, dp: int) -> list[Extent]:
        """Return type and size of the tensors of any rank's shard."""
        found: list[Extent] = []
        for parameter in self._parameters:
            begin, end = run_of(parameter.numel(), dp_rank, dp)
            run = Extent(self._type_of_run(parameter), end - begin)
            found.extend([run, Extent(torch.float32, 1), run, run])
        return found

    def take(self, tensors: Sequence[torch.Tensor], dp_rank: int, dp: int) -> None:
        """Copy the elements of this rank from the tensors of shard ``dp_rank`` of ``dp``."""
        own = self.tensors()
        for number, parameter in enumerate(self._parameters):
            begin, end = run_of(parameter.numel(), *self.partition)
            their_begin, their_end = run_of(parameter.numel(), dp_rank, dp)
            first, last = max(begin, their_begin), min(end, their_end)
            theirs, mine = (each[4 * number : 4 * number + 4] for each in (tensors, own))
            mine[1].copy_(theirs[1].view(()))  # The step is equal in all shards.
            if first < last:
                for name in (0, 2, 3):
                    run = theirs[name][first - their_begin : last - their_begin]
                    mine[name][first - begin : last - begin].copy_(run)

    def gather(self, group: ProcessGroup, is_halted: Callable[[], bool]) -> None:
        """Gather the updated runs of the parameters on all ranks of the data-parallel ``group``.

        Raises:
            RuntimeError: A peer was lost. Parameters may be a mix of two iterations; shards are
                not.
        """
        dp_rank, dp = self.partition
        for parameter, run in zip(self._parameters, self._runs, strict=True):
            if run.dtype != parameter.dtype:
                _run(parameter, dp_rank, dp).copy_(run.detach())
        if dp == 1:
            return
        for parameters in self._portions():
            runs = [[_run(parameter, rank, dp) for parameter in parameters] for rank in range(dp)]
            size = max(sum(map(len, each)) for each in runs)
            own = torch.cat(runs[dp_rank])
            gathered = [own.new_empty(size) for _ in range(dp)]
            padded = torch.nn.functional.pad(own, (0, size - len(own)))
            work = distributed.all_gather(gathered, padded, group=group, async_op=True)
            assert work is not None
            wait_unless_halted(work, is_halted)
            for theirs, values in zip(runs, gathered, strict=True):
                offset = 0
                for elements in theirs:
                    elements.copy_(values[offset : offset + len(elements)])
                    offset += len(elements)

    @property
    def _sharded(self) -> torch.optim.Optimizer:
        assert self._adam is not None, "enter() comes first"
        return self._adam

    def _type_of_run(self, parameter: torch.Tensor) -> torch.dtype:
        return torch.float32 if self._is_mixed else parameter.dtype

    def _of_adam(self, tree: StateTree) -> StateTree:
        return tree["optimizer"] if self._is_mixed else tree

    def _slice(self, number: int, name: str, leaf: object) -> FlatSlice:
        if not isinstance(leaf, ShardedTensor):
            raise CheckpointError(f"sharded {name} of a parameter that Megatron rearranges")
        key = leaf.key.removeprefix(f"optimizer.state.{name}.")
        (begin, _), state = self.shard_of(self._parameters[number])
        return FlatSlice(replace(leaf, key=key), name, begin, state[name])

    def _portions(self) -> Iterator[list[torch.Tensor]]:
        portion: list[torch.Tensor] = []
        for parameter in self._parameters:
            if portion and sum(map(torch.numel, portion)) + parameter.numel() > _GATHERED_AT_ONCE:
                yield portion
                portion = []
            portion.append(parameter)
        yield portion


def run_of(num_elements: int, dp_rank: int, dp: int) -> tuple[int, int]:
    """Return the half-open range of the elements of a parameter in shard ``dp_rank``."""
    return num_elements * dp_rank // dp, num_elements * (dp_rank + 1) // dp


def _without_memory(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros((), dtype=tensor.dtype, device=tensor.device).expand(tensor.shape)


def _run(parameter: torch.Tensor, dp_rank: int, dp: int) -> torch.Tensor:
    begin, end = run_of(parameter.numel(), dp_rank, dp)
    return parameter.detach().view(-1)[begin:end]
