"""Waiting for a collective: it may end at any moment, also in the one in which a look gives up."""

from datetime import timedelta

import pytest

from nodeagent.rank.wake import StuckWorkError, wait_unless_halted

pytestmark = pytest.mark.ranks


class Work:
    """A collective as torch shows it: ``wait`` raises if it has not ended in time, or has failed."""

    def __init__(self, looks_until_end: int, failure: str = "") -> None:
        self._looks_left = looks_until_end
        self._failure = failure

    def is_completed(self) -> bool:
        return self._looks_left <= 0

    def wait(self, _: timedelta | None = None) -> bool:
        if self._looks_left > 0:
            self._looks_left -= 1
            raise RuntimeError("Operation timed out!")
        if self._failure:
            raise RuntimeError(self._failure)
        return True


@pytest.mark.parametrize("looks", [0, 1, 5])
def test_work_that_ends_is_waited_for(looks: int) -> None:
    # With one look left the work ends after the look gave up and before it is asked.
    wait_unless_halted(Work(looks), lambda: False)  # type: ignore[arg-type]


def test_a_failure_is_passed_on() -> None:
    with pytest.raises(RuntimeError, match="closed by peer"):
        wait_unless_halted(Work(2, "Connection closed by peer"), lambda: False)  # type: ignore[arg-type]


def test_work_that_never_ends_is_given_up_once_halted() -> None:
    with pytest.raises(StuckWorkError):
        wait_unless_halted(Work(1000), lambda: True)  # type: ignore[arg-type]
