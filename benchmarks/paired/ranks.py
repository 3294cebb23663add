"""Real ranks for a measurement: forked, one thread each, pinned to a core, with gloo groups."""

import json
import logging
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch  # noqa: TID253
from torch import distributed  # noqa: TID253

from nodeagent.rank.groups.device_shim import prepare_device
from nodeagent.rank.groups.parallel_groups import ParallelGroups
from nodeagent.rank.groups.rank_place import Place
from profiles.layout import Layout

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a rank runs: its place in the layout, its groups, and a store that all ranks share."""

    place: Place
    groups: ParallelGroups
    store: Any


def run_ranks(layout: Layout, seed: int, run: Callable[[Seat], Any]) -> list[Any]:
    """Fork the ranks of ``layout`` and return what ``run`` returned on each, by way of JSON.

    Rank i has core i, counted round where there are fewer cores than ranks.

    Raises:
        RuntimeError: A rank failed; it has said why on standard error.
    """
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        running: set[int] = set()
        try:
            for rank in range(layout.num_workers):
                running.add(_fork(layout, rank, seed, directory, run))
            while running:
                pid, status = os.wait()
                running.discard(pid)
                if status:
                    raise RuntimeError(f"a rank of {layout} failed")
        finally:
            for pid in running:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        return [
            json.loads((directory / f"{rank}.json").read_text())
            for rank in range(layout.num_workers)
        ]


def take_seat(layout: Layout, global_rank: int, seed: int, store_path: Path) -> Seat:
    """Make this process a rank, with one thread on a core of its own; all ranks must call it."""
    cores = sorted(os.sched_getaffinity(0))
    # Before any thread is made: those of gloo and of the link to the agent share the core.
    os.sched_setaffinity(0, {cores[global_rank % len(cores)]})
    torch.set_num_threads(1)
    logging.basicConfig(level=logging.WARNING)
    warnings.simplefilter("ignore")
    place = Place(global_rank, layout, prepare_device("gloo", 0, seed))
    store = distributed.__dict__["FileStore"](str(store_path), layout.num_workers)
    groups = ParallelGroups(store, place, "gloo")
    groups.form()
    return Seat(place, groups, store)


def agree(number: float, place: Place) -> float:
    """Return rank 0's number on all ranks."""
    return place.sum_over_all([number if place.global_rank == 0 else 0.0])[0]


def _fork(
    layout: Layout, global_rank: int, seed: int, directory: Path, run: Callable[[Seat], Any]
) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        found = run(take_seat(layout, global_rank, seed, directory / "store"))
        (directory / f"{global_rank}.json").write_text(json.dumps(found))
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it is, the child must not run its parent's code
        _LOG.exception("rank %d failed", global_rank)
    finally:
        sys.stderr.flush()
        os._exit(code)
