"""What readings of GPUs mean. The readings are written by hand: no GPU was there to take them."""

from dataclasses import replace

import pytest

from nodeagent.detect.gpu_faults import NUM_HOT_LOOKS, GpuDetector, GpuReading
from nodeagent.protocol.findings import NodeFinding

HEALTHY = GpuReading(
    index=3,
    bus="00000000:3B:00.0",
    num_uncorrectable=2,
    is_remap_pending=False,
    is_remap_failed=False,
    is_link_active={0: True, 1: True, 2: False},
    num_link_errors=5,
    temperature_c=60,
    slowdown_c=90,
    throttled_by=(),
)


def take(*readings: GpuReading) -> list[NodeFinding]:
    """Return what the last reading gives rise to."""
    detector = GpuDetector()
    found: list[NodeFinding] = []
    for reading in readings:
        found = detector.take([reading])
    return found


def test_healthy_gpu_gives_no_finding() -> None:
    assert take(HEALTHY) == []
    assert take(HEALTHY, HEALTHY) == []


def test_gpu_that_offers_nothing_gives_no_finding() -> None:
    bare = GpuReading(index=0, bus="b")
    assert take(bare, bare) == []
    assert take(HEALTHY, replace(bare, index=HEALTHY.index, bus=HEALTHY.bus)) == []


@pytest.mark.parametrize(
    ("now", "sign", "value"),
    [
        (replace(HEALTHY, num_uncorrectable=4), "gpu_ecc", 2),
        (replace(HEALTHY, is_remap_pending=True), "gpu_row_remap", None),
        (replace(HEALTHY, is_link_active={0: True, 1: False, 2: False}), "gpu_nvlink", 1),
        (replace(HEALTHY, num_link_errors=9), "gpu_link_errors", 4),
        (GpuReading(3, HEALTHY.bus, is_lost=True), "gpu_lost", None),
    ],
)
def test_fault_is_told_once(now: GpuReading, sign: str, value: float | None) -> None:
    (found,) = take(HEALTHY, now)
    assert (found.probe, found.sign, found.subject, found.value) == ("gpu", sign, "GPU 3", value)
    assert HEALTHY.bus in found.text
    assert take(HEALTHY, now, now) == []


def test_count_that_was_missed_at_one_look_goes_on_from_the_look_before() -> None:
    unknown = replace(HEALTHY, num_uncorrectable=None)
    detector = GpuDetector()
    counts = [replace(HEALTHY, num_uncorrectable=count) for count in (3, 9)]
    found = [detector.take([one]) for one in (counts[0], unknown, counts[1])]
    assert [[(each.sign, each.value) for each in look] for look in found] == [
        [],
        [],
        [("gpu_ecc", 6)],
    ]


@pytest.mark.parametrize(
    "fault",
    [
        replace(HEALTHY, is_remap_pending=True),
        replace(HEALTHY, is_remap_failed=True),
        replace(HEALTHY, is_link_active={0: True, 1: False, 2: False}),
    ],
)
def test_state_that_was_missed_at_one_look_is_not_over(fault: GpuReading) -> None:
    unknown = GpuReading(HEALTHY.index, HEALTHY.bus)
    assert take(HEALTHY, fault, unknown) == []
    assert take(HEALTHY, fault, unknown, fault) == []
    (over,) = take(HEALTHY, fault, unknown, HEALTHY)
    assert over.is_over


def test_heat_that_was_missed_at_many_looks_is_not_over() -> None:
    hot = replace(HEALTHY, temperature_c=95, throttled_by=("temperature (hardware)",))
    unknown = replace(HEALTHY, temperature_c=None, throttled_by=None)
    assert take(*[hot] * NUM_HOT_LOOKS, *[unknown] * NUM_HOT_LOOKS) == []


def test_errors_of_links_that_were_missed_at_one_look_are_no_new_ones() -> None:
    fewer = replace(HEALTHY, is_link_active={0: True}, num_link_errors=1)
    assert take(HEALTHY, fewer, HEALTHY) == []


def test_what_a_lost_gpu_had_is_not_over() -> None:
    pending, lost = (
        replace(HEALTHY, is_remap_pending=True),
        GpuReading(3, HEALTHY.bus, is_lost=True),
    )
    assert [found.sign for found in take(pending, lost)] == ["gpu_lost"]
    assert take(pending, lost, lost) == []


def test_gpus_that_nvml_does_not_tell_of_any_more_are_neither_healthy_nor_over() -> None:
    detector = GpuDetector()
    pending = replace(HEALTHY, is_remap_pending=True)
    other = replace(HEALTHY, index=4, bus="00000000:5E:00.0")
    assert [one.sign for one in detector.take([pending, other])] == ["gpu_row_remap"]
    [not_listed] = detector.take([])
    assert (not_listed.sign, not_listed.subject, not_listed.is_over) == (
        "unreadable",
        "NVML",
        False,
    )
    assert not_listed.text == "NVML no longer lists GPU 3, GPU 4"
    assert detector.take([]) == []
    back = detector.take([HEALTHY, other])
    assert {(one.sign, one.is_over) for one in back} == {
        ("unreadable", True), ("gpu_row_remap", True),
    }  # fmt: skip


def test_row_remap_counts_from_the_first_look() -> None:
    (found,) = take(replace(HEALTHY, is_remap_failed=True))
    assert "could not be replaced" in found.text


def test_lost_gpu_that_is_back_is_over_and_keeps_its_counts() -> None:
    lost = GpuReading(3, HEALTHY.bus, is_lost=True)
    (over,) = take(HEALTHY, lost, HEALTHY)
    assert (over.sign, over.is_over) == ("gpu_lost", True)


def test_counts_that_begin_anew_are_no_errors() -> None:
    assert take(HEALTHY, replace(HEALTHY, num_uncorrectable=0, num_link_errors=0)) == []


@pytest.mark.parametrize(
    ("now", "sign"),
    [
        (replace(HEALTHY, temperature_c=90), "gpu_hot"),
        (replace(HEALTHY, throttled_by=("temperature (hardware)",)), "gpu_throttled"),
    ],
)
def test_heat_must_last(now: GpuReading, sign: str) -> None:
    assert take(HEALTHY, *[now] * (NUM_HOT_LOOKS - 1)) == []
    (found,) = take(HEALTHY, *[now] * NUM_HOT_LOOKS)
    assert found.sign == sign
    assert take(HEALTHY, now, HEALTHY, now, now) == []
