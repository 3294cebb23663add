"""A run as it is saved: a directory with the journal, and beside it what the journal was written for.

The journal alone does not tell the sizes of nodes, the tasks' throughput or the policy, on which the state depends
as well. So a controller writes them into ``run.json`` before it begins, and whoever has the directory can rebuild the
state: also while the controller lives, and when it is dead. The programs that ranks run are not in it.
"""

import logging
import os
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from controller.core.cluster_spec import ClusterSpec
from controller.core.machine import Machine
from controller.store.journal import JournalError, read_journal
from controller.store.replay import ReplayedRun, replay

_LOG: Final = logging.getLogger(__name__)

JOURNAL_NAME: Final = "journal.jsonl"
RUN_NAME: Final = "run.json"
_SPEC: Final = TypeAdapter(ClusterSpec)


class RunError(Exception):
    """A saved run can't be read. The text is one line and names the place."""


def save_spec(spec: ClusterSpec, directory: Path) -> None:
    """Write what a run is of into its directory, mode 0600; what was there is replaced as a whole.

    Raises:
        OSError: It can't be written.
    """
    path = directory / RUN_NAME
    draft = directory / f".{RUN_NAME}.{os.getpid()}"
    draft.touch(mode=0o600)
    draft.write_bytes(encode_spec(spec) + b"\n")
    draft.replace(path)
    _LOG.info("run file written: path=%s", path)


def encode_spec(spec: ClusterSpec) -> bytes:
    """Return a spec as JSON."""
    return _SPEC.dump_json(spec)


def decode_spec(text: bytes, place: str) -> ClusterSpec:
    """Return the spec that a JSON text stands for.

    Raises:
        RunError: It is none, or one of another version.
    """
    try:
        return _SPEC.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise RunError(f"{place}: not a run of this version: {where}: {first['msg']}") from error


def read_run(directory: Path) -> tuple[Machine, ReplayedRun]:
    """Return the machine of a saved run as of its newest event, and what else it has left.

    Nothing is written, so a controller may be at work there meanwhile.

    Raises:
        RunError: No run is saved there, its journal is damaged, or it is one of another version.
    """
    if not directory.is_dir():
        raise RunError(f"{directory}: not a directory; name that of a controller's journal")
    try:
        text = (directory / RUN_NAME).read_bytes()
        events = read_journal(directory / JOURNAL_NAME)
        machine = decode_spec(text, str(directory / RUN_NAME)).machine()
        replayed = replay(machine, events)
    except FileNotFoundError as error:
        missing = Path(str(error.filename)).name
        raise RunError(f"{directory}: no run is saved there: it has no {missing}") from error
    except OSError as error:
        raise RunError(f"{error.filename}: {(error.strerror or 'unreadable').lower()}") from error
    except JournalError as error:
        is_placed = str(error).startswith(str(directory))
        place = "" if is_placed else f"{directory / JOURNAL_NAME}: "
        raise RunError(f"{place}{error}") from error
    except (ValueError, KeyError) as error:
        raise RunError(f"{directory / RUN_NAME}: {error}") from error
    if replayed.started is None:
        raise RunError(f"{directory / JOURNAL_NAME}: is empty: nothing has happened in this run")
    return machine, replayed
