"""Boxes of a run hold exactly its elements, in their order."""

import itertools
from math import prod

from hypothesis import given, strategies as st

from nodeagent.rank.tensors.tensor_boxes import boxes_of_run

sizes = st.lists(st.integers(1, 5), max_size=4)


@given(size=sizes, data=st.data())
def test_boxes_are_the_run(size: list[int], data: st.DataObject) -> None:
    num_elements = prod(size)
    begin = data.draw(st.integers(0, num_elements))
    end = data.draw(st.integers(begin, num_elements))
    everything = list(itertools.product(*(range(length) for length in size)))

    boxes = list(boxes_of_run(size, begin, end))

    elements = [
        tuple(offset + step for offset, step in zip(offsets, steps, strict=True))
        for offsets, box_sizes in boxes
        for steps in itertools.product(*(range(length) for length in box_sizes))
    ]
    assert elements == everything[begin:end]
    assert len(boxes) <= 2 * len(size) + 1
