"""The program behind ``model_cases``: forks the ranks of a case and lets them train.

It reads one ``Case`` per line on standard input and writes one ``Outcome`` per line. The loop is
the plainest one that is right: Megatron's schedule, Megatron's own reduction, and then what is
tested. Nothing recovers. Gradients go to files, by name in the whole model.

Torch is imported once and no tensor is made before the forks, as in the real template.
"""

import functools
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch  # noqa: TID253
from megatron.core import parallel_state  # noqa: TID253
from megatron.core.distributed import DistributedDataParallel, finalize_model_grads  # noqa: TID253
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: TID253
from torch import distributed  # noqa: TID253

from nodeagent.protocol.regroup import even_shares
from nodeagent.rank.groups.device_shim import prepare_device
from nodeagent.rank.groups.parallel_groups import ParallelGroups
from nodeagent.rank.groups.random_state import reseed
from nodeagent.rank.groups.rank_place import Place
from nodeagent.rank.iteration.accumulation import finalise_in_replica, squared_grad_norm
from nodeagent.rank.program.gpt import build_model, build_optimizer, transformer_config
from nodeagent.rank.program.micro_batches import MicroBatches
from tests.fakes.model_cases import Case, Outcome
from tests.fakes.whole_parameters import parameters_of_rank


class _Rank:
    def __init__(self, case: Case, global_rank: int) -> None:
        self._case = case
        self._training = case.training
        self.outcome = Outcome()
        device = prepare_device("gloo", 0, case.training.seed)
        self._place = Place(global_rank, case.layout, device)
        files: Any = distributed
        store = files.FileStore(str(case.out_dir / "store"), case.layout.num_workers)
        ParallelGroups(store, self._place, "gloo").form()
        self._micro_batches = MicroBatches(case.training, device)
        self._model: Any = self._build()
        self._optimizer: Any = build_optimizer(self._model, case.training.learning_rate)
        self._states: list[bytes] = []

    def run(self) -> None:
        for iteration in range(1, (self._training.num_iterations or 1) + 1):
            self._model.zero_grad_buffer()
            self._optimizer.zero_grad()
            loss, num_tokens = self._accumulate(iteration)
            self._reduce_and_finalise()
            loss, num_tokens = self._place.sum_over_all([loss, num_tokens])
            self._model.scale_gradients(1 / num_tokens)
            squared = self._place.sum_over_all([squared_grad_norm(self._model, self._place)])[0]
            self.outcome.losses.append(loss / num_tokens)
            self.outcome.grad_norms.append(float(squared**0.5))
            if iteration == 1:
                self._save_gradients()
            self._optimizer.step()
        self.outcome.buckets = [self._bucket_names()]

    def _build(self) -> DistributedDataParallel:
        case, place = self._case, self._place
        config = transformer_config(case.training.model, place)
        if case.config:
            config = type(config)(**{**vars(config), **case.config})
        if case.builds_alone not in (None, place.global_rank):
            distributed.barrier()
        model = build_model(
            case.training.model,
            place,
            case.training.seed,
            bucket_size=case.bucket_size,
            config=config,
        )
        if case.builds_alone == place.global_rank:
            distributed.barrier()
        return model

    def _accumulate(self, iteration: int) -> tuple[float, float]:
        shares = even_shares(self._training.num_micro_batches, self._case.layout.dp)
        indices = list(shares[self._place.dp_rank])
        if self._case.is_reversed:
            indices.reverse()

        def step(indices: Iterator[int], model: torch.nn.Module) -> tuple[torch.Tensor, Any]:
            self._check_generators()
            index = next(indices)
            reseed(self._training.seed, iteration, index, self._place)
            batch = self._micro_batches.get(iteration, index)
            output = model(batch.tokens, batch.position_ids, None, labels=batch.labels)
            self._states = _generator_states()
            return output, _sum_of_losses

        losses: list[torch.Tensor] = get_forward_backward_func()(
            forward_step_func=step,
            data_iterator=iter(indices),
            model=self._model,
            num_microbatches=len(indices),
            seq_length=self._training.model.seq_length,
            micro_batch_size=self._training.micro_batch_size,
            forward_only=False,
        )
        self._check_generators()
        if not losses or self._place.tp_rank != 0:
            return 0.0, 0.0
        num_tokens = self._training.micro_batch_size * self._training.model.seq_length
        return float(torch.stack(losses).double().sum()), len(losses) * num_tokens

    def _reduce_and_finalise(self) -> None:
        if self._case.is_finalised_by_megatron:
            finalize_model_grads([self._model])
            return
        self._model.finish_grad_sync()
        buffers = [buffer.grad_data for buffer in self._model.buffers]
        reduced = [grad_data.clone() for grad_data in buffers]
        finalise_in_replica([self._model])
        finalised = [grad_data.clone() for grad_data in buffers]
        for grad_data, before in zip(buffers, reduced, strict=True):
            grad_data.copy_(before)
        finalise_in_replica([self._model])
        pairs = zip(buffers, finalised, strict=True)
        self.outcome.is_repeatable &= all(torch.equal(one, other) for one, other in pairs)

    def _check_generators(self) -> None:
        """Count it if a state has changed since the last forward pass: a backward pass drew."""
        if self._states and _generator_states() != self._states:
            self.outcome.num_draws_in_backward += 1
        self._states = []

    def _bucket_names(self) -> list[list[str]]:
        names = {parameter: name for name, parameter in self._model.module.named_parameters()}
        return [
            [names[parameter] for parameter in bucket.params_list]
            for group in self._model.bucket_groups
            for bucket in group.buckets
        ]

    def _save_gradients(self) -> None:
        """Write each gradient with where it belongs: name, split dimension or -1."""
        place = self._place
        parameters = parameters_of_rank(
            self._model.module,
            self._case.layout,
            num_layers=self._training.model.num_layers,
            pp_rank=place.pp_rank,
        )
        arrays: dict[str, Any] = {
            f"{key}/{dimension}": parameter.main_grad.numpy()
            for key, dimension, parameter in parameters
        }
        path = self._case.out_dir / f"{place.dp_rank}.{place.pp_rank}.{place.tp_rank}.npz"
        np.savez(path, **arrays)


