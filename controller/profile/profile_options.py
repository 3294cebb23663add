"""Options that the commands of ``unicron profile`` share, and their checks."""

from pathlib import Path
from typing import Final

from controller.arguments import count_of
from profiles.records import RecordError

_MAX_WORKERS: Final = 10**6


def count(option: str, text: str, limit: int) -> int:
    """Return a whole number from 1 to ``limit``.

    Raises:
        RecordError: ``text`` is not such a number.
    """
    found = count_of(text)
    if found is None or not 1 <= found <= limit:
        raise RecordError(f"{option}: {text!r:.80} must be a whole number from 1 to {limit}")
    return found


def sizes(option: str, text: str) -> tuple[int, ...]:
    """Return numbers of workers, separated by commas, ascending.

    Raises:
        RecordError: A part is not a number of workers, or is given twice.
    """
    found = [count(option, word, _MAX_WORKERS) for word in text.split(",")]
    for place, size in enumerate(found):
        if size in found[:place]:
            raise RecordError(f"{option} {text:.80}: {size} is given twice; keep one")
    return tuple(sorted(found))


def check_output(path: Path | None) -> None:
    """Refuse an output file that exists or can't be written, before any work begins.

    Raises:
        RecordError: The file exists, its directory does not, or its name does not end in .json.
    """
    if path is None:
        return
    if path.exists():
        raise RecordError(f"--output {path}: exists already; name another file, or merge the two")
    if not path.parent.is_dir():
        raise RecordError(f"--output {path}: there is no directory {path.parent}; create it first")
    if path.suffix != ".json":
        raise RecordError(f"--output {path}: tables are JSON; give a name that ends in .json")
