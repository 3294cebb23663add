"""The verdict: which of many signs is the cause.

The order of ``Precedence`` is most of the decision rules. This module has the rules that an order
can't express: lines that take back other lines, combinations of signs, links that flap, and cases
in which time decides. Lines need not be in the order of time. Moments are compared if
both lines have one of the same clock; otherwise the earlier line counts as earlier.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from profiles.faults.catalogue import Catalogue
from profiles.faults.entry import Combination, Entry
from profiles.faults.links import flapping_links
from profiles.faults.precedence import Precedence
from profiles.faults.sign import Sign
from profiles.faults.status import Severity, Status

_MIN_PROGRESS: Final = 2
"""Progress lines after which a warning about a socket counts as over."""
_MIN_LINES_AFTER: Final = 40
"""Lines after which a log has continued: a job that hangs repeats its complaint only."""
_MIN_LINES_AFTER_ONE: Final = 8
"""The same, after a single complaint: more lines than it has itself, as a rule."""
_MAX_REPORTS: Final = 2
"""How often a hang is reported that may still be a slow start."""
_MIN_ODD_NUMBERS: Final = 20
"""Odd losses that are a fault although training recovered in the end."""
_STORE_LEAD_S: Final = 30.0
"""How long before a collective's timeout a store must be gone to be its cause, seconds."""
_TRANSIENT: Final = frozenset({Precedence.CONNECT, Precedence.RESET, Precedence.STORE})
_SURVIVABLE: Final = frozenset({"exception", "exception-weak", "traceback"})
"""Exceptions that name no status of their own: a program that trains on has caught them."""
_ENDS: Final = frozenset({Precedence.DEATH, Precedence.DAEMON, Precedence.EXIT})
_REVOCABLE_NUMBERS: Final = frozenset({"loss-not-finite", "loss-left-level", "iteration-overdue"})
_BY_TIME: Final = frozenset({Precedence.RESET, Precedence.REMOTE, Precedence.CONNECT})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an excerpt is about.

    Attributes:
        status: The status an operator should act on; ``none`` if there is nothing to act on.
        severity: How it is handled.
        entry_id: Entry of the catalogue that decided; empty for ``none``.
        line: Number of the line that decided; 0 for ``none``.
        evidence: That line; empty for ``none``.
        reason: Why, in words an operator reads.
        response: What to do first.
    """

    status: Status
    severity: Severity
    entry_id: str
    line: int
    evidence: str
    reason: str
    response: str


def decide(signs: Sequence[Sign], catalogue: Catalogue, *, num_lines_after: int = 0) -> Verdict:
    """Name the cause among ``signs``, which stand in the order of their lines.

    Equal signs always give the same verdict. Of signs that weigh the same the earliest decides.

    Args:
        signs: What the lines say.
        catalogue: What is known.
        num_lines_after: Lines that the log has after the last sign of a fault, as far as known.
    """
    combined = _combine(_relieve(signs), catalogue)
    outlived = _without_survived(combined, num_lines_after)
    living = _after_recovered_numbers(_without_transients(outlived))
    if (flapping := flapping_links(living)) is not None:
        living = [*living, _as_ranked(flapping)]
    ranked = [sign for sign in living if sign.entry.precedence.is_ranked]
    if not ranked:
        return _nothing(signs, catalogue)
    root = _root(_without_late_deaths(ranked))
    others = [sign for sign in ranked if sign.entry.status != root.entry.status]
    status = root.entry.status
    return Verdict(
        status=status,
        severity=status.severity,
        entry_id=root.entry.id,
        line=root.shown[0],
        evidence=root.shown[1],
        reason=_reason(root, others),
        response=root.entry.response or status.facts.response,
    )


def is_earlier(first: Sign, second: Sign) -> bool:
    """Whether ``first`` came before ``second``, by their moments if these can be compared."""
    if first.moment and second.moment and first.moment.clock == second.moment.clock:
        return (first.moment.at_s, first.line) < (second.moment.at_s, second.line)
    return first.line < second.line


def _relieve(signs: Sequence[Sign]) -> list[Sign]:
    reaches: dict[Precedence, list[range]] = defaultdict(list)
    starts = [sign.line for sign in signs if sign.entry.run in {"begins", "launches"}]
    for sign in signs:
        if not sign.entry.relieves:
            continue
        reach = _reach(sign)
        if sign.entry.run == "ends":
            next_start = min((line for line in starts if line > sign.line), default=reach.stop)
            reach = range(reach.start, min(reach.stop, next_start))
        for precedence in sign.entry.relieves:
            reaches[precedence].append(reach)
    taken_back = {precedence: _joined(ranges) for precedence, ranges in reaches.items()}
    return [
        sign for sign in signs if not _is_in(taken_back.get(sign.entry.precedence, []), sign.line)
    ]


def _joined(ranges: Iterable[range]) -> list[range]:
    """Return the fewest ranges of the same lines: a storm takes back a line thousands of times."""
    joined: list[range] = []
    for each in sorted(ranges, key=_start):
        if joined and each.start <= joined[-1].stop:
            joined[-1] = range(joined[-1].start, max(joined[-1].stop, each.stop))
        else:
            joined.append(each)
    return joined


def _is_in(joined: list[range], line: int) -> bool:
    position = bisect_right(joined, line, key=_start)
    return position > 0 and line in joined[position - 1]


def _start(lines: range) -> int:
    return lines.start


def _reach(relief: Sign) -> range:
    """Return the lines that ``relief`` takes back."""
    entry = relief.entry
    match entry.direction:
        case "before":
            return range(relief.line - entry.reach, relief.line)
        case "after":
            return range(relief.line, relief.line + entry.reach + 1)
        case "around":
            return range(relief.line - entry.reach, relief.line + entry.reach + 1)


def _combine(signs: list[Sign], catalogue: Catalogue) -> list[Sign]:
    for combination in catalogue.combinations:
        parts = _parts(combination, signs)
        if not parts:
            continue
        dropped = set(combination.drops)
        last = max(parts, key=lambda sign: sign.line)
        signs = [sign for sign in signs if sign.entry.id not in dropped]
        if combination.status is not None:
            evidence = min(parts, key=lambda sign: sign.line)
            if evidence.entry.precedence is Precedence.PROGRESS:
                evidence = last
            signs.append(_replace_entry(evidence, _entry_of(combination, combination.status)))
    return signs


def _parts(combination: Combination, signs: Sequence[Sign]) -> list[Sign]:
    parts: list[Sign] = []
    for need in combination.needs:
        names = set(need.split("|"))
        least = parts[-1].line if combination.in_order and parts else 0
        part = next((s for s in signs if s.entry.id in names and s.line >= least), None)
        if part is None:
            return []
        parts.append(part)
    return parts


def _entry_of(combination: Combination, status: Status) -> Entry:
    return Entry(
        id=combination.id,
        status=status,
        precedence=combination.precedence,
        patterns=(),
        source=combination.source,
        response=combination.response,
    )


def _replace_entry(sign: Sign, entry: Entry) -> Sign:
    return Sign(entry, sign.line, sign.text, sign.device, sign.value)


def _as_ranked(sign: Sign) -> Sign:
    return _replace_entry(sign, sign.entry.model_copy(update={"precedence": Precedence.LINK}))


def _without_survived(signs: list[Sign], num_lines_after: int) -> list[Sign]:
    """Drop what the program has survived, by what the entries say about that.

    A process that ends before training has begun was a helper if training then begins.
    """
    progress = [sign.line for sign in signs if sign.entry.precedence is Precedence.PROGRESS]
    launches = [sign.line for sign in signs if sign.entry.run == "launches"]
    reports = Counter(sign.entry.id for sign in signs)

    def is_survived(sign: Sign) -> bool:
        entry = sign.entry
        if not entry.survived_by:
            return False
        num_reports = reports[entry.id]
        least = _MIN_LINES_AFTER_ONE if num_reports == 1 else _MIN_LINES_AFTER
        if (
            entry.survived_by == "output"
            and num_lines_after >= least
            and num_reports <= _MAX_REPORTS
        ):
            return True
        end = min((line for line in launches if line > sign.line), default=None)
        after = [line for line in progress if line > sign.line and (end is None or line < end)]
        is_start = bool(after) and len(after) == len(progress)
        return is_start or (entry.survived_by != "start" and len(after) >= _MIN_PROGRESS)

    return [sign for sign in signs if not is_survived(sign)]


def _without_transients(signs: list[Sign]) -> list[Sign]:
    """Drop signs that training survived: socket warnings, and exceptions that ended nothing."""
    progress = [sign.line for sign in signs if sign.entry.precedence is Precedence.PROGRESS]
    if len(progress) < _MIN_PROGRESS:
        return signs
    has_end = any(sign.entry.precedence in _ENDS for sign in signs)
    last_start = progress[-_MIN_PROGRESS]
    return [
        sign
        for sign in signs
        if sign.line >= last_start
        or not (
            (sign.entry.precedence in _TRANSIENT and ("Error: " not in sign.text or not has_end))
            or (sign.entry.id in _SURVIVABLE and not has_end)
        )
    ]


def _after_recovered_numbers(signs: list[Sign]) -> list[Sign]:
    """Drop odd numbers of training after which the numbers are soon in order again."""
    last_step, last_number = 0, 0
    for sign in signs:
        if sign.entry.precedence is Precedence.PROGRESS:
            last_step = sign.line
            last_number = sign.line if sign.entry.id == "progress" else last_number
    counts = Counter(sign.entry.id for sign in signs)
    return [
        sign
        for sign in signs
        if sign.entry.id not in _REVOCABLE_NUMBERS
        or sign.line > (last_number if sign.entry.status == "nan_loss" else last_step)
        or (sign.entry.status == "nan_loss" and counts[sign.entry.id] >= _MIN_ODD_NUMBERS)
    ]


def _without_late_deaths(ranked: list[Sign]) -> list[Sign]:
    """Drop deaths after a collective's timeout, by the clock: the timeout caused them."""
    timeouts = [sign for sign in ranked if sign.entry.precedence is Precedence.TIMEOUT]
    if not timeouts:
        return ranked
    first = _earliest(timeouts)
    living = [
        sign
        for sign in ranked
        if sign.entry.precedence is not Precedence.DEATH
        or sign.moment is None
        or first.moment is None
        or sign.moment.clock != first.moment.clock
        or sign.moment.at_s < first.moment.at_s
    ]
    return living or ranked


