"""Two ranks, a stage each, that complete their in-memory checkpoints before they park.

    python -m tests.fakes.parking_ranks

The copies of iteration 1 are on their way when the ranks are to park after iteration 2. *slow*:
rank 1 takes its time with them. *broken*: its thread ends. *halted*: both are halted while they
wait. *narrow*, *full*: those of iteration 2 are begun, and rank 1 finds no memory for its own, or
for that of rank 0. Prints, as JSON, the iterations that each rank has of each stage then, whether
waiting was broken off, whether it was in vain, and which copy it says was missed, and why.
"""

import json
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch  # noqa: TID253
from torch import distributed  # noqa: TID253

from nodeagent.process_tools.node_clock import SystemNodeClock
from nodeagent.protocol.observations import CheckpointMissed
from nodeagent.rank.groups.halting import HaltedError
from nodeagent.rank.groups.rank_place import Place
from nodeagent.rank.training.saved_state import SavedState, _Generation
from tests.fakes.copying_ranks import (
    LAYOUT,
    FlatState,
    Narrow,
    held_by_stage,
    launch_of,
    new_group,
)
from tests.fakes.polling import wait_until

_STATE: Any = FlatState()
_SLOW_S = 0.5
_WITHOUT_ROOM = {"narrow": 1, "full": 0}
"""The stage whose copy rank 1 finds no memory for."""

_GROUP_LIMIT_S = 20.0
"""How long an operation waits for a peer that does nothing."""


class _HaltedWhileWaiting(threading.Event):
    """Is set a moment after somebody waits for it."""

    def wait(self, timeout: float | None = None) -> bool:
        threading.Timer(_SLOW_S / 10, self.set).start()
        return super().wait(timeout)


def main() -> None:
    """Run both ranks and print what they say."""
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as parent:
        directories = {
            what: Path(parent, what) for what in ("slow", "broken", "halted", *_WITHOUT_ROOM)
        }
        for directory in directories.values():
            directory.mkdir()
        ranks = [
            fork.Process(target=_run, args=(rank, directory, what))
            for what, directory in directories.items()
            for rank in (0, 1)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        said = {
            what: [json.loads((directory / f"rank-{rank}").read_text()) for rank in (0, 1)]
            for what, directory in directories.items()
        }
    sys.stdout.write(json.dumps(said))


def _run(rank: int, directory: Path, what: str) -> None:
    distributed.init_process_group(
        "gloo", init_method=f"file://{directory}/store", rank=rank, world_size=2
    )
    halted = _HaltedWhileWaiting() if what == "halted" else threading.Event()
    clock = SystemNodeClock()
    reported: list[CheckpointMissed] = []
    keeping = _keeping(rank, halted, Narrow(_STATE), reported)
    memory: Any = keeping.memory
    carry_out = memory._carry_out

    def late(*arguments: object) -> object:
        if what == "broken":
            raise MemoryError("no memory for the copy of another rank")
        time.sleep(_SLOW_S if what == "slow" else 60.0)
        return carry_out(*arguments)

    if rank == 1 and what not in _WITHOUT_ROOM:
        memory._carry_out = late
    memory.take(1)
    if what in _WITHOUT_ROOM:
        wait_until(lambda: not memory.is_busy, limit_s=_GROUP_LIMIT_S / 2)
        distributed.barrier()
        memory.without_room = {_WITHOUT_ROOM[what]} if rank == 1 else ()
        memory.take(2)
    if what == "broken":
        wait_until(
            lambda: memory.is_broken if rank else held_by_stage(memory)["0"],
            limit_s=_GROUP_LIMIT_S / 2,
        )
    distributed.barrier()
    is_halted, began = False, clock.monotonic_s()
    try:
        keeping.complete_copies(2, are_begun=what in _WITHOUT_ROOM)
    except HaltedError:
        is_halted = True
    (directory / f"rank-{rank}").write_text(
        json.dumps(
            {
                "held": held_by_stage(memory),
                "is_halted": is_halted,
                "has_waited": clock.monotonic_s() - began > _GROUP_LIMIT_S / 2,
                "is_broken": memory.is_broken,
                "missed": [[each.tier, each.iteration, each.reason] for each in reported],
            }
        )
    )
    # The other one is not to notice by a lost connection.
    wait_until((directory / f"rank-{1 - rank}").exists, limit_s=_GROUP_LIMIT_S)
    os._exit(0)  # a thread may wait for what never comes


def _keeping(
    rank: int, halted: threading.Event, memory: Narrow, reported: list[CheckpointMissed]
) -> SavedState:
    anything: Any = None
    control = SimpleNamespace(report=reported.append)
    around: Any = SimpleNamespace(halted=halted, control=control)
    launch: Any = launch_of(1)
    launch.task, launch.global_rank = "gpt", rank
    place = Place(rank, LAYOUT, torch.device("cpu"))
    keeping = SavedState(anything, _STATE, around)
    keeping.memory = memory
    keeping._generation = _Generation(launch, place, anything, anything, anything)
    keeping.memory.enter(launch, place)
    keeping.memory.connect({1 - rank: new_group(_GROUP_LIMIT_S)})
    return keeping


if __name__ == "__main__":
    main()
