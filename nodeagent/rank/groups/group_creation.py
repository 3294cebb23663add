"""Making a group without being bound to its end.

gloo connects all members while a group is made. A member that told where it can be reached and then
died leaves the others waiting for its connection, without a socket that could be shut down, until
the group's timeout. So the group is made in a thread, and given up when the generation is halted: the
thread, and whatever it still makes, belong to nobody then.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from torch.distributed import distributed_c10d

from nodeagent.rank.groups.halting import HaltedError

_LOOK_UP_S: Final = 0.05
_NUM_LOOKS_AFTER_HALT: Final = 4


@contextlib.contextmanager
def abandonable(is_halted: Callable[[], bool]) -> Iterator[None]:
    """Have the next gloo group that is made in the block given up soon after ``is_halted``.

    torch calls the constructor by a name of its module, which is replaced for one call.

    Raises:
        HaltedError: From where the group is made, if it was given up.
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
    """Return what ``make`` returns, which runs in a thread of its own, or give it up soon after ``is_halted``.

    Raises:
        HaltedError: It was given up.
        Exception: Whatever ``make`` raised.
    """
    made: list[object] = []
    failures: list[Exception] = []
    ended = threading.Event()

    def run() -> None:
        try:
            made.append(make())
        except Exception as error:  # noqa: BLE001 - raised again where the group is wanted
            failures.append(error)
        finally:
            ended.set()

    threading.Thread(target=run, name="forming", daemon=True).start()
    num_looks = 0
    while not ended.wait(_LOOK_UP_S):
        num_looks += is_halted()
        if num_looks >= _NUM_LOOKS_AFTER_HALT:
            raise HaltedError("a group was given up: its members do not connect")
    if failures:
        raise failures[0]
    return made[0]