def _sum_of_losses(
    loss_per_token: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    loss = loss_per_token.sum()
    return loss, torch.tensor(loss_per_token.numel(), dtype=torch.int), loss.detach().clone()


def _generator_states() -> list[bytes]:
    random: Any = sys.modules["megatron.core.tensor_parallel.random"]
    tracked = random.get_cuda_rng_tracker().get_states()
    states = [torch.get_rng_state(), *(tracked[name] for name in sorted(tracked))]
    return [state.numpy().tobytes() for state in states]


def _run_rank(case: Case, global_rank: int) -> int:
    torch.set_num_threads(1)
    path = case.out_dir / f"{global_rank}.json"
    outcome = Outcome()
    try:
        rank = _Rank(case, global_rank)
        rank.run()
        outcome = rank.outcome
    except BaseException:  # noqa: BLE001 - told to the test, whatever it is
        outcome = Outcome(errors=[traceback.format_exc()])
    path.write_text(outcome.model_dump_json())
    return bool(outcome.errors)


def _run_case(case: Case) -> Outcome:
    ranks = range(case.layout.num_workers)
    pids = [_fork(functools.partial(_run_rank, case, rank)) for rank in ranks]
    for pid in pids:
        os.waitpid(pid, 0)
    paths = [case.out_dir / f"{rank}.json" for rank in ranks]
    outcomes = [
        Outcome.model_validate_json(path.read_text()) if path.exists() else Outcome(errors=["died"])
        for path in paths
    ]
    errors = [error for outcome in outcomes for error in outcome.errors]
    if errors:
        return Outcome(errors=errors)
    return outcomes[0].model_copy(
        update={
            "buckets": [outcome.buckets[0] for outcome in outcomes],
            "num_draws_in_backward": sum(one.num_draws_in_backward for one in outcomes),
            "is_repeatable": all(outcome.is_repeatable for outcome in outcomes),
        }
    )


def _fork(run: Callable[[], int]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = run()
        finally:
            os._exit(code)
    return pid


def main() -> None:
    # Libraries may print; the outcomes have a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    assert not parallel_state.is_initialized()
    for line in sys.stdin:
        outcome = _run_case(Case.model_validate_json(line))
        print(outcome.model_dump_json(), file=answers, flush=True)


if __name__ == "__main__":
    main()
