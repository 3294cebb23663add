"""Who hangs, and who only waits: a pure judgement over where the ranks of a stalled task stand.

In order of weight:

1. A rank that is stopped, blocked in the kernel or without an answer is the culprit: it can't enter
   the collective that the others wait in.
2. So is one that computes and has not begun anything new for as long as an iteration takes. One
   that has is slow, not hung, and its task is given more time.
3. All wait, and have for as long: whoever has not entered the collective that others wait in, by what
   torch's flight recorder says (``controller.core.rules.collectives``). Where it says nothing, whoever waits in an
   earlier phase of the iteration, or in another collective than the others. Either must be the smaller part of them. A replica without pipeline stages goes in step,
   so inside one fewer finished micro-batches tell the same.
4. All wait at the same place: nobody is to blame that can be seen. That is a lost message, or the
   network: a time-out of the collective.

That is about iterations. To form, and to end, ranks build models and read or write checkpoints, which
takes as long as it takes: there a rank is named at once only if it is stopped, and otherwise when the
time is over and others wait for it (``find_absent``).
"""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Final

from controller.core.rules.collectives import find_behind
from nodeagent.protocol.regroup import Phase
from nodeagent.protocol.standing import Standing
from profiles.layout import Layout

_PHASES: Final[tuple[Phase, ...]] = (
    "idle", "accumulate", "reduce", "finalise", "vote", "stepping",
)  # fmt: skip
_SILENT: Final = {
    "stopped": "stopped by a signal",
    "blocked": "blocked in the kernel",
    "no answer": "lives and does not answer",
}


@dataclass(frozen=True, slots=True)
class Hang:
    """A stalled task explained.

    Attributes:
        reasons: By culprit, what it does, in words; empty where all only wait.
        summary: What the others wait in, in words.
    """

    reasons: Mapping[int, str]
    summary: str


def find_hang(
    standings: Mapping[int, Standing], layout: Layout, *, patience_s: float, is_complete: bool
) -> Hang | None:
    """Return who hangs, or None where that can't be said yet.

    Args:
        standings: Where the ranks stand, by global rank.
        layout: Of their generation.
        patience_s: A rank that has begun something within this is at work.
        is_complete: Whether all ranks are among ``standings``. Others may wait for one that is not,
            and nobody is named by where he waits. Whether it is gone is noticed elsewhere.
    """
    waiting = {n: one for n, one in standings.items() if one.where == "collective"}
    silent = {n: _SILENT[one.where] for n, one in standings.items() if one.where in _SILENT}
    recorded = find_behind(standings)
    if silent:
        return Hang(silent, _wait_of(waiting))
    busy = {n: one for n, one in standings.items() if one.where == "computing"}
    idle = {
        n: f"is in {one.place}" + (f", and {recorded[n]}" if n in recorded else "")
        for n, one in busy.items()
        if one.idle_s is None or one.idle_s >= patience_s
    }
    if busy:
        return Hang(idle, _wait_of(waiting)) if idle else None
    has_moved = any(one.idle_s is not None and one.idle_s < patience_s for one in waiting.values())
    if has_moved or not is_complete:
        return None
    if len(recorded) > 1 and 2 * len(recorded) >= len(waiting):
        recorded = {}
    behind = recorded or dict.fromkeys(_behind(waiting, layout), "")
    reasons = {
        n: f"waits in {waiting[n].collective}" + (f", and {words}" if words else "")
        for n, words in behind.items()
    }
    return Hang(reasons, _wait_of({n: one for n, one in waiting.items() if n not in behind}))


def find_absent(
    standings: Mapping[int, Standing],
    *,
    arrived: Collection[int],
    missing: Collection[int],
    is_over: bool,
    is_complete: bool,
) -> Hang | None:
    """Return who keeps a generation from forming, or from ending; None where that can't be said.

    Args:
        standings: Where the ranks stand, by global rank.
        arrived: Ranks that have done what the others are to do.
        missing: Ranks without a process that anybody has heard of.
        is_over: Whether it takes longer than it should.
        is_complete: Whether all ranks have been seen. While one has not, that none is missing where the
            others wait can't be said.
    """
    waiting = {n: one for n, one in standings.items() if one.where == "collective"}
    stopped = {n: _SILENT["stopped"] for n, one in standings.items() if one.where == "stopped"}
    if stopped:
        return Hang(stopped, _wait_of(waiting))
    if not is_over or not (waiting or arrived):
        return None
    late = {
        n: _SILENT.get(one.where) or f"is in {one.place}"
        for n, one in standings.items()
        if n not in waiting and n not in arrived
    }
    late |= dict.fromkeys(missing, "has not come up")
    return Hang(late, _wait_of(waiting)) if late or is_complete else None


def _behind(waiting: Mapping[int, Standing], layout: Layout) -> set[int]:
    """Return the ranks that are behind all others, where they are the smaller part."""
    if not waiting:
        return set()
    steps = {n: _step(one) for n, one in waiting.items()}
    first = {n for n in waiting if steps[n] == min(steps.values())}
    if len(first) == len(waiting):
        return _odd({n: one.collective for n, one in waiting.items()})
    if len(first) == 1:
        return first
    return _behind_in_replica({n: waiting[n] for n in first}, layout) or (
        first if 2 * len(first) < len(waiting) else set()
    )


def _behind_in_replica(waiting: Mapping[int, Standing], layout: Layout) -> set[int]:
    if layout.tp == 1 or layout.pp > 1 or len({layout.dp_rank(n) for n in waiting}) > 1:
        return set()
    counts = {n: one.num_micro_batches for n, one in waiting.items()}
    behind = {n for n, count in counts.items() if count < max(counts.values())}
    return behind or _odd({n: one.collective for n, one in waiting.items()})


def _odd(places: Mapping[int, Hashable]) -> set[int]:
    """Return the ranks that are not where most are; none where no place has more than half."""
    [(most, num)] = Counter(places.values()).most_common(1)
    if 2 * num <= len(places):
        return set()
    return {n for n, place in places.items() if place != most}


def _step(standing: Standing) -> tuple[int, int]:
    phase = _PHASES.index(standing.phase) if standing.phase else 0
    return standing.iteration or 0, phase


def _wait_of(waiting: Mapping[int, Standing]) -> str:
    if not waiting:
        return "nobody waits in a collective"
    [(place, _)] = Counter(one.collective for one in waiting.values()).most_common(1)
    return f"{len(waiting)} rank(s) wait in {place}"
