"""Evidence of faults: observations of agents, translated to the fault statuses of the paper.

When a rank dies, the collectives of its peers fail within milliseconds. So most reports about a
fault are echoes. Evidence is *conclusive* if it needs a reaction on its own: a process that ended,
an exception of the program, a collective whose error names a broken device. It is a *symptom* if it
may be an echo only: a failed collective that names a broken connection, a timeout, or nothing. It
is *local* if the fault is at the place where it was seen.

The table that maps words of exceptions, logs and the kernel to statuses is data
(``profiles.faults``).

Of the end of a process operators see what its log says: the line that explains the end, by the
classifier, else the last lines (``LastWords``). Words of a rank are never trusted: they come as one
printable line of limited length.
"""

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, assert_never

from nodeagent.protocol.ids import NodeId, TaskId
from nodeagent.protocol.observations import LaunchFailed, RankExited, RankRaised
from profiles.faults.catalogue import Catalogue, default_catalogue
from profiles.faults.excerpt import classify_excerpt
from profiles.faults.status import Status
from profiles.faults.status_table import NamedStatus, named
from profiles.faults.tracebacks import HEADER

EvidenceKind = Literal[
    "exit",
    "exception",
    "refusal",
    "collective",
    "launch",
    "overdue",
    "hang",
    "numbers",
    "state",
    "checkpoint",
    "contact",
    "finding",
]

_STATUS_BY_KIND: Final[Mapping[EvidenceKind, NamedStatus]] = {
    "exit": "exited_abnormally",
    "exception": "other_software_error",
    "refusal": "other_software_error",
    "collective": "other_software_error",
    "launch": "other_software_error",
    "overdue": "task_hang",
    "hang": "task_hang",
    "numbers": "nan_loss",
    "state": "nan_loss",
    "checkpoint": "other_software_error",
    "contact": "lost_connection",
    "finding": "none",
}
_UNSPECIFIC: Final = "other_software_error"
"""An exception whose words say nothing more exact."""

_KIND_BY_EXCEPTION: Final[Mapping[str, EvidenceKind]] = {
    "NonFiniteLossError": "numbers",
    "SuspectStateError": "state",
    "CheckpointError": "checkpoint",
}
"""Exceptions of the ranks' own code. Their names identify the fault."""

_REFUSALS: Final = frozenset({"LaunchError", "ProgramError"})
"""Exceptions by which a rank refuses the task's settings. They come again at every start."""

_CATCHABLE_DEATHS: Final = frozenset({None, signal.SIGABRT, signal.SIGTERM})
"""Ends of a process that leave time to report a reason. None is an exit code."""

_SHELL_SIGNALS: Final = 128
"""A shell adds this to the number of the signal that ended its child."""

_SOURCE_PLACE: Final = re.compile(r"^\[[^]\s]+:\d+\] ")
"""The place in a library's C++ source that raised: long, and of no value to operators."""

_NO_ROUTE: Final = re.compile(r"Network is (?:unreachable|down)|ENETUNREACH|ENETDOWN")
"""Said by the kernel of the node itself, for instance when its interface is down."""

_MAX_SUMMARY_CHARS: Final = 400
_MAX_TYPE_CHARS: Final = 100
_MAX_PATH_CHARS: Final = 1000

MAX_CHARS: Final = 240
"""Longest quotation from a log."""

_MAX_PLACE_CHARS: Final = 100
_NUM_LAST_LINES: Final = 2
_ESCAPE_SEQUENCE: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?"
)
_PREFIX: Final = re.compile(r"^\[[^\]\n]{1,40}\]:? ?")
"""What launchers put before each line, for instance ``[rank0]:``."""
_FRAME: Final = re.compile(r'(?:^|\s)File "([^"\n]{1,1000})", line (\d{1,9})')
_LIBRARY: Final = re.compile(r"/(?:site|dist)-packages/|/lib/python3|^<")


@dataclass(frozen=True, slots=True)
class LastWords:
    """The end of a log.

    Attributes:
        line: The line that explains the end; empty if the log has none.
        place: File and line of the program that raised; empty if no traceback shows them.
        status: What the classifier makes of the log; ``none`` if it finds no fault.
        end: The last lines, joined; empty for an empty log.
        number: Number of ``line`` in what was read, from 1; 0 if there is no such line.
    """

    line: str
    place: str
    status: Status
    end: str
    number: int = 0

    @property
    def sentence(self) -> str:
        """What follows ``rank 0 exited with 1`` in a reason; empty for an empty log."""
        return self.sentence_from(0)

    def sentence_from(self, first_line: int) -> str:
        """Return the sentence with the line's number in the log, if the tail's one is known."""
        if self.line:
            number = first_line + self.number - 1 if first_line and self.number else 0
            places = [self.place, f"line {number} of its log" if number else ""]
            shown = ", ".join(filter(None, places))
            return f": {self.line}" + (f" ({shown})" if shown else "")
        return f"; its log ends: {self.end}" if self.end else "; its log is empty"


