"""One rank of a program that an agent watches, or not, from one block of iterations to the next.

    python -m paired.watched_rank SPEC ORDERS

Plain Megatron's loop as a command in the manner of torchrun, with the two lines of ``attach()``.
Rank 0 takes orders from the socket ORDERS, a JSON object per line, and answers each with the times
of its iterations. In a block that is not watched the rank says nothing to its agent. Told with each
answer are how long the ranks' training threads were ready to run and had no core, and the processor
time of the thread that talks to the agent.
"""

import gc
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Final

from torch import distributed  # noqa: TID253

from nodeagent.protocol.rank_launch import TrainingSpec
from nodeagent.public import Monitor, attach
from paired.plain import PlainMegatron
from paired.ranks import Seat, agree, take_seat
from profiles.layout import Layout

_LINK_THREAD: Final = "control link"
_SCHEDULED: Final = Path(f"/proc/self/task/{os.getpid()}/schedstat")
"""Of the main thread: nanoseconds on a core, nanoseconds ready to run without one, and turns."""


def main() -> None:
    """Train as ordered until the end is ordered."""
    spec_file, orders = Path(sys.argv[1]), sys.argv[2]
    spec = TrainingSpec.model_validate_json(spec_file.read_bytes())
    layout, rank = Layout(dp=int(os.environ["WORLD_SIZE"])), int(os.environ["RANK"])
    seat = take_seat(layout, rank, spec.seed, spec_file.parent / "store")
    loop, monitor = PlainMegatron(spec, seat.place), attach()
    # What was built stays, and need not be looked through after every block.
    gc.freeze()
    connection = socket.socket(socket.AF_UNIX)
    if rank == 0:
        connection.connect(orders)
    lines = connection.makefile("rw")
    while True:
        order = json.loads(lines.readline()) if rank == 0 else {}
        num_iterations, is_watched = _agree_on(order, seat)
        if not num_iterations:
            return
        before_s = _waited_s()
        times = _run_block(loop, monitor if is_watched else None, num_iterations)
        waited_s = seat.place.sum_over_all([_waited_s() - before_s])[0]
        if rank == 0:
            answer = {"times": times, "waited_s": waited_s, "link_cpu_s": _link_cpu_s()}
            lines.write(json.dumps(answer) + "\n")
            lines.flush()


def _agree_on(order: dict[str, int], seat: Seat) -> tuple[int, bool]:
    """Return rank 0's order on all ranks: the iterations (0 ends) and whether the agent runs."""
    number = order.get("num_iterations", 0) * (1 if order.get("is_watched") else -1)
    agreed = round(agree(number, seat.place))
    return abs(agreed), agreed > 0


def _run_block(loop: PlainMegatron, monitor: Monitor | None, num_iterations: int) -> list[float]:
    # What a block left behind is not to be paid for by the next one; so it is in neither's time.
    gc.collect()
    distributed.barrier()
    times = []
    for _ in range(num_iterations):
        began = time.perf_counter()
        loop.run_block(1)
        if monitor is not None:
            monitor.iteration(loop.iteration, loss=loop.newest_loss)
        times.append(time.perf_counter() - began)
    return times


def _waited_s() -> float:
    """Return how long the main thread has waited for a core so far, seconds."""
    return int(_SCHEDULED.read_text().split()[1]) / 1e9


def _link_cpu_s() -> float:
    """Return the processor time that talking to the agent has taken, seconds."""
    return sum(
        time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
        for thread in threading.enumerate()
        if thread.name == _LINK_THREAD and thread.ident is not None
    )


if __name__ == "__main__":
    main()
