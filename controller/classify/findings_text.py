"""Prints the findings of a file, and a summary of many: text for people, or JSON."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from typing_extensions import override

from profiles.faults.status import Severity
from profiles.faults.stream import Finding
from profiles.records import on_one_line

_MAX_EVIDENCE = 200

Write = Callable[[str], object]


class FindingsReport(Protocol):
    """Prints findings one by one."""

    def begin(self) -> None:
        """Start the report."""

    def add(self, finding: Finding) -> None:
        """Print one finding."""

    def end(self, num_lines: int, mistake: str, abort_line: int | None = None) -> None:
        """Finish the report.

        Args:
            num_lines: Lines that were read.
            mistake: Why the log was not read to its end; empty if it was.
            abort_line: Number of the first line with an abort after the run had ended.
        """


class TextReport(FindingsReport):
    """Prints findings for people: one paragraph each, and the count at the end."""

    def __init__(self, write: Write, name: str) -> None:
        self._write = write
        self._name = on_one_line(name)
        self._num_findings = 0

    @override
    def begin(self) -> None:
        pass  # the first finding needs no heading

    @override
    def add(self, finding: Finding) -> None:
        self._num_findings += 1
        verdict = finding.verdict
        evidence = printable(verdict.evidence)
        self._write(
            f"{_lines_of(finding)}  {verdict.severity}  {verdict.status}\n"
            f"  evidence  {verdict.line}: {evidence}\n"
            f"  reason    {verdict.reason}\n"
            f"  first     {verdict.response}\n\n"
        )

    @override
    def end(self, num_lines: int, mistake: str, abort_line: int | None = None) -> None:
        found = counted(self._num_findings, "finding") if self._num_findings else "no findings"
        lines = counted(num_lines, "line")
        if mistake and num_lines:
            self._write(f"{found} in {lines} of {self._name}; the rest was NOT READ\n")
        elif mistake:
            pass  # the error says all
        elif num_lines == 0:
            self._write(f"{self._name} is empty: no findings\n")
        else:
            note = f"; {abort_note(abort_line)}" if abort_line else ""
            self._write(f"{found} in {lines} of {self._name}{note}\n")


class HeadedReport(FindingsReport):
    """Prints the findings of one file of many below the file's name. A summary ends all of it."""

    def __init__(self, write: Write, name: str) -> None:
        self._write = write
        self._name = on_one_line(name)
        self._text = TextReport(write, name)
        self._has_findings = False

    @override
    def begin(self) -> None:
        pass  # a file without findings has only its row in the summary

    @override
    def add(self, finding: Finding) -> None:
        if not self._has_findings:
            self._has_findings = True
            self._write(f"==> {self._name} <==\n")
        self._text.add(finding)

    @override
    def end(self, num_lines: int, mistake: str, abort_line: int | None = None) -> None:
        pass  # the summary has the counts


class JsonReport(FindingsReport):
    """Prints one JSON object, piece by piece, so that memory stays bounded."""

    def __init__(self, write: Write, name: str) -> None:
        self._write = write
        self._name = name
        self._num_findings = 0

    @override
    def begin(self) -> None:
        self._write(f'{{"file": {json.dumps(self._name)}, "findings": [')

    @override
    def add(self, finding: Finding) -> None:
        self._write((", " if self._num_findings else "") + json.dumps(_as_json(finding)))
        self._num_findings += 1

    @override
    def end(self, num_lines: int, mistake: str, abort_line: int | None = None) -> None:
        error = f', "error": {json.dumps(mistake)}' if mistake else ""
        abort = f', "abort_after_end_line": {abort_line}' if abort_line else ""
        self._write(f'], "num_lines": {num_lines}{abort}{error}}}\n')


def abort_note(line: int) -> str:
    """Return the note on an abort after the run had ended."""
    return f"an abort in line {line:,}, after the run had ended, is no fault"


def printable(text: str) -> str:
    """Return ``text`` without control characters, cut to a limit, on one line."""
    safe = "".join(character if character.isprintable() else " " for character in text).strip()
    return safe if len(safe) <= _MAX_EVIDENCE else f"{safe[:_MAX_EVIDENCE]}..."


def _as_json(finding: Finding) -> dict[str, Any]:
    verdict = finding.verdict
    return {
        "line": finding.first_line,
        "num_lines": finding.last_line - finding.first_line + 1,
        "status": str(verdict.status),
        "severity": verdict.severity.value,
        "entry": verdict.entry_id,
        "evidence_line": verdict.line,
        "evidence": verdict.evidence,
        "reason": verdict.reason,
        "response": verdict.response,
    }


def _lines_of(finding: Finding) -> str:
    if finding.first_line == finding.last_line:
        return f"line {finding.first_line}"
    return f"lines {finding.first_line}-{finding.last_line}"


def counted(number: int, noun: str) -> str:
    """Return the number and the noun, in the plural unless it is one."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


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
