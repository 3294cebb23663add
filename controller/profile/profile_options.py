"""Options that commands on throughput share, and how they are checked."""

from pathlib import Path
from typing import Final

from controller.arguments import count_of
from profiles.records import RecordError

_MAX_WORKERS: Final = 10**6


def count(option: str, text: str, limit: int) -> int:
    """Return a whole number from 1 to ``limit``.

    Raises:
        RecordError: It is none.
    """
    found = count_of(text)
    if found is None or not 1 <= found <= limit:
        raise RecordError(f"{option}: {text!r:.80} must be a whole number from 1 to {limit}")
    return found


def sizes(option: str, text: str) -> tuple[int, ...]:
    """Return numbers of workers, separated by commas, ascending.

    Raises:
        RecordError: One is no number of workers, or is given twice.
    """
    found = [count(option, word, _MAX_WORKERS) for word in text.split(",")]
    for place, size in enumerate(found):
        if size in found[:place]:
            raise RecordError(f"{option} {text:.80}: {size} is given twice")
    return tuple(sorted(found))


def check_output(path: Path | None) -> None:
    """Refuse, before anything is begun, a file that can't be written, or that is there already.

    Raises:
        RecordError: It is there, has no directory, or is not named as what is written.
    """
    if path is None:
        return
    if path.exists():
        raise RecordError(f"--output {path}: is there already; name another, or merge the two")
    if not path.parent.is_dir():
        raise RecordError(f"--output {path}: there is no directory {path.parent}")
    if path.suffix != ".json":
        raise RecordError(f"--output {path}: tables are written as JSON; name it .json")
