"""Links: when changes of a link, looks at a port or readings of a counter make a flapping link.

One link that comes up at boot is nothing; one that goes down in operation, or comes up twice, is.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from profiles.faults.precedence import Precedence
from profiles.faults.sign import Sign

_BOOT_S: Final = 120.0
"""Uptime until which a link may still come and go once."""


def flapping_links(signs: Sequence[Sign]) -> Sign | None:
    """Return the first sign of a link that changes its state in operation, or None."""
    suspects = [
        *_changed(sign for sign in signs if sign.entry.precedence is Precedence.LINK_EVENT),
        *_seen_in_two_states(signs),
        *_risen(signs),
    ]
    return min(suspects, key=lambda sign: sign.line, default=None)


def _changed(events: Iterable[Sign]) -> list[Sign]:
    found = []
    for changes in _by_device(events).values():
        downs = [sign for sign in changes if sign.entry.id == "link-down"]
        ups = [sign for sign in changes if sign.entry.id == "link-up"]
        is_boot = all(
            sign.moment and sign.moment.clock == "uptime" and sign.moment.at_s < _BOOT_S
            for sign in changes
        )
        if is_boot and len(downs) <= 1:
            continue
        if downs or len(ups) >= 2:
            found.append((downs or ups)[0])
    return found


def _seen_in_two_states(signs: Iterable[Sign]) -> list[Sign]:
    looks = (sign for sign in signs if sign.entry.precedence is Precedence.PORT_STATE)
    return [
        next(sign for sign in group if sign.value.upper() != "ACTIVE")
        for group in _by_device(looks).values()
        if len({sign.value.upper() == "ACTIVE" for sign in group}) == 2
    ]


def _risen(signs: Iterable[Sign]) -> list[Sign]:
    readings = (sign for sign in signs if sign.entry.precedence is Precedence.COUNTER)
    found = []
    for group in _by_device(readings).values():
        for before, after in pairwise(group):
            if int(after.value) > int(before.value):
                found.append(after)
                break
    return found


def _by_device(signs: Iterable[Sign]) -> dict[str, list[Sign]]:
    groups: dict[str, list[Sign]] = defaultdict(list)
    for sign in signs:
        groups[sign.device].append(sign)
    return groups
