"""Panels never overlap, never leave the terminal, and the important ones are always there."""

import itertools

from hypothesis import given, strategies as st

from console.viewmodel.panel_places import Need, PanelBox, arrange, is_too_small, shares_space

needs = st.builds(
    Need,
    nodes=st.integers(0, 300),
    tasks=st.integers(0, 40),
    incidents=st.integers(0, 50),
    plan=st.integers(0, 30),
    is_plan_first=st.booleans(),
    is_activity_fresh=st.booleans(),
)


@given(st.integers(60, 300), st.integers(16, 100), needs)
def test_boxes_lie_inside_and_apart(width: int, height: int, need: Need) -> None:
    boxes = [box for box in arrange(width, height, need).values() if box.height]
    for box in boxes:
        assert 0 <= box.x <= box.x + box.width <= width
        assert 0 <= box.y < box.y + box.height <= height
    for one, other in itertools.combinations(boxes, 2):
        assert _apart(one, other)


def _apart(one: PanelBox, other: PanelBox) -> bool:
    return (
        one.x + one.width <= other.x
        or other.x + other.width <= one.x
        or one.y + one.height <= other.y
        or other.y + other.height <= one.y
    )


@given(st.integers(60, 300), st.integers(16, 100), needs)
def test_what_matters_is_always_shown(width: int, height: int, need: Need) -> None:
    boxes = arrange(width, height, need)
    for name in ("status", "nodes", "tasks", "keys"):
        assert boxes[name].height >= 1
    assert boxes["decision"].height or boxes["activity"].height
    if need.plan:
        chosen = "plan" if need.is_plan_first else "incidents"
        assert boxes[chosen].height >= 2
    else:
        assert boxes["plan"].height == 0
        assert boxes["incidents"].height >= 2
        assert boxes["events"].height >= 2


def test_small_terminals_share_space_and_large_ones_do_not() -> None:
    need = Need(nodes=4, tasks=2, incidents=2, plan=11)
    assert shares_space(80, 24, need)
    assert not shares_space(160, 48, need)
    assert not shares_space(80, 24, Need(nodes=4, tasks=2, incidents=2, plan=0))


def test_the_least_size() -> None:
    assert not is_too_small(60, 16)
    assert is_too_small(59, 16)
    assert is_too_small(60, 15)
