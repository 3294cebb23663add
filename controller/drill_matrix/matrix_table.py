"""Prints the matrix and the list of drills: as text, as JSON, and as a section of a page."""

import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median

from pydantic import JsonValue

from controller.drill_matrix.row import MatrixRow
from profiles.drills.drill import Drill

BEGIN = "<!-- drills: made by unicron drill matrix --write-docs, do not edit -->"
END = "<!-- drills: end -->"


_NEEDED = {
    "call": "a training loop that Unicron runs, or a command task that attaches",
    "loop": "a training loop that Unicron runs, not a command task",
}


class PageError(Exception):
    """The page can't be read, or lacks the markers around the table."""


def drill_json(drill: Drill) -> dict[str, JsonValue]:
    """Return a drill in the format of ``unicron drill list --json``."""
    expected = drill.expected
    return {
        "kind": drill.kind,
        "title": drill.title,
        "breaks": drill.breaks,
        "target": drill.target,
        "needs": drill.needs if drill.target == "rank" else None,
        "needs_namespaces": drill.needs_namespaces,
        "expected": {
            "status": expected.status,
            "severity": expected.severity,
            "method": expected.method,
            "action": expected.action,
            "culprit": expected.culprit,
            "ending": expected.ending,
            "says": expected.says or None,
            "found_by": expected.found_by or None,
            "sentence": expected.sentence,
        },
    }


def drills_text(drills: Sequence[Drill]) -> str:
    """Return the text of ``unicron drill list``."""
    parts = []
    for drill in drills:
        expected = drill.expected
        method = f"; detected by {expected.method}" if expected.method else ""
        says = f"; the reason says {expected.says!r}" if expected.says else ""
        says += f"; the {expected.found_by} shows it too" if expected.found_by else ""
        lines = [
            f"{drill.kind}",
            f"    {drill.breaks}",
            f"    expected: {expected.sentence}{method}; culprit: {_expected_place(drill)}{says}",
        ]
        if drill.target == "rank" and drill.needs in _NEEDED:
            lines.append(f"    needs {_NEEDED[drill.needs]}")
        if drill.needs_namespaces:
            lines.append("    needs nodes in network namespaces (root and iproute2)")
        parts.append("\n".join(lines))
    return "\n".join(parts) + "\n"


def _expected_place(drill: Drill) -> str:
    return {"rank": "the rank", "node": "the node", "task": "the task", "none": "none"}[
        drill.expected.culprit
    ]


def report(
    rows: Sequence[MatrixRow], not_run: Mapping[str, str], duration_s: float
) -> dict[str, JsonValue]:
    """Return the output of ``unicron drill matrix --json``; ``not_run`` has reasons by kind."""
    return {
        "machine": {
            "cores": len(os.sched_getaffinity(0)),
            "version": version("unicron"),
            "torch": version("torch"),
            "python": platform.python_version(),
        },
        "duration_s": round(duration_s, 1),
        "num_rows": len(rows),
        "num_agreeing": sum(row.agrees for row in rows),
        "rows": [row.as_json() for row in rows],
        "not_run": [{"kind": kind, "reason": reason} for kind, reason in not_run.items()],
    }


def summary(rows: Sequence[MatrixRow], not_run: Mapping[str, str], duration_s: float) -> str:
    """Return the text of ``unicron drill matrix``: the table, and all disagreements."""
    lines = [
        (
            f"{'':<10}{'drill':<48}{'severity':<10}{'status':<29}{'method':<31}{'action':<13}"
            f"{'ending':<10}{'detected':>9}{'recovered':>11}"
        )
    ]
    for row in rows:
        observed = row.observed
        lines.append(
            f"{'agrees' if row.agrees else 'DISAGREES':<10}{row.drill.kind:<48}{observed.severity:<10}"
            f"{observed.status:<29}{observed.method or '-':<31}{observed.action:<13}{observed.ending:<10}"
            f"{_seconds(observed.detection_s):>9}{_seconds(observed.recovery_s):>11}"
        )
        lines += [f"{'':<12}{text}" for text in (*row.disagreements, *row.notes)]
    lines += [f"{'not run':<10}{kind}: {reason}" for kind, reason in not_run.items()]
    agreeing = sum(row.agrees for row in rows)
    lines.append(f"{agreeing} of {len(rows)} rows agree; {duration_s:.0f} s")
    return "\n".join(lines) + "\n"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def section(
    rows: Sequence[MatrixRow],
    drills: Sequence[Drill],
    not_run: Mapping[str, str],
    duration_s: float,
    date: str,
) -> str:
    """Return the table for a page: every drill, with its result if it was run."""
    row_by_kind = {row.drill.kind: row for row in rows}
    lines = [
        (
            "| drill | severity, status | method | action | culprit | ending | agrees | detected, s |"
            " recovered, s |"
        ),
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for drill in drills:
        expected, row = drill.expected, row_by_kind.get(drill.kind)
        agrees = "not run" if row is None else "yes" if row.agrees else "**no**"
        found = recovered = "-"
        if row is not None:
            found, recovered = _figure(row.observed.detection_s), _figure(row.observed.recovery_s)
        lines.append(
            f"| `{drill.kind}` | {expected.severity} {expected.status} | {expected.method or '-'} |"
            f" {expected.action} | {expected.culprit} | {expected.ending} | {agrees} | {found} |"
            f" {recovered} |"
        )
    differing = [
        f"- `{row.drill.kind}`: {'; '.join(row.disagreements)}." for row in rows if not row.agrees
    ]
    differing += [f"- `{kind}` was not run: {reason}." for kind, reason in not_run.items()]
    if differing:
        lines += ["", "Differences from the expected results:", "", *differing]
    if not rows:
        return "\n".join(lines)
    found_s = [row.observed.detection_s for row in rows if row.observed.detection_s is not None]
    middle = f"; median to detection {median(found_s):.2f} s" if found_s else ""
    lines += [
        "",
        (
            f"{date}: {sum(row.agrees for row in rows)} of {len(rows)} rows agree, {duration_s:.0f} s on"
            f" {len(os.sched_getaffinity(0))} cores, version {version('unicron')}{middle}."
        ),
    ]
    return "\n".join(lines)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def write_section(page: Path, text: str) -> None:
    """Put ``text`` between the markers of ``page``.

    Raises:
        PageError: The page can't be read, or lacks the markers.
    """
    try:
        before, found_begin, rest = page.read_text().partition(BEGIN)
    except (OSError, UnicodeDecodeError) as error:
        raise PageError(f"--write-docs {page}: {error}") from error
    _, found_end, after = rest.partition(END)
    if not found_begin or not found_end:
        raise PageError(f"--write-docs {page}: the lines {BEGIN!r} and {END!r} are missing")
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
