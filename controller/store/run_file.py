"""A saved run: a directory with the journal of a controller.

The journal has all that the state depends on, nodes, tasks and policy included. Any command that
can read the directory can rebuild the state, whether the controller lives or not.
"""

import itertools
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from controller.core.cluster_spec import ClusterSpec
from controller.core.machine import Machine
from controller.store.history import HISTORY_NAME
from controller.store.journal import JournalError
from controller.store.replay import ReplayedRun
from controller.store.segments import segments_directory
from controller.store.snapshots import restore

JOURNAL_NAME: Final = "journal.jsonl"
_SPEC: Final = TypeAdapter(ClusterSpec)


class RunError(Exception):
    """A saved run can't be read. The text is one line and names the file."""


def set_run_aside(directory: Path) -> Path | None:
    """Rename the journal of a run that is over, so that the next controller begins a new run.

    Its closed segments and its history keep with it.

    Returns:
        The new path; None if there is no journal.

    Raises:
        OSError: It can't be renamed.
    """
    path = directory / JOURNAL_NAME
    if not path.exists():
        return None
    numbers = itertools.count(1)
    aside = next(
        each for number in numbers if not (each := path.with_suffix(f".{number}.jsonl")).exists()
    )
    # The journal last: while it is there, the run is not set aside.
    if (closed := segments_directory(path)).is_dir():
        closed.rename(segments_directory(aside))
    for file in directory.glob(f"{HISTORY_NAME}*"):
        file.rename(directory / file.name.replace("history", f"history{aside.stem[7:]}", 1))
    return path.rename(aside)


def undo_setting_aside(directory: Path) -> None:
    """Undo ``set_run_aside`` if it was interrupted: the journal is whole again. Hold the lock.

    Raises:
        OSError: It can't be undone.
    """
    path = directory / JOURNAL_NAME
    closed = segments_directory(path)
    if not path.exists() or closed.exists():
        return
    for orphan in directory.glob(f"{path.stem}.*.d"):
        if not orphan.with_name(f"{orphan.stem}.jsonl").exists():
            orphan.rename(closed)
            return


def encode_spec(spec: ClusterSpec) -> bytes:
    """Return a cluster spec as JSON."""
    return _SPEC.dump_json(spec)


def decode_spec(text: bytes, place: str) -> ClusterSpec:
    """Return the cluster spec in a JSON text.

    Raises:
        RunError: The text is no spec, or a spec of another version.
    """
    try:
        return _SPEC.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise RunError(f"{place}: not a run of this version: {where}: {first['msg']}") from error


def read_run(directory: Path) -> tuple[Machine, ReplayedRun]:
    """Return the machine of a saved run after its newest event, and the replayed run.

    Nothing is written, so a controller may run in the directory meanwhile.

    Raises:
        RunError: No run is saved there, its journal is damaged, or it is of another version.
    """
    if not directory.is_dir():
        raise RunError(
            f"{directory}: not a directory; name the directory of a controller's journal"
        )
    try:
        machine, replayed = restore(directory / JOURNAL_NAME)
    except FileNotFoundError as error:
        missing = Path(str(error.filename)).name
        raise RunError(f"{directory}: no run is saved there: it has no {missing}") from error
    except OSError as error:
        raise RunError(f"{error.filename}: {(error.strerror or 'unreadable').lower()}") from error
    except JournalError as error:
        is_placed = str(error).startswith(str(directory))
        place = "" if is_placed else f"{directory / JOURNAL_NAME}: "
        raise RunError(f"{place}{error}") from error
    if replayed.started is None:
        raise RunError(f"{directory / JOURNAL_NAME}: the file is empty: this run has no events")
    return machine, replayed
