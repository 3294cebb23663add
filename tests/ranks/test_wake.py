"""Looks at a collective that goes on, ends or fails in the instant of the look."""

from datetime import timedelta

import pytest


class WorkThatEndsAfterALook:
    """The look takes too long, and the collective ends before the next question.

    Args:
        failure: What it failed with, if it did.
    """

    def __init__(self, failure: str | None = None) -> None:
        self._failure = failure

    def wait(self, timeout: timedelta | None = None) -> bool:
        if timeout is not None:
            raise RuntimeError("Operation timed out!")
        if self._failure is not None:
            raise RuntimeError(self._failure)
        return True

    def is_completed(self) -> bool:
        return True


def wait(work: object) -> None:
    from nodeagent.rank.wake import wait_unless_halted  # noqa: PLC0415 - imports torch

    wait_unless_halted(work, lambda: False)  # type: ignore[arg-type]


def test_collective_that_ends_just_after_a_look_did_not_fail() -> None:
    wait(WorkThatEndsAfterALook())


def test_collective_that_fails_just_after_a_look_raises_its_own_error() -> None:
    with pytest.raises(RuntimeError, match="closed by peer"):
        wait(WorkThatEndsAfterALook("Connection closed by peer"))
