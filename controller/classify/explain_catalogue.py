"""Prints the catalogue of faults, and classifies labelled texts with it."""

import json
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, Final

from profiles.faults.catalogue import Catalogue
from profiles.faults.entry import Combination, Entry
from profiles.faults.excerpt import classify_excerpt
from profiles.faults.precedence import Precedence
from profiles.faults.status import Status


class UnknownNameError(Exception):
    """There is no such status or entry. The text suggests similar names."""


def explanation(name: str, catalogue: Catalogue) -> Iterator[str]:
    """Yield the lines that explain the status or entry ``name``.

    Raises:
        UnknownNameError: Neither a status nor an entry has that name.
    """
    if name in catalogue.statuses:
        return _status_lines(catalogue.statuses[name], catalogue)
    found = _by_id(catalogue).get(name)
    if found is None:
        known = [*catalogue.statuses, *_by_id(catalogue)]
        nearest = get_close_matches(name, known, n=3)
        mend = f"did you mean {', '.join(nearest)}?" if nearest else "see unicron classify --list"
        raise UnknownNameError(f"there is no status or entry {name!r}; {mend}")
    return _entry_lines(found, catalogue)


def listing(catalogue: Catalogue) -> Iterator[str]:
    """Yield every status with the names of its entries."""
    for status in catalogue.statuses.values():
        names = [entry.id for entry in _entries(catalogue) if entry.status == status]
        yield f"{status}  {status.severity}  {status.facts.meaning}"
        for name in names:
            yield f"    {name}"


def _status_lines(status: Status, catalogue: Catalogue) -> Iterator[str]:
    yield f"{status}  {status.severity}"
    yield f"  means  {status.facts.meaning}"
    yield f"  first  {status.facts.response}"
    yield "  entries"
    for entry in _entries(catalogue):
        if entry.status == status:
            yield f"    {entry.id}  ({entry.precedence}; {entry.source})"


def _entry_lines(entry: Entry | Combination, catalogue: Catalogue) -> Iterator[str]:
    status = entry.status or catalogue.statuses["none"]
    family = catalogue.families.get(entry.id)
    yield f"{entry.id}  {status}  {status.severity}"
    yield f"  weighs as  {entry.precedence}"
    yield f"  source     {entry.source}"
    yield f"  first      {entry.response or status.facts.response}"
    if family:
        yield f"  file       profiles/faults/data/entries/{family}.toml"
    if isinstance(entry, Combination):
        yield f"  needs      {' and '.join(entry.needs)}"
        return
    if entry.precedence is Precedence.RELIEF:
        yield f"  takes back {', '.join(entry.relieves)} {entry.direction} it, {entry.reach} lines"
    for pattern in entry.patterns:
        yield f"  pattern    {pattern}"
    for pattern in entry.unless:
        yield f"  unless     {pattern}"


def _entries(catalogue: Catalogue) -> list[Entry | Combination]:
    return [*catalogue.entries.values(), *catalogue.xids.entries, *catalogue.combinations]


def _by_id(catalogue: Catalogue) -> dict[str, Entry | Combination]:
    return {entry.id: entry for entry in _entries(catalogue)}


CHANNELS: Final = ("stderr", "kernel", "agent")
"""The sources of excerpts. The verdict does not depend on the source, since real logs are mixed."""
_KEYS: Final = ("id", "channel", "text")


class SpecimenError(Exception):
    """A line is not an excerpt. The text says why, without file and line."""


def classify_specimen(line: bytes) -> dict[str, Any]:
    """Return the verdict on the excerpt in ``line``.

    Unknown keys are ignored, since labelled excerpts have more keys.

    Raises:
        SpecimenError: The line is not JSON, lacks a key, or names an unknown channel.
    """
    specimen = _parsed(line)
    channel = specimen["channel"]
    if channel not in CHANNELS:
        raise SpecimenError(f"channel {channel!r}: must be one of {', '.join(CHANNELS)}")
    if not isinstance(specimen["text"], str):
        raise SpecimenError("text: must be a string")
    verdict = classify_excerpt(specimen["text"])
    return {
        "id": specimen["id"],
        "status": str(verdict.status),
        "severity": verdict.severity.value,
        "evidence": verdict.evidence,
        "reason": verdict.reason,
    }


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        specimen = json.loads(line)
    except UnicodeDecodeError as error:
        raise SpecimenError(f"not UTF-8 (byte {error.start + 1})") from error
    except (ValueError, RecursionError) as error:
        raise SpecimenError(f"not JSON: {error}") from error
    if not isinstance(specimen, dict):
        raise SpecimenError("must be a JSON object with id, channel and text")
    for key in _KEYS:
        if key not in specimen:
            raise SpecimenError(f"{key!r} is missing")
    return specimen
