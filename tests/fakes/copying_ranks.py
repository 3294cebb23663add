"""Two ranks hold each other's in-memory checkpoints, and one copy does not arrive.

    python -m tests.fakes.copying_ranks

Prints three results as JSON. First: the iterations that rank 0 has of each stage while the first
copies of the next generation are on their way. Second: the iterations that rank 1 has, and its
report, when it finds no memory for its own copy. Third: the iterations that rank 0 has of its own
stage after its first and its second copy, in a generation that keeps two iterations.
"""

import json
import os
import sys
import tempfile
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch  # noqa: TID253
from torch import distributed  # noqa: TID253

from nodeagent.protocol.ids import Generation
from nodeagent.rank.groups.rank_place import Place
from nodeagent.rank.state.held_copies import Copy, ShardKey
from nodeagent.rank.state.memory_checkpoints import MemoryCheckpoints
from profiles.layout import Layout
from tests.fakes.polling import wait_until

LAYOUT = Layout(pp=2)
_NUM_ELEMENTS = 16
_LIMIT_S = 10.0


class FlatState:
    """As much of ``TrainingState`` as copies need."""

    sharded = None

    def sources(self) -> list[torch.Tensor]:
        return [torch.zeros(_NUM_ELEMENTS)]


class Narrow(MemoryCheckpoints):
    """The same, in a process without memory for some stages."""

    without_room: Collection[int] = ()

    def _place_for(self, key: ShardKey, num_bytes: int, generation: Generation) -> Copy:
        has_room = key.pp_rank not in self.without_room
        return super()._place_for(key, num_bytes if has_room else 2**62, generation)


def main() -> None:
    """Run both ranks; rank 0 prints."""
    with tempfile.TemporaryDirectory() as directory:
        child = os.fork()
        _run(0 if child else 1, Path(directory))
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
    # A thread waits for the copy that never comes.
    os._exit(0)


def _run(rank: int, directory: Path) -> None:
    distributed.init_process_group(
        "gloo", init_method=f"file://{directory}/store", rank=rank, world_size=2
    )
    state: Any = FlatState()
    launch: Any = launch_of(1)
    memory = Narrow(state)
    memory.enter(launch, Place(rank, LAYOUT, torch.device("cpu")))
    memory.connect({1 - rank: new_group()})
    for iteration in (1, 2, 3):
        memory.take(iteration)
        wait_until(lambda: not memory.is_busy, limit_s=_LIMIT_S)
        distributed.barrier()
    if rank == 0:
        # The other one is lost before it takes a copy of this iteration.
        memory.take(4)
        wait_until(lambda: 4 in held_by_stage(memory)["0"], limit_s=_LIMIT_S)
    memory.leave()
    launch = launch_of(2, 3)
    memory.enter(launch, Place(rank, LAYOUT, torch.device("cpu")))
    memory.connect({1 - rank: new_group()})
    path = directory / "without memory"
    if rank == 1:
        _find_no_memory(memory)
        note = {"held": held_by_stage(memory), "missed": memory.take_missed()}
        path.write_text(json.dumps(note))
    else:
        memory.take(5)
        wait_until(lambda: 5 in held_by_stage(memory)["0"], limit_s=_LIMIT_S)
    said: dict[str, Any] = {"on their way": held_by_stage(memory)}
    distributed.barrier()
    said["without memory"] = json.loads(path.read_text())
    memory.leave()
    memory.without_room = ()
    launch = launch_of(3, 5, 3)
    memory.enter(launch, Place(rank, LAYOUT, torch.device("cpu")))
    memory.connect({1 - rank: new_group()})
    said["kept"] = []
    for iteration in (6, 7):
        memory.take(iteration)
        wait_until(lambda: not memory.is_busy, limit_s=_LIMIT_S)
        distributed.barrier()
        said["kept"].append(sorted(held_by_stage(memory)["0"]))
    if rank == 0:
        sys.stdout.write(json.dumps(said))
        sys.stdout.flush()


def _find_no_memory(memory: Narrow) -> None:
    memory.without_room = {1}
    memory.take(5)
    wait_until(lambda: memory.is_broken, limit_s=_LIMIT_S)


def launch_of(generation: int, *kept: int) -> SimpleNamespace:
    """Return the parts of a ``RankLaunch`` that copies need, with these iterations kept."""
    resume = SimpleNamespace(kept_copies=kept)
    return SimpleNamespace(generation=generation, copy_holders=(1, 0), resume=resume)


def new_group(limit_s: float = 20.0) -> distributed.ProcessGroup:
    """Return a group of both ranks; an operation may take ``limit_s``."""
    group: distributed.ProcessGroup = distributed.new_group(timeout=timedelta(seconds=limit_s))
    return group


def held_by_stage(memory: MemoryCheckpoints) -> dict[str, list[int]]:
    """Return the iterations of which a rank has a complete copy, by the stage that they are of."""
    held: dict[str, list[int]] = {"0": [], "1": []}
    for copy in memory.copies.held():
        held[str(copy.pp_rank)].append(copy.iteration)
    return held


if __name__ == "__main__":
    main()
