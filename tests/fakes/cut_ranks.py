"""Two ranks over and over that exchange all the time, and whose connections are cut meanwhile.

    python -m tests.fakes.cut_ranks NUM_PAIRS

Prints how many of the ranks were not woken within a second.
"""

import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch  # noqa: TID253
from torch import distributed  # noqa: TID253

from nodeagent.rank.wake import Connections

_WOKEN, _STUCK = 0, 7
_LIMIT_S = 1.0


def main() -> None:
    """Run the pairs and print the number of ranks that were stuck."""
    num_stuck = 0
    for number in range(int(sys.argv[1])):
        with tempfile.TemporaryDirectory() as directory:
            pids = [_fork(rank, Path(directory), seed=2 * number + rank) for rank in range(2)]
            codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        assert set(codes) <= {_WOKEN, _STUCK}, codes
        num_stuck += codes.count(_STUCK)
    sys.stdout.write(f"{num_stuck}\n")


def _fork(rank: int, directory: Path, seed: int) -> int:
    pid = os.fork()
    if not pid:
        try:
            os._exit(_run(rank, directory, random.Random(seed)))
        finally:
            os._exit(1)
    return pid


def _run(rank: int, directory: Path, chooser: random.Random) -> int:
    torch.set_num_threads(1)
    connections = Connections()
    with connections.recording():
        distributed.init_process_group(
            "gloo", init_method=f"file://{directory}/store", rank=rank, world_size=2
        )
    tensor = torch.ones(4096)
    distributed.barrier()

    def cut() -> None:
        time.sleep(0.02 + chooser.uniform(0.0, 0.02))
        connections.cut()
        time.sleep(_LIMIT_S)
        os._exit(_STUCK)

    threading.Thread(target=cut, daemon=True).start()
    try:
        while True:
            distributed.all_reduce(tensor)
    except RuntimeError:
        return _WOKEN


if __name__ == "__main__":
    main()
