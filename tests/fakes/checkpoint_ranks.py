"""The program behind ``checkpoint_cases``: forks the ranks of a case and lets them take its steps.

It trains without data: the gradient of a parameter is a function of its value, so that replicas and
copies stay equal and every value of the optimizer's state is its own. Torch is imported once, and
no tensor is made before the forks.
"""

import io
import itertools
import logging
import math
import os
import resource
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch  # noqa: TID253
from torch import distributed  # noqa: TID253

from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.rank.checkpoint import Checkpoints, saving
from nodeagent.rank.checkpoint.snapshot import HostMemory
from nodeagent.rank.groups.device_shim import prepare_device
from nodeagent.rank.groups.parallel_groups import ParallelGroups, data_parallel_group
from nodeagent.rank.groups.rank_place import Place
from nodeagent.rank.program.gpt import build_model, build_optimizer
from nodeagent.rank.state.sharded_adam import ShardedOptimizer
from tests.fakes.checkpoint_cases import Case, Found, Outcome, Step
from tests.fakes.whole_parameters import parameters_of_rank

_FILE_EVENTS = frozenset({"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"})
_WAIT_S = 30.0
_MEMORY_FOR = {"copy": (HostMemory, "take"), "write": (saving, "write_part")}
Untyped = Any
"""Megatron's optimizers and state dicts."""


class _Rank:
    def __init__(self, case: Case, global_rank: int, out_dir: Path) -> None:
        self._case = case
        self._out_dir = out_dir
        self.found = Found()
        self.iteration = 0
        device = prepare_device("gloo", 0, case.training.seed)
        self._place = Place(global_rank, case.layout, device)
        self._generation = case.generation
        make_store: Any = distributed.__dict__["FileStore"]
        store: Any = make_store(str(out_dir / "store"), case.layout.num_workers)
        self._store, self._num_stores = store, 0
        ParallelGroups(store, self._place, "gloo").form()
        self._model: Any = build_model(case.training.model, self._place, case.training.seed)
        self._optimizer: Any = build_optimizer(self._model, case.learning_rate)
        if case.is_sharded:
            self._optimizer = ShardedOptimizer(self._optimizer)
            self._optimizer.enter(self._place.dp_rank, self._place.layout.dp)
        self._checkpoints = Checkpoints(
            self._launch(),
            self._place,
            lambda: False,
            give_up_s=case.give_up_s,
        )

    def _launch(self) -> RankLaunch:
        return RankLaunch(
            task=TaskId("gpt"),
            generation=Generation(self._generation),
            global_rank=self._place.global_rank,
            worker=0,
            layout=self._case.layout,
            training=self._case.training,
        )

    def take(self, step: Step) -> None:
        if step.ranks and self._place.global_rank not in step.ranks:
            return
        match step.do:
            case "train":
                for _ in range(step.times):
                    self._train()
            case "save":
                self._begin()
                self._wait(step)
            case "begin":
                self._begin()
            case "wait":
                self._wait(step)
            case "load":
                self._enter_store()
                self.iteration = self._checkpoints.load(self._model, self._optimizer, self._store)
                self.found.loaded.append(self.iteration)
                following = range(self.iteration + 1, self.iteration + 100)
                losses = {i: self._checkpoints.expected_loss(i) for i in following}
                self.found.expected = {i: x for i, x in losses.items() if x is not None}
            case "dump":
                self._dump(step.name)
            case "note":
                for _ in range(step.times):
                    self._train()
                    self._checkpoints.note_loss(self.iteration, _loss(self.iteration))
            case "distrust":
                self._checkpoints.distrust(self.iteration + 1, "its loss is not the recorded one")
            case "blind":
                vars(os)["access"] = lambda *_: False
            case "tear":
                path = Path(self._case.training.checkpoint_dir, step.name, "manifest.crc32")
                path.unlink(missing_ok=True)
                distributed.barrier()
            case "rejoin":
                self._generation += 1
                self._checkpoints.rejoin(self._launch(), self._place)
                self._enter_store()
                self._checkpoints.recall(self.iteration, self._store, is_from_copies=False)

    def _enter_store(self) -> None:
        """Read no key of before: a generation loads once, and has a store of its own."""
        prefix: Any = distributed.__dict__["PrefixStore"]
        self._num_stores += 1
        self._store = prefix(str(self._num_stores), self._store)

    def finish(self) -> None:
        self.found.missed.extend(self._checkpoints.missed())
        for saved in self._checkpoints.finished():
            self.found.saved.append(saved.iteration)
            self.found.blocked_s.append(saved.blocked_s)
            self.found.num_bytes.append(saved.num_bytes)
        for group in self._optimizer.param_groups:
            self.found.learning_rates.append(group["lr"])
        self._checkpoints.abandon()

    def _train(self) -> None:
        self.iteration += 1
        for parameter in self._model.parameters():
            values = parameter.detach()
            parameter.main_grad.copy_((values * 1000 + self.iteration).sin() + values)
        if not self._case.is_sharded:
            self._optimizer.step()
            return
        self._optimizer.prepare_grads()
        self._optimizer.step_with_ready_grads()
        self._optimizer.gather(data_parallel_group(), lambda: False)

    def _begin(self) -> None:
        self._checkpoints.save(self.iteration, _loss(self.iteration), self._model, self._optimizer)

    def _wait(self, step: Step) -> None:
        self.found.waited.append(self._checkpoints.wait(_WAIT_S))
        if not step.ranks:
            # All ranks go on together, as after an iteration.
            distributed.barrier()

    def _dump(self, name: str) -> None:
        place = self._place
        arrays: dict[str, Any] = {}
        parameters = parameters_of_rank(
            self._model.module,
            self._case.layout,
            num_layers=self._case.training.model.num_layers,
            pp_rank=place.pp_rank,
        )
        for key, dimension, parameter in parameters:
            for kind, tensor in {"parameter": parameter.detach(), **self._state(parameter)}.items():
                split = dimension if tensor.dim() else -1
                arrays[f"{key}:{kind}/{split}"] = tensor.float().numpy()
        path = self._out_dir / f"{name}.{place.global_rank}.{place.tp_rank}.npz"
        with path.open("wb") as file:
            np.savez(file, **arrays)

    def _state(self, parameter: Untyped) -> dict[str, Any]:
        """Return the optimizer's state of a parameter; NaN where another rank has it."""
        if not self._case.is_sharded:
            copy = getattr(parameter, "main_param", None)
            inner = [one.optimizer for one in self._optimizer.chained_optimizers]
            updated = parameter if copy is None else copy
            state = next((dict(one.state[updated]) for one in inner if updated in one.state), {})
            return state if copy is None else {**state, "fp32_param": copy}
        (begin, end), state = self._optimizer.shard_of(parameter)
        whole: dict[str, Any] = {}
        for name, run in state.items():
            whole[name] = run
            if name != "step":
                whole[name] = torch.full(parameter.shape, math.nan)
                whole[name].view(-1)[begin:end] = run
        return whole


