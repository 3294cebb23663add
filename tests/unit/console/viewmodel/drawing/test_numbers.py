"""Numbers as operators read them."""

import pytest
from hypothesis import given, strategies as st

from console.viewmodel.drawing.numbers import (
    clock,
    latency,
    mebibytes,
    plural,
    seconds,
    share,
    short,
    sparkline,
    weight,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-1, "0.0 s"),
        (0.44, "0.4 s"),
        (9.96, "10 s"),
        (99.4, "99 s"),
        (100, "1m40s"),
        (185, "3m05s"),
        (7_620, "2h07m"),
    ],
)
def test_durations(value: float, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (812, "812"), (1_240, "1.24k"), (38_200_000, "38.2M")]
)
def test_quantities(value: float, text: str) -> None:
    assert short(value) == text


def test_latencies() -> None:
    assert [latency(value) for value in (-1.0, 0.04, 1.3, 42.0)] == [
        "0 ms",
        "40 ms",
        "1.3 s",
        "42 s",
    ]


def test_shares_sizes_times_and_counts() -> None:
    assert share(1, 3, "-") == "33%"
    assert share(1, 0, "-") == "-"
    assert mebibytes(38 * 2**20) == "38 MiB"
    assert mebibytes(2 * 2**30) == "2.0 GiB"
    assert clock(1_767_189_600.0 + 131) == "14:02:11"
    assert weight(2.0) == "2"
    assert (plural(1, "node"), plural(3, "node")) == ("1 node", "3 nodes")


def test_sparkline_shows_all_values_between_their_extremes() -> None:
    assert sparkline({1: 0.0, 2: 1.0, 3: 4.0, 4: 6.0}, 2, "_#") == "_#"
    assert sparkline({2: 4.0, 1: 0.0, 3: 9.0}, 3, "_-#") == "_-#"
    assert sparkline({1: 2.0, 2: 2.0}, 5, "_#") == "__"
    assert sparkline({}, 5, "_#") == ""
    assert sparkline({1: 1.0, 2: float("nan"), 3: 2.0}, 5, "_#") == "_ #"


@given(st.dictionaries(st.integers(0, 200), st.floats()), st.integers(1, 30))
def test_sparkline_takes_any_values(values: dict[int, float], width: int) -> None:
    assert len(sparkline(values, width, "▁▂▃")) <= width
