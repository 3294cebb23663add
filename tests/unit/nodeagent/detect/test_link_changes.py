"""Changes of links, and links that fall silent."""

from dataclasses import replace

from nodeagent.detect.link_changes import LinkReading, NetworkDetector
from nodeagent.protocol.findings import NodeFinding

UP = LinkReading("eth0", is_up=True, num_changes=2, num_bytes=0)
RANKS = frozenset({11, 12})


def take(*readings: LinkReading) -> list[NodeFinding]:
    """Return what the last of ``readings``, 30 s apart, gives rise to."""
    detector = NetworkDetector()
    found: list[NodeFinding] = []
    for number, reading in enumerate(readings):
        found = detector.take([reading], RANKS, 30.0 * number)
    return found


def test_what_is_there_at_first_is_the_normal_state() -> None:
    assert take(UP) == []
    assert take(replace(UP, is_up=False)) == []
    assert take(UP, UP) == []


def test_flap_between_two_looks_is_seen_by_its_count() -> None:
    (found,) = take(UP, replace(UP, num_changes=4))
    assert (found.sign, found.subject, found.value) == ("link_changed", "eth0", 2)
    assert "2 times, it is up now" in found.text
    assert not found.is_over


def test_link_that_is_down_is_told_and_so_is_its_return() -> None:
    down = replace(UP, is_up=False, num_changes=3)
    (found,) = take(UP, down)
    assert "it is down now" in found.text
    assert take(UP, down, down) == []
    (back,) = take(UP, down, replace(UP, num_changes=4))
    assert back.is_over


def test_state_counts_where_nobody_counts_changes() -> None:
    uncounted = replace(UP, num_changes=None)
    (found,) = take(uncounted, replace(uncounted, is_up=False))
    assert found.value == 1


def test_device_that_is_gone_is_told_once() -> None:
    detector = NetworkDetector()
    detector.take([UP], RANKS, 0.0)
    (found,) = detector.take([], RANKS, 30.0)
    assert "is gone" in found.text
    assert detector.take([], RANKS, 60.0) == []


def carried(*megabytes_per_s: float, ranks: frozenset[int] = RANKS) -> list[NodeFinding]:
    """Return all findings of a link that carries this much in spans of 30 s."""
    detector, num_bytes = NetworkDetector(), 0
    found: list[NodeFinding] = []
    for number, rate in enumerate((0.0, *megabytes_per_s)):
        num_bytes += int(rate * 30e6)
        found += detector.take([replace(UP, num_bytes=num_bytes)], ranks, 30.0 * number)
    return found


def test_silence_after_traffic_is_told_at_the_second_look() -> None:
    assert carried(0, 400, 300, 0) == []
    (found,) = carried(0, 400, 300, 0, 0)
    assert (found.sign, found.subject) == ("no_traffic", "eth0")
    assert [one.is_over for one in carried(0, 400, 0, 0, 300)] == [False, True]


def test_little_traffic_is_no_silence_and_idle_links_are_left_alone() -> None:
    assert carried(0, 400, 40, 4, 4) == []
    assert carried(0, 0.2, 0.1, 0, 0) == []
    assert carried(0, 400, 0, 0, 0, ranks=frozenset()) == []


def test_other_ranks_begin_a_new_measure() -> None:
    detector, num_bytes = NetworkDetector(), 0
    for number, (rate, ranks) in enumerate(
        [(0, {1}), (400, {1}), (400, {1}), (0, {2}), (0, {2}), (0, {2})]
    ):
        num_bytes += int(rate * 30e6)
        reading = replace(UP, num_bytes=num_bytes)
        assert detector.take([reading], frozenset(ranks), 30.0 * number) == []
