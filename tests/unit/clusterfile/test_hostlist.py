"""Hostlists, with ClusterShell as the oracle."""

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given, strategies as st

from controller.clusterfile.hostlist import HostlistError, expand, fold

_NUMBERS = st.integers(0, 40)


@st.composite
def ranges(draw: st.DrawFn) -> str:
    """Return one range of a bracket, all numbers as wide as the widest."""
    first, last = sorted(draw(st.tuples(_NUMBERS, _NUMBERS)))
    width = draw(st.sampled_from([0, 2, 3]))
    if width == 0 and first == 0:
        first = 1
        last = max(last, 1)
    step = draw(st.integers(1, 5))
    text = f"{first:0{width}d}-{last:0{width}d}" if draw(st.booleans()) else f"{first:0{width}d}"
    return f"{text}/{step}" if "-" in text and step > 1 else text


NAMES = st.lists(ranges(), min_size=1, max_size=1).map(",".join).map("[{}]".format)


@given(st.lists(NAMES, min_size=1, max_size=3))
def test_names_are_those_of_clustershell(brackets: list[str]) -> None:
    text = "gpu-" + "n".join(brackets) + ",login"
    found = expand(text)
    assert sorted(found) == sorted(NodeSet(text))
    assert len(set(found)) == len(found)


def test_names_come_in_their_order() -> None:
    assert expand("b[2-1],a".replace("2-1", "1-2") + ",x[08-10]") == [
        "b1", "b2", "a", "x08", "x09", "x10",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a[1-2", "brackets do not match"),
        ("a1-2]", "brackets do not match"),
        ("a[[1-2]]", "brackets do not match"),
        ("a[]", "is no range"),
        ("a[x-z]", "is no range"),
        ("a[1-2/]", "is no range"),
        ("a[4-1]", "counts down"),
        ("a[1-4/0]", "step of 0"),
        ("a,,b", "empty name"),
        ("a[1-2],a2", "names a2 twice"),
        ("a[1-99999]", "more than 20000"),
        ("a[1-999]b[1-999]", "more than 20000"),
    ],
)
def test_a_wrong_hostlist_is_refused(text: str, words: str) -> None:
    with pytest.raises(HostlistError, match=words):
        expand(text)


SHAPES = st.sampled_from(["gpu-{}", "gpu-{:02d}", "gpu-{:03d}", "r1n{}", "r2n{:02d}-ib", "login"])


@given(st.lists(st.builds(lambda shape, n: shape.format(n), SHAPES, _NUMBERS), unique=True))
def test_a_folded_list_stands_for_the_same_names(names: list[str]) -> None:
    if names:
        assert sorted(expand(fold(names))) == sorted(names)
        assert sorted(NodeSet(fold(names))) == sorted(names)


def test_a_folded_list_is_short() -> None:
    assert fold(f"gpu-{number:03d}" for number in range(1, 17)) == "gpu-[001-016]"
    assert fold(["n8", "n9", "n10", "n20", "login"]) == "n[8-10,20],login"
    assert fold(["n08", "n09", "n10"]) == "n[08-10]"
    assert fold(["r1n1", "r1n2", "r2n1"]) == "r1n[1-2],r2n1"
