"""Makes a process group in a thread, so that a halt can abandon it.

gloo connects all members while a group is made. If a member publishes its address and then dies,
the others wait for its connection until the group's timeout. They have no socket yet that could be
shut down. So the group is made in a thread. At a halt the thread is abandoned, with anything that
it still makes.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from torch.distributed import distributed_c10d

from nodeagent.rank.groups.halting import HaltedError, in_thread

_LOOK_UP_S: Final = 0.05
_NUM_LOOKS_AFTER_HALT: Final = 4


@contextlib.contextmanager
def abandonable(is_halted: Callable[[], bool]) -> Iterator[None]:
    """Abandon the next gloo group of the block if ``is_halted`` while it is being made.

    torch calls the constructor by a name of its module. That name is replaced for one call.

    Raises:
        HaltedError: The group was abandoned. It is raised where the group is made.
    """
    module: Any = distributed_c10d
    make = module.ProcessGroupGloo

    def make_in_thread(*args: object, **options: object) -> object:
        module.ProcessGroupGloo = make
        return run_in_thread(lambda: make(*args, **options), is_halted)

    module.ProcessGroupGloo = make_in_thread
    try:
        yield
    finally:
        module.ProcessGroupGloo = make


def run_in_thread(make: Callable[[], object], is_halted: Callable[[], bool]) -> object:
    """Run ``make`` in a thread and return its result, or abandon it soon after ``is_halted``.

    Raises:
        HaltedError: The thread was abandoned.
        Exception: ``make`` raised it.
    """
    made = in_thread(make)
    ended = threading.Event()
    made.add_done_callback(lambda _: ended.set())
    num_looks = 0
    while not ended.wait(_LOOK_UP_S):
        num_looks += is_halted()
        if num_looks >= _NUM_LOOKS_AFTER_HALT:
            raise HaltedError("a group was given up: its members do not connect")
    return made.result()
