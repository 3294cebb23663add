"""Prints how accurate the catalogue of faults is: on labelled excerpts, and on whole logs.

    python tools/classify_accuracy.py [EXCERPTS.jsonl ...] [--healthy LOG ...] [--failed LOG ...]

Without arguments the texts and logs of the tests are read. For each file of excerpts it prints the
shares of right statuses and severities, the harmless texts that are flagged, the faults that are
missed, and the wrong ids of each status. A healthy log should have no findings, a failed one one.
"""

import argparse
import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

from profiles.faults.excerpt import classify_excerpt
from profiles.faults.status_table import default_statuses
from profiles.faults.stream import FindingStream

_TESTS: Final = Path(__file__).parents[1] / "tests" / "unit" / "faults"


def main() -> None:
    """Run the command line."""
    logs = _TESTS / "mlperf_logs"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("excerpts", nargs="*", type=Path)
    parser.add_argument("--healthy", nargs="*", type=Path, default=[])
    parser.add_argument("--failed", nargs="*", type=Path, default=[])
    args = parser.parse_args()
    if not (args.excerpts or args.healthy or args.failed):
        args.excerpts = [_TESTS / "threads.jsonl", _TESTS / "specimens.jsonl"]
        args.healthy = sorted((logs / "healthy").glob("*.gz"))
        args.failed = sorted((logs / "failed").glob("*.gz"))
    for file in args.excerpts:
        _print_excerpts(file)
    for kind, files in (("healthy", args.healthy), ("failed", args.failed)):
        if files:
            _print_logs(kind, files)


def _print_excerpts(file: Path) -> None:
    rows: list[dict[str, Any]] = [json.loads(line) for line in file.read_text().splitlines()]
    statuses = default_statuses()
    wrong: dict[str, list[str]] = defaultdict(list)
    num_severity, num_flagged, num_missed = 0, 0, 0
    harmless = sum(row["status"] == "none" for row in rows)
    for row in rows:
        status, expected = classify_excerpt(row["text"]).status, statuses[row["status"]]
        num_severity += status.severity is expected.severity
        num_flagged += status.is_fault and not expected.is_fault
        num_missed += expected.is_fault and not status.is_fault
        if status != expected:
            wrong[row["status"]].append(f"{row['id']} ({status})")
    num_wrong = sum(map(len, wrong.values()))
    print(
        f"{file.name}: {len(rows)} texts; status {1 - num_wrong / len(rows):.3f},"
        f" severity {num_severity / len(rows):.3f}; {num_flagged} of {harmless} harmless flagged;"
        f" {num_missed} of {len(rows) - harmless} faults missed"
    )
    for status_name, ids in sorted(wrong.items()):
        print(f"  {status_name}: {', '.join(ids)}")


def _print_logs(kind: str, files: list[Path]) -> None:
    num_with = 0
    for file in files:
        content = file.read_bytes()
        stream = FindingStream()
        found = stream.feed(gzip.decompress(content) if file.suffix == ".gz" else content)
        found += stream.close()
        num_with += bool(found)
        for finding in found:
            verdict = finding.verdict
            print(f"  {file.name}:{verdict.line} {verdict.status} {verdict.severity} ({kind})")
    print(f"{kind}: findings in {num_with} of {len(files)} logs")


if __name__ == "__main__":
    main()
