"""Divides a run of a flattened tensor into boxes of that tensor.

With a sharded optimizer each data-parallel rank has a run of consecutive elements of a tensor. The
run may begin and end anywhere. In the tensor's own dimensions it is not one box, but at most two
per dimension plus one. Each box is consecutive in the run.
"""

from collections.abc import Iterator, Sequence
from math import prod

TensorBox = tuple[tuple[int, ...], tuple[int, ...]]
"""Offsets and sizes."""


def boxes_of_run(size: Sequence[int], begin: int, end: int) -> Iterator[TensorBox]:
    """Yield the boxes of a tensor of ``size`` that hold its elements ``begin`` to ``end``.

    The boxes come in the order of the elements. ``end`` is excluded.
    """
    if begin >= end:
        return
    if not size:
        yield (), ()
        return
    rest = tuple(size[1:])
    row = prod(rest)
    first, last = -(-begin // row), end // row  # whole rows
    if first > last:
        yield from _in_row(rest, last, begin - last * row, end - last * row)
        return
    yield from _in_row(rest, first - 1, begin - (first - 1) * row, row if begin % row else 0)
    if last > first:
        yield (first, *(0 for _ in rest)), (last - first, *rest)
    yield from _in_row(rest, last, 0, end - last * row)


def _in_row(rest: tuple[int, ...], index: int, begin: int, end: int) -> Iterator[TensorBox]:
    for offsets, sizes in boxes_of_run(rest, begin, end):
        yield (index, *offsets), (1, *sizes)