def _root(signs: Sequence[Sign]) -> Sign:
    ranked = _without_fate_sharing(signs)
    best = min(ranked, key=lambda sign: sign.entry.precedence.rank).entry.precedence
    root = _earliest([sign for sign in ranked if sign.entry.precedence is best])
    timeouts = [sign for sign in ranked if sign.entry.precedence is Precedence.TIMEOUT]
    if not timeouts:
        return root
    timeout = _earliest(timeouts)
    if best in _BY_TIME and is_earlier(timeout, root):
        return timeout
    stores = [sign for sign in ranked if sign.entry.precedence is Precedence.STORE]
    if best is Precedence.TIMEOUT and stores and _leads(_earliest(stores), timeout):
        return _earliest(stores)
    return root


def _without_fate_sharing(ranked: Sequence[Sign]) -> Sequence[Sign]:
    """Drop what yields to any earlier fault: who ends because others ended is no cause."""
    causes = [sign for sign in ranked if not sign.entry.yields_to_earlier]
    if not causes or len(causes) == len(ranked):
        return ranked
    first = _earliest(causes)
    return [s for s in ranked if not s.entry.yields_to_earlier or is_earlier(s, first)]


def _leads(store: Sign, timeout: Sign) -> bool:
    if not store.moment or not timeout.moment or store.moment.clock != timeout.moment.clock:
        return False
    return store.moment.at_s < timeout.moment.at_s - _STORE_LEAD_S


