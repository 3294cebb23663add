"""Classifies the excerpts of a JSONL file: one verdict per line, in the same order."""

import json
from typing import Any, Final

from profiles.faults.excerpt import classify_excerpt

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
