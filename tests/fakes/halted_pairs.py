"""Two ranks over and over that exchange all the time, and whose connections are cut meanwhile.

    python -m tests.fakes.halted_pairs NUM_PAIRS [--floats N] [--exchange all-reduce|messages]
    [--at-once]

Prints how many of the ranks were not woken within a second. ``--at-once`` ends the connections in
one step.
"""

import argparse
import os
import random
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

import torch  # noqa: TID253
from torch import distributed  # noqa: TID253

from nodeagent.rank.groups.halting import Connections

_WOKEN, _STUCK = 0, 7
_LIMIT_S = 1.0


def main() -> None:
    """Run the pairs and print the number of ranks that were stuck."""
    parser = argparse.ArgumentParser(prog="halted_pairs")
    parser.add_argument("num_pairs", type=int)
    parser.add_argument("--floats", type=int, default=4096, help="of an exchange (default 4096)")
    parser.add_argument("--exchange", choices=["all-reduce", "messages"], default="all-reduce")
    parser.add_argument("--at-once", action="store_true")
    options = parser.parse_args()
    num_stuck = 0
    for number in range(options.num_pairs):
        with tempfile.TemporaryDirectory() as directory:
            pids = [_fork(rank, Path(directory), options, 2 * number + rank) for rank in range(2)]
            codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        assert set(codes) <= {_WOKEN, _STUCK}, codes
        num_stuck += codes.count(_STUCK)
    sys.stdout.write(f"{num_stuck}\n")


def _fork(rank: int, directory: Path, options: argparse.Namespace, seed: int) -> int:
    pid = os.fork()
    if not pid:
        code = 1
        try:
            code = _run(rank, directory, options, random.Random(seed))
        except BaseException:  # noqa: BLE001 - the child must not run the code of its parent
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def _run(rank: int, directory: Path, options: argparse.Namespace, chooser: random.Random) -> int:
    torch.set_num_threads(1)
    connections = Connections()
    with connections.recording():
        distributed.init_process_group(
            "gloo", init_method=f"file://{directory}/store", rank=rank, world_size=2
        )
    tensor = torch.ones(options.floats)
    distributed.barrier()

    def halt() -> None:
        time.sleep(0.02 + chooser.uniform(0.0, 0.02))
        (connections.close if options.at_once else connections.halt)()
        time.sleep(_LIMIT_S)
        if (directory / f"woken-{rank}").exists():
            return  # it waits for the other one
        (directory / "over").touch()
        os._exit(_STUCK)

    threading.Thread(target=halt, daemon=True).start()
    try:
        while True:
            if options.exchange == "all-reduce":
                distributed.all_reduce(tensor)
            else:
                _pass_on(tensor, rank)
    except RuntimeError:
        (directory / f"woken-{rank}").touch()
    # The end of a process ends its connections, which would wake the other one.
    while not (directory / f"woken-{1 - rank}").exists():
        if (directory / "over").exists():
            break
        time.sleep(0.005)
    return _WOKEN


def _pass_on(tensor: torch.Tensor, rank: int) -> None:
    for sender in (0, 1):
        if rank == sender:
            distributed.send(tensor, 1 - rank)
        else:
            distributed.recv(tensor, 1 - rank)


if __name__ == "__main__":
    main()
