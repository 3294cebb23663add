"""A rank under torchft: a replica group of one, whose steps torchft's manager commits.

Megatron's own reduction can't be used, since its group must not break: each rank is a Megatron
world of one, and the manager reduces Megatron's gradient buffers over the replica groups. State of
a returning group comes from a peer through the manager.

With ``divides_batch`` the global batch is divided over the groups that take part, so that an
update always has all micro-batches. Without it each group has a fixed share, as in torchft's
examples, and updates made while a group is away lack its share.
"""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from peers.runs.peer_rank_records import JournalWriter
from peers.runs.workload_plan import RunPlan, read_plan
from peers.training.torch_import import import_torch


def main() -> None:
    """Train until the manager has committed the last iteration."""
    plan = read_plan(Path(sys.argv[1]))
    import_torch(is_lean=bool(plan.settings.get("lean_imports")))
    from torch import distributed

    from peers.training.replica_model import form_parallel_state, prepare_process  # noqa: PLC0415

    prepare_process(plan.workload.seed)
    distributed.init_process_group("gloo")
    form_parallel_state(plan.settings["gloo_timeout"])
    group = int(os.environ["REPLICA_GROUP_ID"])
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    _Training(plan, group, attempt).run()
    distributed.destroy_process_group()


class _Training:
    def __init__(self, plan: RunPlan, group: int, attempt: int) -> None:
        import torchft  # noqa: PLC0415

        from peers.training.replica import Replica  # noqa: PLC0415

        settings = plan.settings
        self._plan = plan
        self._group = group
        self._journal = JournalWriter(plan.journal, group, attempt)
        self._replica = Replica(plan, group, self._journal)
        self._divides_batch = bool(settings.get("divides_batch"))
        self._manager: Any = torchft.Manager(
            pg=torchft.ProcessGroupGloo(timeout=timedelta(seconds=settings["gloo_timeout"])),
            min_replica_size=int(settings["min_replica_size"]),
            load_state_dict=self._replica.load_state_dict,
            state_dict=self._replica.state_dict,
            replica_id=f"replica_{group}",
            timeout=timedelta(seconds=30),
            use_async_quorum=not self._divides_batch,
            init_sync=False,  # weights are the same everywhere to begin with
        )
        if attempt == 0:
            self._wait_for_all()

    def run(self) -> None:
        """Repeat iterations until all are committed."""
        while self._manager.current_step() < self._plan.workload.num_iterations:
            self._iterate(self._manager.current_step() + 1)
        self._manager.shutdown(wait=False)

    def _iterate(self, iteration: int) -> None:
        from peers.training.replica_model import gradient_buffers  # noqa: PLC0415

        self._manager.start_quorum()
        if self._divides_batch:
            # The quorum was waited for, and a returning group has its state: step and share count.
            iteration = self._manager.current_step() + 1
        indices = self._share()
        loss = self._replica.accumulate(iteration, indices) / len(indices)
        import torch

        mean_loss = torch.tensor([loss], dtype=torch.float64)
        works = [
            self._manager.allreduce(tensor)
            for tensor in (*gradient_buffers(self._replica.model), mean_loss)
        ]
        for work in works:
            work.wait()
        is_committed = self._manager.should_commit()
        if is_committed:
            self._replica.step()
            num_contributed = self._manager.num_participants() * len(indices)
            # A group that was just healed has a later step than it began with.
            self._journal.committed(self._manager.current_step(), float(mean_loss), num_contributed)

    def _share(self) -> range:
        workload = self._plan.workload
        rank, num_groups = self._group, workload.num_ranks
        if self._divides_batch:
            rank, num_groups = self._manager.participating_rank(), self._manager.num_participants()
        num_local = workload.num_micro_batches // num_groups
        return range(rank * num_local, (rank + 1) * num_local)

    def _wait_for_all(self) -> None:
        """Return when all groups have come for the first time: nobody trains a part of a batch."""
        directory = Path(self._plan.directory)
        (directory / f"ready-{self._group}").touch()
        while len(list(directory.glob("ready-*"))) < self._plan.workload.num_ranks:
            time.sleep(0.02)


if __name__ == "__main__":
    main()
