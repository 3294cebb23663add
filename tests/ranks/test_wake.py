"""Waiting for a collective that may never end tells its end from the end of patience."""

from collections.abc import Callable
from datetime import timedelta
from importlib import import_module

import pytest

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.filterwarnings("ignore"),  # Megatron's own, on import
]


class LateWork:
    """A collective that ends in the instant in which the first look at it gives up."""

    def __init__(self, failure: str | None) -> None:
        self._failure = failure
        self._is_over = False

    def wait(self, timeout: timedelta | None = None) -> bool:
        if not self._is_over:
            assert timeout is not None
            self._is_over = True
            raise RuntimeError("Operation timed out!")
        if self._failure:
            raise RuntimeError(self._failure)
        return True

    def is_completed(self) -> bool:
        return self._is_over


Wait = Callable[[LateWork, Callable[[], bool]], None]


@pytest.fixture
def wait() -> Wait:
    wait_unless_halted: Wait = import_module("nodeagent.rank.wake").wait_unless_halted
    return wait_unless_halted


def test_a_collective_that_ends_while_the_look_does_has_not_failed(wait: Wait) -> None:
    wait(LateWork(None), lambda: False)


def test_a_collective_that_fails_while_the_look_ends_says_why(wait: Wait) -> None:
    with pytest.raises(RuntimeError, match="Connection closed by peer"):
        wait(LateWork("Connection closed by peer"), lambda: False)