def _loss(iteration: int) -> float:
    return 3.0 + math.sin(iteration)


def _die_at(number: int, found: Found) -> None:
    """Kill this process at its ``number``-th file operation from now; 0 only counts them."""
    numbers = itertools.count(1)

    def hook(event: str, _: object) -> None:
        if event in _FILE_EVENTS:
            found.num_file_operations = next(numbers)
            if found.num_file_operations == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _limit_file_size(num_bytes: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, resource.RLIM_INFINITY))


def _fail_once(owner: Any, name: str) -> None:  # noqa: ANN401 - a class or a module
    original = getattr(owner, name)

    def fail(*_: object) -> None:
        setattr(owner, name, original)
        raise MemoryError

    setattr(owner, name, fail)


def _run_rank(case: Case, global_rank: int, out_dir: Path) -> None:
    torch.set_num_threads(1)
    log = io.StringIO()
    logging.getLogger("megatron").setLevel(logging.ERROR)
    logging.basicConfig(stream=log, level=logging.INFO, format="%(levelname)s %(message)s")
    found = Found()
    rank: _Rank | None = None
    try:
        rank = _Rank(case, global_rank, out_dir)
        found = rank.found
        limited = 1 if case.layout.num_workers > 1 else 0
        if case.file_size_limit is not None and global_rank == limited:
            _limit_file_size(case.file_size_limit)
        if case.lacks_memory_to is not None and global_rank == limited:
            _fail_once(*_MEMORY_FOR[case.lacks_memory_to])
        for step in case.steps:
            rank.take(step)
            if step.do == "dump" and case.dies_at is not None and global_rank == 0:
                _die_at(case.dies_at, found)
                case = case.model_copy(update={"dies_at": None})
        rank.finish()
    except BaseException:  # noqa: BLE001 - told to the test, whatever it is
        found.error = traceback.format_exc()
    found.log = log.getvalue()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    (out_dir / f"{global_rank}.json").write_text(found.model_dump_json())


def _fork(case: Case, global_rank: int, out_dir: Path) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            _run_rank(case, global_rank, out_dir)
        finally:
            os._exit(0)
    return pid


def _run_case(case: Case, out_dir: Path) -> Outcome:
    ranks = range(case.layout.num_workers)
    for pid in [_fork(case, rank, out_dir) for rank in ranks]:
        os.waitpid(pid, 0)
    paths = [out_dir / f"{rank}.json" for rank in ranks]
    found = [
        Found.model_validate_json(path.read_text()) if path.exists() else None for path in paths
    ]
    return Outcome(ranks=found, out_dir=str(out_dir))


def main() -> None:
    # Libraries may print; the outcomes have a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        out_dir, _, case = line.partition("\t")
        outcome = _run_case(Case.model_validate_json(case), Path(out_dir))
        print(outcome.model_dump_json(), file=answers, flush=True)


if __name__ == "__main__":
    main()
