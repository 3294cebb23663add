"""How findings are printed: for people, and as one JSON object."""

import json
from collections.abc import Callable
from typing import Any, Protocol

from profiles.faults.stream import Finding

_MAX_EVIDENCE = 200

Write = Callable[[str], object]


class FindingsReport(Protocol):
    """Takes findings as they come."""

    def begin(self) -> None:
        """Start the report."""

    def add(self, finding: Finding) -> None:
        """Report one finding."""

    def end(self, num_lines: int) -> None:
        """Finish the report on a log of ``num_lines`` lines."""


class TextReport:
    """Findings for people."""

    def __init__(self, write: Write, name: str) -> None:
        self._write = write
        self._name = name
        self._num_findings = 0

    def begin(self) -> None:
        """Print nothing: there may be nothing to say."""

    def add(self, finding: Finding) -> None:
        """Print one finding and an empty line."""
        self._num_findings += 1
        verdict = finding.verdict
        evidence = printable(verdict.evidence)
        self._write(
            f"{_lines_of(finding)}  {verdict.severity}  {verdict.status}\n"
            f"  evidence  {verdict.line}: {evidence}\n"
            f"  reason    {verdict.reason}\n"
            f"  first     {verdict.response}\n\n"
        )

    def end(self, num_lines: int) -> None:
        """Print the count."""
        if num_lines == 0:
            self._write(f"{self._name} is empty: no findings\n")
            return
        found = _counted(self._num_findings, "finding") if self._num_findings else "no findings"
        self._write(f"{found} in {_counted(num_lines, 'line')} of {self._name}\n")


class JsonReport:
    """Findings as one JSON object. It is written as they come, so that memory stays bounded."""

    def __init__(self, write: Write, name: str) -> None:
        self._write = write
        self._name = name
        self._num_findings = 0

    def begin(self) -> None:
        """Open the object."""
        self._write(f'{{"file": {json.dumps(self._name)}, "findings": [')

    def add(self, finding: Finding) -> None:
        """Write one finding."""
        self._write((", " if self._num_findings else "") + json.dumps(_as_json(finding)))
        self._num_findings += 1

    def end(self, num_lines: int) -> None:
        """Close the object."""
        self._write(f'], "num_lines": {num_lines}}}\n')


def printable(text: str) -> str:
    """Return ``text`` on one line, safe for any terminal, at most a few lines long."""
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


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
