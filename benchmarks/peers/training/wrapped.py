"""A rank under NVIDIA's ``inprocess.Wrapper``: the function restarts, the process stays.

As the package's own examples do it: one store for all restarts, and everything that hangs on
process groups is made again inside the wrapped function, which loads the newest checkpoint. Ranks
beyond the workload's are a reserve that the wrapper activates when an active one is gone.
"""

import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peers.runs.workload_plan import RunPlan, read_plan
from peers.training.torch_import import import_torch

if TYPE_CHECKING:
    from nvidia_resiliency_ext import inprocess
    from torch.distributed import Store

_TIMES = (
    "monitor_thread_interval",
    "monitor_process_interval",
    "heartbeat_interval",
    "progress_watchdog_interval",
    "heartbeat_timeout",
    "last_call_wait",
    "soft_timeout",
    "hard_timeout",
    "termination_grace_time",
)


def main() -> None:
    """Wrap the training and call it."""
    plan = read_plan(Path(sys.argv[1]))
    import_torch(is_lean=bool(plan.settings.get("lean_imports")))
    from nvidia_resiliency_ext import inprocess  # noqa: PLC0415
    from torch.distributed import TCPStore

    from peers.training.replica_model import prepare_process  # noqa: PLC0415

    prepare_process(plan.workload.seed)
    port = int(os.environ["MASTER_PORT"])
    store = TCPStore(
        host_name=os.environ["MASTER_ADDR"],
        port=port + 2,
        world_size=int(os.environ["WORLD_SIZE"]),
        is_master=os.environ["RANK"] == "0",
        multi_tenant=True,
        wait_for_workers=True,
    )
    options: dict[str, Any] = {
        name: timedelta(seconds=plan.settings[name]) for name in _TIMES if name in plan.settings
    }
    wrapper = inprocess.Wrapper(
        store_kwargs={"port": port + 1},
        health_check=inprocess.health_check.CudaHealthCheck(),
        rank_assignment=inprocess.Compose(
            inprocess.rank_assignment.MaxActiveWorldSize(plan.workload.num_ranks),
            inprocess.rank_assignment.ShiftRanks(),
        ),
        **options,
    )

    def run(call_wrapper: inprocess.CallWrapper | None = None) -> None:
        assert call_wrapper is not None
        _train_once(plan, store, call_wrapper)

    wrapper(run)()


def _train_once(plan: RunPlan, store: "Store", call_wrapper: "inprocess.CallWrapper") -> None:
    from torch import distributed

    from peers.training.checkpointed_loop import train  # noqa: PLC0415

    timeout_s = plan.settings["gloo_timeout"]
    distributed.init_process_group(
        "gloo",
        store=distributed.PrefixStore(str(call_wrapper.iteration), store),
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timedelta(seconds=timeout_s),
    )
    train(plan, call_wrapper.iteration, saving=call_wrapper.atomic, timeout_s=timeout_s)


if __name__ == "__main__":
    main()
