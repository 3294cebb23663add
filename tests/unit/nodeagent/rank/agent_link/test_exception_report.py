"""Exceptions of any program, however odd, become reports that can be sent."""

import pytest

from nodeagent.protocol.codec import encode
from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.local import RankReport
from nodeagent.rank.agent_link.exception_report import first_line, is_of_collective, raised


class BrokenError(RuntimeError):
    def __str__(self) -> str:
        raise LookupError(self.args[0])


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("no file bad\udcff.bin"), "no file bad?.bin"),
        (BrokenError("x"), "its text can't be read: LookupError"),
        (ValueError("x" * 10**6), "x" * 2000),
        (KeyError(), ""),
    ],
    ids=["no text", "raises", "long", "empty"],
)
def test_an_odd_exception_is_reported(error: Exception, message: str) -> None:
    rank = TaskId("t"), Generation(1), 0
    report = raised(error, rank, 3, is_in_collective=is_of_collective(error))
    assert report.message == message
    assert report.exception_type == type(error).__name__
    assert 0 < len(report.traceback) <= 16_000
    assert encode(RankReport(seq=1, wall_s=1.0, observation=report))
    assert first_line(error)
