"""Hostlists, in the notation of Slurm, pdsh and ClusterShell: many names in one short text.

    gpu-[001-004]         gpu-001 gpu-002 gpu-003 gpu-004
    gpu-[1-9/4,20]        gpu-1 gpu-5 gpu-9 gpu-20
    r[1-2]n[1-2]          r1n1 r1n2 r2n1 r2n2
    login,gpu-[1-2]       login gpu-1 gpu-2

A first number with leading zeros sets the width of its range.
"""

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Final

MOST_NAMES: Final = 20_000
"""Names that one hostlist may stand for."""

_PART: Final = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_LAST_NUMBER: Final = re.compile(r"(.*?)(\d{1,9})(\D*)", re.ASCII)
_RANGE: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?:/(\d{1,9}))?)?", re.ASCII)


class HostlistError(ValueError):
    """A hostlist is wrong. The text is one line, says what, and shows the notation."""


def expand(text: str) -> list[str]:
    """Return the names that a hostlist stands for, in their order.

    Raises:
        HostlistError: A bracket or a range is wrong, a name appears twice, or there are too many.
    """
    names: dict[str, None] = {}
    for item in _items(text):
        for name in _names_of(item):
            if name in names:
                raise HostlistError(f"names {name} twice; name each host once")
            names[name] = None
            if len(names) > MOST_NAMES:
                raise HostlistError(
                    f"stands for more than {MOST_NAMES} names; write several groups"
                )
    return list(names)


def fold(names: Iterable[str]) -> str:
    """Return a short hostlist that stands for ``names``, in the order of their numbers.

    Only the last number of a name is folded.
    """
    by_shape: dict[tuple[str, str], list[str]] = {}
    for name in dict.fromkeys(names):
        found = _LAST_NUMBER.fullmatch(name)
        shape = (found[1], found[3]) if found else (name, "")
        by_shape.setdefault(shape, []).append(found[2] if found else "")
    return ",".join(
        f"{before}{piece}{after}"
        for (before, after), numbers in by_shape.items()
        for piece in _folded(numbers)
    )


def _folded(numbers: list[str]) -> Iterator[str]:
    """Yield numbers of one shape, those of a width together: ``[08-10]``, ``[8-11,20]``."""
    widths = {len(number) for number in numbers if len(number) > 1 and number.startswith("0")}
    by_width: dict[int, list[int]] = {}
    for number in filter(None, numbers):
        width = len(number) if len(number) in widths else 0
        by_width.setdefault(width, []).append(int(number))
    if "" in numbers:
        yield ""
    for width, values in by_width.items():
        ranges: list[list[int]] = []
        for value in sorted(values):
            if ranges and value == ranges[-1][1] + 1:
                ranges[-1][1] = value
            else:
                ranges.append([value, value])
        texts = [
            f"{first:0{width}d}" if first == last else f"{first:0{width}d}-{last:0{width}d}"
            for first, last in ranges
        ]
        is_one = len(texts) == 1 and "-" not in texts[0]
        yield texts[0] if is_one else f"[{','.join(texts)}]"


def _items(text: str) -> Iterator[str]:
    """Yield what commas outside of brackets separate."""
    depth, item = 0, ""
    for char in text:
        if char == "," and not depth:
            yield _checked(item)
            item = ""
            continue
        depth += {"[": 1, "]": -1}.get(char, 0)
        if depth not in {0, 1}:
            break
        item += char
    if depth:
        raise HostlistError("brackets do not match; write them as in gpu-[001-004]")
    yield _checked(item)


def _checked(item: str) -> str:
    if not item.strip():
        raise HostlistError("has an empty name in it; write names as in gpu-[001-004],login")
    return item.strip()


def _names_of(item: str) -> Iterator[str]:
    """Yield the names of one item; the last bracket counts fastest."""
    parts = [(text,) if text else tuple(_numbers(inside)) for inside, text in _PART.findall(item)]
    return map("".join, itertools.product(*parts))


def _numbers(inside: str) -> Iterator[str]:
    for piece in inside.split(","):
        found = _RANGE.fullmatch(piece.strip())
        if found is None:
            raise HostlistError(f"[{inside}] is no range; write it as in gpu-[001-004,010-020/2]")
        first, last, step = found[1], found[2] or found[1], int(found[3] or 1)
        if int(last) < int(first):
            raise HostlistError(f"[{inside}] counts down; write the smaller number first")
        if step == 0:
            raise HostlistError(f"[{inside}] has a step of 0; write 1 or more")
        if (int(last) - int(first)) // step >= MOST_NAMES:
            raise HostlistError(f"[{inside}] stands for more than {MOST_NAMES} names")
        width = len(first) if first.startswith("0") else 0
        for number in range(int(first), int(last) + 1, step):
            yield f"{number:0{width}d}"
