"""The summary of ``unicron classify`` for many files: one row for each, and their total."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from controller.classify.findings_text import Write, abort_note, counted
from profiles.faults.status import Severity
from profiles.faults.stream import Finding
from profiles.records import on_one_line

_FAULTY: Final = (Severity.SEV1, Severity.SEV2, Severity.SEV3)
_ROW: Final = "{:>12}  {:>8}  {:>6}  {:>6}  {:>6}  {}"


@dataclass(slots=True)
class FileSummary:
    """What was found in a file.

    Attributes:
        name: The file.
        num_lines: Lines that were read.
        severities: Findings by severity.
        worst: The gravest finding, the first of equals.
        mistake: Why the file could not be read to its end; empty if it was.
        abort_line: Number of the first line with an abort after the run had ended.
        is_ended: Whether Ctrl-C ended the reading.
    """

    name: str
    num_lines: int = 0
    severities: Counter[Severity] = field(default_factory=Counter)
    worst: Finding | None = None
    mistake: str = ""
    abort_line: int | None = None
    is_ended: bool = False

    def add(self, finding: Finding) -> None:
        """Count ``finding``."""
        self.severities[finding.verdict.severity] += 1
        if self.worst is None or finding.verdict.severity < self.worst.verdict.severity:
            self.worst = finding


def write_summaries(summaries: Sequence[FileSummary], num_files: int, write: Write) -> None:
    """Write the rows of all files and their total.

    Args:
        summaries: The files that were read, or tried.
        num_files: How many there are to read; more than ``summaries`` after Ctrl-C.
        write: Gets the text.
    """
    write(_ROW.format("lines", "findings", *(str(each) for each in _FAULTY), "file") + "\n")
    total: Counter[Severity] = Counter()
    for summary in summaries:
        total += summary.severities
        name = on_one_line(summary.name)
        write(_row(summary.num_lines, summary.severities, f"{name}{_note(summary)}"))
    write(_row(sum(each.num_lines for each in summaries), total, "total"))
    num_unread = sum(bool(each.mistake) for each in summaries)
    num_faulty = sum(bool(each.severities) for each in summaries)
    write(
        f"{counted(total.total(), 'finding')} in {num_faulty:,} of {counted(num_files, 'file')}"
        + (f"; {num_unread:,} could not be read to the end" if num_unread else "")
        + "\n"
    )


def _row(num_lines: int, severities: Counter[Severity], text: str) -> str:
    counts = (severities[each] or "" for each in _FAULTY)
    return _ROW.format(f"{num_lines:,}", severities.total() or "", *counts, text) + "\n"


def _note(summary: FileSummary) -> str:
    notes = []
    if summary.worst is not None:
        notes.append(f"{summary.worst.verdict.status} in line {summary.worst.verdict.line:,}")
    if summary.abort_line:
        notes.append(abort_note(summary.abort_line))
    if summary.mistake:
        notes.append("NOT READ to the end" if summary.num_lines else "NOT READ")
    elif summary.is_ended:
        notes.append("interrupted")
    elif not summary.num_lines:
        notes.append("empty")
    return f"  ({'; '.join(notes)})" if notes else ""
