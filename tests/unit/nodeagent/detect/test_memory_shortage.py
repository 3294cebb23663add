"""When a node is short of memory."""

import pytest

from nodeagent.detect.memory_shortage import GroupReading, MemoryDetector, MemoryReading

GIB = 2**30
FINE = MemoryReading(100 * GIB, 50 * GIB, 0.0)


@pytest.mark.parametrize(
    ("reading", "subject"),
    [
        (MemoryReading(100 * GIB, 1 * GIB), "node"),
        (MemoryReading(100 * GIB, 50 * GIB, 35.0), "node"),
        (MemoryReading(100 * GIB, 50 * GIB, 0.0, (GroupReading("/g", 99, 100),)), "/g"),
    ],
)
def test_pressure_is_told_at_the_second_look_and_over_at_the_third_without(
    reading: MemoryReading, subject: str
) -> None:
    detector = MemoryDetector()
    assert detector.take(reading) == []
    (found,) = detector.take(reading)
    assert (found.sign, found.subject, found.is_over) == ("memory_pressure", subject, False)
    assert [len(detector.take(FINE)) for _ in range(2)] == [0, 0]
    (over,) = detector.take(FINE)
    assert over.is_over


def test_enough_memory_is_no_finding() -> None:
    detector = MemoryDetector()
    readings = [
        MemoryReading(2000 * GIB, 20 * GIB, 5.0),
        MemoryReading(8 * GIB, 1 * GIB, None, (GroupReading("/g", 90, 100),)),
        MemoryReading(0, 0),
    ]
    assert [detector.take(one) for one in readings * 2] == [[]] * 6