def _earliest(signs: Sequence[Sign]) -> Sign:
    earliest = signs[0]
    for sign in signs[1:]:
        if is_earlier(sign, earliest):
            earliest = sign
    return earliest


def _reason(root: Sign, others: Sequence[Sign]) -> str:
    meaning = root.entry.status.facts.meaning
    reason = f"line {root.shown[0]}: {meaning} ({root.entry.id})"
    if not others:
        return reason
    counts = Counter(sign.entry.status for sign in others)
    names = ", ".join(f"{status} x{count}" for status, count in sorted(counts.items()))
    return f"{reason}; taken as symptoms: {names}"


def _nothing(signs: Sequence[Sign], catalogue: Catalogue) -> Verdict:
    suspects = [sign for sign in signs if sign.entry.names_fault]
    reliefs = [sign for sign in signs if sign.entry.precedence is Precedence.RELIEF]
    reason = "no line names a fault"
    if suspects and reliefs:
        first = reliefs[0]
        reason = (
            f"line {first.line} ({first.entry.id}) takes back what line {suspects[0].line} says"
        )
    elif suspects:
        reason = f"line {suspects[0].line} ({suspects[0].entry.id}) is no fault by itself"
    none = catalogue.statuses["none"]
    return Verdict(none, none.severity, "", 0, "", reason, none.facts.response)
