"""Conditions are told when they begin and when they are over, and not in between."""

from nodeagent.detect.lasting_conditions import LastingConditions
from nodeagent.protocol.findings import NodeFinding

FULL = NodeFinding(probe="disk", sign="disk_full", subject="/a", text="1 MiB free")


def test_condition_is_told_once_and_its_end_once() -> None:
    standing = LastingConditions()
    assert standing.update([FULL]) == [FULL]
    assert standing.holds("disk_full", "/a")
    assert standing.update([FULL]) == []
    (over,) = standing.update([])
    assert (over.is_over, over.subject, over.text) == (True, "/a", "over: 1 MiB free")
    assert standing.update([]) == []
    assert not standing.holds("disk_full", "/a")


def test_begin_and_end_need_looks_in_a_row() -> None:
    standing = LastingConditions(num_to_begin=2, num_to_end=2)
    assert [len(standing.update(found)) for found in ([FULL], [], [FULL], [FULL])] == [0, 0, 0, 1]
    assert [len(standing.update(found)) for found in ([], [FULL], [], [])] == [0, 0, 0, 1]


def test_subjects_are_told_apart() -> None:
    standing = LastingConditions()
    other = FULL.model_copy(update={"subject": "/b"})
    assert standing.update([FULL]) == [FULL]
    assert standing.update([FULL, other]) == [other]
    (over,) = standing.update([other])
    assert over.subject == "/a"


def test_what_can_not_be_looked_at_is_not_over() -> None:
    standing = LastingConditions(num_to_end=2)
    standing.update([FULL])
    looks: list[list[str]] = [[], ["/a"], ["/a"], []]
    assert [len(standing.update([], unread=unread)) for unread in looks] == [0, 0, 0, 1]