def read_last_words(tail: str, catalogue: Catalogue | None = None) -> LastWords:
    """Return what the end of a log says."""
    verdict = classify_excerpt(tail, catalogue=catalogue)
    lines = tail.split("\n")
    line, place, number = "", "", -1
    if verdict.status.is_fault:
        number = verdict.line - 1
        line = verdict.evidence
        place = _place_before(lines, number)
    filled = [text for each in lines if (text := plain(each))]
    end = plain(" / ".join(filled[-_NUM_LAST_LINES:]))
    return LastWords(plain(_PREFIX.sub("", line)), place, verdict.status, end, number + 1)


def plain(text: str, limit: int = MAX_CHARS) -> str:
    """Return ``text`` as one printable line of at most ``limit`` characters, its beginning."""
    shown = _ESCAPE_SEQUENCE.sub("", text[: 8 * limit])
    shown = " ".join("".join(each if each.isprintable() else " " for each in shown).split())
    return shown if len(shown) <= limit else f"{shown[: limit - 3]}..."


def _place_before(lines: list[str], number: int) -> str:
    """Return where the program raised: the innermost frame that is in no library."""
    begin = next((n for n in range(number, -1, -1) if HEADER in lines[n]), number)
    frames = [match for each in lines[begin : number + 1] if (match := _FRAME.search(each))]
    own = [frame for frame in frames if not _LIBRARY.search(frame[1])] or frames
    if not own:
        return ""
    path = plain(own[-1][1], limit=1000)
    shown = path if len(path) <= _MAX_PLACE_CHARS else f"...{path[-_MAX_PLACE_CHARS:]}"
    return f"{shown}:{own[-1][2]}"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One observation that indicates a fault.

    Attributes:
        kind: The kind of observation.
        at: When the controller received it.
        observed_at: When it happened, by the node's clock.
        node: The node that reported it.
        task: Task of the rank; None for evidence about a whole node.
        global_rank: The rank; None for evidence about a whole node or task.
        summary: One line for operators.
        named: Status that its words name; None if the kind determines the status.
        detail: Traceback, stacks or log lines, for a closer look.
        log: Path of the rank's log on its node; empty if it is not known.
        own_words: What the program says is wrong, or its exit code; empty if it says nothing, or if
            its words are about a device, a disk or a network.
        has_no_route: Whether its node's kernel has no route to the other end, as its words say.
    """

    kind: EvidenceKind
    at: float
    observed_at: float
    node: NodeId | None
    task: TaskId | None
    global_rank: int | None
    summary: str
    named: Status | None = None
    detail: str = ""
    log: str = ""
    own_words: str = ""
    has_no_route: bool = False

    @property
    def status(self) -> Status:
        """The fault status that it indicates."""
        return named(_STATUS_BY_KIND[self.kind]) if self.named is None else self.named

    @property
    def is_conclusive(self) -> bool:
        """Whether it needs a reaction even if it is the only evidence."""
        return self.kind != "collective" or not self.status.facts.may_be_echo

    @property
    def is_local(self) -> bool:
        """Whether the fault is where it was seen. An exit for a lost connection may be an echo."""
        if self.kind == "exit":
            return not self.status.facts.is_network
        return self.is_conclusive and self.kind not in {"state", "checkpoint"}


def evidence_of(
    observation: RankExited | RankRaised | LaunchFailed,
    *,
    node: NodeId,
    at: float,
    observed_at: float,
    is_command: bool = False,
    catalogue: Catalogue | None = None,
) -> Evidence:
    """Return an observation about a rank, or a command, as evidence of a fault."""
    who = f"rank {observation.global_rank}"
    kind: EvidenceKind
    status: Status | None = None
    own_words = ""
    match observation:
        case RankExited():
            kind, summary, detail = "exit", f"{who} {_ending(observation)}", observation.stderr_tail
            last = _last_words(observation, catalogue)
            if last is not None:
                status = _named_at_exit(observation, last.status, is_command=is_command)
                summary += last.sentence_from(observation.tail_line)
            own_words = _own_words_at_exit(observation, last)
        case RankRaised():
            kind, status = _kind_of(observation), _named(observation, catalogue)
            detail = observation.traceback
            message = _SOURCE_PLACE.sub("", observation.message.strip().partition("\n")[0])
            words = f"{plain(observation.exception_type, _MAX_TYPE_CHARS)}: {plain(message, 400)}"
            summary = f"{who} raised {words}"
            own_words = words if kind == "exception" and status.facts.may_be_of_program else ""
        case LaunchFailed():
            kind, detail = "launch", observation.stderr_tail
            summary = f"{who} could not be started: {plain(observation.reason)}"
            if detail:
                last = read_last_words(detail, catalogue)
                own_words = (last.line or last.end) if _may_be_of_program(last) else ""
                if detail.strip() not in observation.reason:
                    summary += last.sentence
        case _:
            assert_never(observation)
    return Evidence(
        kind=kind,
        at=at,
        observed_at=observed_at,
        node=node,
        task=observation.task,
        global_rank=observation.global_rank,
        summary=summary[:_MAX_SUMMARY_CHARS],
        named=status,
        detail=detail,
        log=plain(observation.log, _MAX_PATH_CHARS),
        own_words=own_words,
        has_no_route=_NO_ROUTE.search(summary) is not None,
    )


def _own_words_at_exit(exited: RankExited, last: LastWords | None) -> str:
    """Return what the program says is wrong; its exit code if its log has no line about that.

    A shell reports the signal that ended its child as an exit code above 128.
    """
    if last is not None and not _may_be_of_program(last):
        return ""
    if last is not None and last.line and exited.signal in {None, signal.SIGABRT}:
        return last.line
    code = exited.exit_code
    return f"exit code {code}" if code is not None and 0 < code < _SHELL_SIGNALS else ""


def _may_be_of_program(last: LastWords) -> bool:
    return not last.status.is_fault or last.status.facts.may_be_of_program


def _last_words(exited: RankExited, catalogue: Catalogue | None) -> LastWords | None:
    """Return the last words of a process; None if its end left no time for any."""
    if exited.signal not in _CATCHABLE_DEATHS or not exited.stderr_tail:
        return None
    return read_last_words(exited.stderr_tail, catalogue)


def _kind_of(raised: RankRaised) -> EvidenceKind:
    if raised.is_in_collective:
        return "collective"
    if own := _KIND_BY_EXCEPTION.get(raised.exception_type):
        return own
    return "refusal" if raised.exception_type in _REFUSALS else "exception"


def _named(raised: RankRaised, catalogue: Catalogue | None) -> Status:
    """Return the status of an exception. The traceback counts if it is more specific."""
    if own := _KIND_BY_EXCEPTION.get(raised.exception_type):
        return named(_STATUS_BY_KIND[own])
    text = f"{raised.exception_type}: {raised.message}"
    status = classify_excerpt(text, catalogue=catalogue).status
    if (other := status.facts.in_rank_counts_as) is not None:
        return (catalogue or default_catalogue()).statuses[other]
    if not status.is_fault or status == _UNSPECIFIC:
        inner = classify_excerpt(raised.traceback, catalogue=catalogue).status
        return named(_UNSPECIFIC) if inner.facts.may_be_echo else inner
    return status


def _named_at_exit(exited: RankExited, status: Status, *, is_command: bool) -> Status | None:
    """Return the status that the last words of a process name; None if they explain nothing.

    A command ends when its connections fail, and so does any process that NCCL's watchdog aborts. A
    rank of Unicron's own survives failed connections. If it reports one and dies later, the report
    is about an older fault and explains no exit.
    """
    is_last_word = exited.signal == signal.SIGABRT or (is_command and exited.signal is None)
    explains = not status.facts.may_be_echo or status == _UNSPECIFIC
    return status if explains or (status.facts.is_network and is_last_word) else None


def _ending(observation: RankExited) -> str:
    if observation.is_out_of_memory:
        return "was killed by the kernel for memory"
    if observation.signal is not None:
        try:
            name = signal.Signals(observation.signal).name
        except ValueError:
            name = f"signal {observation.signal}"
        return f"was ended by {name}" + (" and dumped core" if observation.is_core_dumped else "")
    if observation.exit_code is None:
        return "has vanished; exit status unknown"
    return f"exited with {observation.exit_code}"


def has_broken_hardware(evidence: Sequence[Evidence], node: NodeId) -> bool:
    """Return whether a probe has found that hardware of the node is broken."""
    return any(
        each.kind == "finding" and each.status.facts.names_device and each.node == node
        for each in evidence
    )
