"""When a disk counts as full, and what is known of one that can't be looked at."""

from nodeagent.detect.full_disk import DiskDetector, DiskLook, DiskReading
from nodeagent.protocol.findings import NodeFinding

GIB = 2**30
PATH = "/checkpoints"


def reading(free: float, total: float = 100 * GIB, **changes: int) -> DiskReading:
    return DiskReading(PATH, int(total), int(free), **changes)


def taken(*readings: DiskReading) -> list[NodeFinding]:
    """Return what a new detector says of one look."""
    return DiskDetector().take(DiskLook(readings))


def test_disk_is_full_only_where_share_and_amount_are_short() -> None:
    assert taken(reading(5 * GIB)) == []
    assert taken(reading(2_000 * GIB, 100_000 * GIB)) == []
    assert taken(reading(60 * 2**20, 64 * 2**20)) == []
    (found,) = taken(reading(3 * GIB))
    assert (found.sign, found.subject, found.value) == ("disk_full", "/checkpoints", 3 * GIB)
    (found,) = taken(reading(2**20, 64 * 2**20))
    assert found.text == "/checkpoints: 1 MiB of 64 MiB free"


def test_disk_without_file_names_is_full() -> None:
    (found,) = taken(reading(90 * GIB, num_files=1000, num_free_files=9))
    assert "9 of 1000 files" in found.text
    assert taken(reading(90 * GIB, num_files=0)) == []


def test_it_is_over_only_with_room_to_spare() -> None:
    detector = DiskDetector()
    free = (3, 4.5, 3.5, 4.5, 7, 4.5)
    looks = [DiskLook([reading(gib * GIB)]) for gib in free]
    told = [[one.is_over for one in detector.take(look)] for look in looks]
    assert told == [[False], [], [], [], [True], []]


def test_pseudo_file_system_without_a_size_is_never_full() -> None:
    assert taken(reading(0, 0)) == []


def test_path_that_can_not_be_read_is_told_and_its_disk_still_counts_as_full() -> None:
    detector = DiskDetector()
    full, unread = DiskLook([reading(3 * GIB)]), DiskLook([], {PATH: "Stale file handle"})
    (found,) = detector.take(full)
    (told,) = detector.take(unread)
    assert (told.sign, told.subject, told.is_over) == ("unreadable", PATH, False)
    assert told.text == "/checkpoints can't be read: Stale file handle"
    assert detector.take(unread) == []
    (over,) = detector.take(full)
    assert (over.sign, over.is_over) == ("unreadable", True)
    (over,) = detector.take(DiskLook([reading(90 * GIB)]))
    assert (over.sign, over.value, over.is_over) == ("disk_full", found.value, True)
