"""A saved run: a directory with the journal, and a file with the settings that it was written for.

The state also depends on the sizes of nodes, the tasks' throughput and the policy, and the journal
does not hold them. So a controller writes them into ``run.json`` before it begins. Any command that
can read the directory can rebuild the state, whether the controller lives or not. The programs of
the ranks are not in the file.
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
    """A saved run can't be read. The text is one line and names the file."""


def save_spec(spec: ClusterSpec, directory: Path) -> None:
    """Write the run file into the directory of the run, mode 0600. It is replaced atomically.

    Raises:
        OSError: The file can't be written.
    """
    path = directory / RUN_NAME
    draft = directory / f".{RUN_NAME}.{os.getpid()}"
    draft.touch(mode=0o600)
    draft.write_bytes(encode_spec(spec) + b"\n")
    draft.replace(path)
    _LOG.info("run file written: path=%s", path)


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
        raise RunError(f"{directory / JOURNAL_NAME}: the file is empty: this run has no events")
    return machine, replayed
