"""Who has not entered the collective that others wait in, by what the ranks' flight recorders say.

All members of a process group call its collectives in the same order and number them alike. So whoever
is at a lower number than another member of the group is *behind* there. He may only wait himself, in
another group, for a third: ranks that have an unfinished collective which somebody else has not entered
are excused, and at the end of such a chain stands the one that all others wait for.

Pure, over what the ranks have said. A rank that has recorded nothing of a group is not judged by it:
its ring may have turned, or it is no member.
"""

from collections.abc import Mapping

from nodeagent.protocol.standing import Collective, Standing


def find_behind(standings: Mapping[int, Standing]) -> dict[int, str]:
    """Return who is behind and waits for nobody, by global rank, with what it has not entered in words.

    Empty where nobody is behind, or where ranks wait for one another in a circle.
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
    """Return by group what each of its members has called last."""
    by_group: dict[str, dict[int, Collective]] = {}
    for number, standing in standings.items():
        for one in standing.collectives:
            by_group.setdefault(one.group, {}).setdefault(number, one)
    return by_group


def _waits_for_others(
    number: int, standing: Standing, by_group: Mapping[str, Mapping[int, Collective]]
) -> bool:
    """Whether a collective that it has entered is not over, and somebody has not entered it."""
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
    """Return what the recorder says of a rank, for operators: one line per group, newest first."""
    return "\n".join(
        f"    {one.name} number {one.sequence} of group {one.group}, {one.state}"
        f"{', over' if one.is_over else ''}"
        for one in standing.collectives
    )
