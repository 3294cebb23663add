"""When a disk counts as full."""

from nodeagent.detect.disk import DiskDetector, DiskReading

GIB = 2**30


def reading(free: float, total: float = 100 * GIB, **changes: int) -> DiskReading:
    return DiskReading("/checkpoints", int(total), int(free), **changes)


def test_disk_is_full_only_where_share_and_amount_are_short() -> None:
    assert DiskDetector().take([reading(5 * GIB)]) == []
    assert DiskDetector().take([reading(2_000 * GIB, 100_000 * GIB)]) == []
    assert DiskDetector().take([reading(60 * 2**20, 64 * 2**20)]) == []
    (found,) = DiskDetector().take([reading(3 * GIB)])
    assert (found.sign, found.subject, found.value) == ("disk_full", "/checkpoints", 3 * GIB)
    (found,) = DiskDetector().take([reading(2**20, 64 * 2**20)])
    assert found.text == "/checkpoints: 1 MiB of 64 MiB free"


def test_disk_without_file_names_is_full() -> None:
    (found,) = DiskDetector().take([reading(90 * GIB, num_files=1000, num_free_files=9)])
    assert "9 of 1000 files" in found.text
    assert DiskDetector().take([reading(90 * GIB, num_files=0)]) == []


def test_it_is_over_only_with_room_to_spare() -> None:
    detector = DiskDetector()
    free = (3, 4.5, 3.5, 4.5, 7, 4.5)
    told = [[one.is_over for one in detector.take([reading(gib * GIB)])] for gib in free]
    assert told == [[False], [], [], [], [True], []]


def test_pseudo_file_system_without_a_size_is_never_full() -> None:
    assert DiskDetector().take([reading(0, 0)]) == []
