"""The stacks of this process, read by one of its threads."""

import threading
from types import FunctionType

from nodeagent.protocol.standing import Standing
from nodeagent.rank.agent_link.training_stacks import read_own_standing
from tests.fakes.polling import wait_until


def wait_for(lock: threading.Lock) -> None:
    lock.acquire()


def standing_at(place: str) -> Standing | None:
    standing = read_own_standing()
    return standing if standing.place.startswith(place) else None


def standing_in(wait: FunctionType) -> Standing:
    """Return what another thread reads while this one is in ``wait``."""
    lock, read = threading.Lock(), list[Standing]()
    lock.acquire()

    def look() -> None:
        try:
            read.append(wait_until(lambda: standing_at(f"{wait.__name__} ("), limit_s=10))
        finally:
            lock.release()

    thread = threading.Thread(target=look)
    thread.start()
    wait(lock)
    thread.join()
    return read[0]


def test_the_innermost_line_is_the_place() -> None:
    assert isinstance(wait_for, FunctionType)
    line = wait_for.__code__.co_firstlineno + 1
    standing = standing_in(wait_for)
    assert standing.where == "computing"
    assert standing.place.endswith(f"test_training_stacks.py:{line})")


def test_a_frame_without_a_line_is_named_by_its_first_one() -> None:
    """The interpreter has such frames in the middle of imports."""
    assert isinstance(wait_for, FunctionType)
    code = wait_for.__code__
    bare = FunctionType(code.replace(co_linetable=b""), wait_for.__globals__)
    standing = standing_in(bare)
    assert standing.place.endswith(f"test_training_stacks.py:{code.co_firstlineno})")
