"""Which ranks have not entered a collective that other ranks wait in, by their flight recorders.

All members of a process group call its collectives in the same order and number them alike. So a
rank with a lower number than another member of the group is *behind* there. It may itself wait in
another group for a third rank. A rank is excused if it waits in an unfinished collective that
another member has not entered. At the end of such a chain is the rank that all others wait for.

This is a pure function over reports of ranks. A rank without a record of a group is not judged by
that group: its ring buffer may have wrapped around, or it is no member.
"""

from collections.abc import Mapping

from nodeagent.protocol.standing import Collective, Standing


def find_behind(standings: Mapping[int, Standing]) -> dict[int, str]:
    """Return the ranks that are behind and wait for no other rank, with their missing collective.

    The result is by global rank, in words. It is empty if no rank is behind, or if ranks wait for
    each other in a circle.
    """
    by_group = _members(standings)
    behind: dict[int, str] = {}
    for members in by_group.values():
        ahead = max(members.values(), key=lambda one: one.sequence)
        late = {n: one for n, one in members.items() if one.sequence < ahead.sequence}
        for number, own in late.items():
            others = sum(one.sequence == ahead.sequence for one in members.values())
            behind.setdefault(number, _describe(own, ahead, others))
    waiting = {n for n, one in standings.items() if _waits_for_others(n, one, by_group)}
    return {number: words for number, words in behind.items() if number not in waiting}


def _members(standings: Mapping[int, Standing]) -> dict[str, dict[int, Collective]]:
    """Return, by group, the last collective that each of its members called."""
    by_group: dict[str, dict[int, Collective]] = {}
    for number, standing in standings.items():
        for one in standing.collectives:
            by_group.setdefault(one.group, {}).setdefault(number, one)
    return by_group


def _waits_for_others(
    number: int, standing: Standing, by_group: Mapping[str, Mapping[int, Collective]]
) -> bool:
    """Return whether the rank waits in a collective that another member has not entered."""
    return any(
        not own.is_over
        and any(
            other.sequence < own.sequence
            for peer, other in by_group[own.group].items()
            if peer != number
        )
        for own in standing.collectives
    )


def _describe(own: Collective, ahead: Collective, num_ahead: int) -> str:
    group = f"group {ahead.group}"
    if ahead.description and ahead.description != "undefined":
        group += f" ({ahead.description})"
    return (
        f"has not entered {ahead.name} number {ahead.sequence} of {group}, as {num_ahead} other(s)"
        f" have; its last there was {own.name} number {own.sequence}"
    )


def record_of(standing: Standing) -> str:
    """Return a rank's flight record for operators: one line per group, newest first."""
    return "\n".join(
        f"    {one.name} number {one.sequence} of group {one.group}, {one.state}"
        f"{', over' if one.is_over else ''}"
        for one in standing.collectives
    )
