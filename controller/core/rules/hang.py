"""Which rank hangs, and which ranks only wait: a judgement over the ranks of a stalled task.

In order of weight:

1. A rank that is stopped, blocked in the kernel or without an answer is the culprit. It can't enter
   the collective that the other ranks wait in.
2. A rank that computes is the culprit if it has begun nothing new for as long as an iteration
   takes. If it has, it is slow, not hung, and its task gets more time.
3. All ranks wait, and have waited as long. The culprit has not entered the collective that other
   ranks wait in, by torch's flight recorder (``controller.core.rules.collectives``). Without such a
   record, it is the rank that waits in an earlier phase of the iteration, or in another collective.
   Such ranks must be a minority. A replica without pipeline stages runs in lockstep, so inside one
   replica fewer finished micro-batches count too.
4. All ranks wait at the same place. No rank can be blamed. A message was lost, or the network
   failed: a time-out of the collective.

These rules are for iterations. While a generation forms or ends, its ranks build models and read or
write checkpoints, which has no usual duration. There a rank is named at once only if it is stopped.
Otherwise it is named when the time limit is over and other ranks wait (``find_absent``).
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
_LEAST_SHOWN_S: Final = 0.05
_SILENT: Final = {
    "stopped": "stopped by a signal",
    "blocked": "blocked in the kernel",
    "no answer": "lives but does not answer",
}


@dataclass(frozen=True, slots=True)
class Hang:
    """The explanation of a stalled task.

    Attributes:
        reasons: By culprit, its position in words; empty if all ranks only wait.
        summary: The collective in which the other ranks wait, in words.
    """

    reasons: Mapping[int, str]
    summary: str


def find_hang(
    standings: Mapping[int, Standing], layout: Layout, *, patience_s: float, is_complete: bool
) -> Hang | None:
    """Return the hanging ranks, or None if they can't be determined yet.

    Args:
        standings: Reported positions by global rank.
        layout: Layout of their generation.
        patience_s: A rank that has begun something within this time is at work.
        is_complete: Whether all ranks are among ``standings``. Others may wait for a missing rank,
            so without it no rank is named by its place. Vanished ranks are noticed elsewhere.
    """
    waiting = {n: one for n, one in standings.items() if one.where == "collective"}
    silent = {n: _SILENT[one.where] for n, one in standings.items() if one.where in _SILENT}
    recorded = find_behind(standings)
    if silent:
        return Hang(silent, _wait_of(waiting))
    busy = {n: one for n, one in standings.items() if one.where == "computing"}
    idle = {
        n: f"is in {one.place}{_waiting(one)}" + (f", and {recorded[n]}" if n in recorded else "")
        for n, one in busy.items()
        if _is_stuck(one, patience_s)
    }
    if busy:
        return Hang(idle, _wait_of(waiting)) if idle else None
    has_moved = any(
        not _is_stuck(one, patience_s) for one in waiting.values() if one.idle_s is not None
    )
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


def _waiting(standing: Standing) -> str:
    waited_s = standing.waited_s
    return f", waited {waited_s:.1f} s for a core" if waited_s >= _LEAST_SHOWN_S else ""


def _is_stuck(standing: Standing, patience_s: float) -> bool:
    """Return whether a rank has begun nothing new for ``patience_s`` in which it had a core."""
    if standing.idle_s is None:
        return True
    # Time without a core is no evidence: a starved rank would be named in place of the busy
    # machine.
    worked_s = standing.idle_s - standing.waited_s
    return worked_s >= patience_s and (worked_s > 0 or standing.waited_s == 0)


def find_absent(
    standings: Mapping[int, Standing],
    *,
    arrived: Collection[int],
    missing: Collection[int],
    is_over: bool,
    is_complete: bool,
) -> Hang | None:
    """Return the ranks that keep a generation from forming or ending; None if not known yet.

    Args:
        standings: Reported positions by global rank.
        arrived: Ranks that have completed this step.
        missing: Ranks without any known process.
        is_over: Whether the time limit is over.
        is_complete: Whether all ranks have been looked at. Until then it is not certain that no
            rank is late.
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
    late |= dict.fromkeys(missing, "has not started")
    return Hang(late, _wait_of(waiting)) if late or is_complete else None


def _behind(waiting: Mapping[int, Standing], layout: Layout) -> set[int]:
    """Return the ranks that are behind all others, if they are a minority."""
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
    """Return the ranks that are not where most are; empty if no place has a majority."""
    [(most, num)] = Counter(places.values()).most_common(1)
    if 2 * num <= len(places):
        return set()
    return {n for n, place in places.items() if place != most}


def _step(standing: Standing) -> tuple[int, int]:
    phase = _PHASES.index(standing.phase) if standing.phase else 0
    return standing.iteration or 0, phase


def _wait_of(waiting: Mapping[int, Standing]) -> str:
    if not waiting:
        return "no rank waits in a collective"
    [(place, _)] = Counter(one.collective for one in waiting.values()).most_common(1)
    return f"{len(waiting)} rank(s) wait in {place}"
