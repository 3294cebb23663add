"""A rank for launchers that start all processes again: torchrun and ft_launcher."""

import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from peers.runs.workload_plan import RunPlan, read_plan
from peers.training.torch_import import import_torch

_TIMEOUT_S = 1800.0
"""torch's own default; the launchers end ranks that wait for a dead one."""


def main() -> None:
    """Join the world that the launcher's environment names, and train."""
    plan = read_plan(Path(sys.argv[1]))
    import_torch(is_lean=bool(plan.settings.get("lean_imports")))
    from torch import distributed

    from peers.training.checkpointed_loop import train  # noqa: PLC0415
    from peers.training.replica_model import prepare_process  # noqa: PLC0415

    prepare_process(plan.workload.seed)
    distributed.init_process_group("gloo", timeout=timedelta(seconds=_TIMEOUT_S))
    beat, close = _monitoring(plan)
    timeout_s = plan.settings.get("collective_timeout", _TIMEOUT_S)
    train(plan, int(os.environ["TORCHELASTIC_RESTART_COUNT"]), beat=beat, timeout_s=timeout_s)
    close()
    distributed.destroy_process_group()


def _monitoring(plan: RunPlan) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return two functions: a heartbeat to ft_launcher's monitor, and its end."""
    if not plan.settings.get("heartbeats"):
        return _nothing, _nothing
    from nvidia_resiliency_ext.fault_tolerance import RankMonitorClient  # noqa: PLC0415

    client: Any = RankMonitorClient()
    client.init_workload_monitoring()
    return client.send_heartbeat, client.shutdown_workload_monitoring


def _nothing() -> None:
    pass


if __name__ == "__main__":
    main()
