"""The calls that made the rendezvous tables, kept beside the journal: the next controller has the same tables.

``DIRECTORY/TASK.GENERATION.jsonl`` holds each call that may change the table, a ``StoreCall`` a line, written before it is
answered. Tables are a function of their calls, so whoever carries these out in their order has them again, with the
answers that repeated calls get. Ranks meet more often than when their generation forms (for its in-memory checkpoints, and
before they leave), so the file stays until the generation has ended. A task has one at most.

Lines survive the death of the process, like those of the journal, and are not synced to the disk. What can't be written or
read is told, and no more: ranks that are meeting while the controller is replaced hang then, and are regrouped as in
any other hang, or start that takes too long.
"""

import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from controller.store.line_files import open_lines, read_lines
from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.rendezvous import StoreCall, StoreOperation

_LOG: Final = logging.getLogger(__name__)
_CHANGING: Final = frozenset[StoreOperation]({"set", "add", "compare_set", "append", "delete_key"})
_TASK: Final = re.compile(r"[\w@-]{1,64}", re.ASCII)
"""Names that are safe in a path. Others are those of no task, whatever a node says."""
_NAME: Final = re.compile(rf"(?P<task>{_TASK.pattern})\.(?P<generation>\d+)\.jsonl", re.ASCII)


@dataclass(slots=True)
class _Kept:
    """What is kept of a task: its newest generation."""

    generation: Generation
    path: Path
    file: BufferedWriter | None = None
    is_given_up: bool = False

    def close(self) -> None:
        file, self.file = self.file, None
        if file is not None:
            with contextlib.suppress(OSError):  # of what could not be written before
                file.close()


class RendezvousFiles:
    """The files of a run's tasks. No method raises: what goes wrong is told.

    Args:
        directory: Where they are; made when there is something to write.
        note: Takes a line for operators about a task.
    """

    def __init__(self, directory: Path, note: Callable[[str, str], None]) -> None:
        self._directory = directory
        self._note = note
        self._kept: dict[TaskId, _Kept] = {}
        self._ended: dict[TaskId, Generation] = {}

    def clear(self) -> None:
        """Remove what another run has left."""
        for kept in self._found().values():
            self._remove(kept.path)

    def read(self) -> Iterator[StoreCall]:
        """Yield what a former controller has kept, the calls of each table in their order."""
        self._kept = self._found()
        for task, kept in list(self._kept.items()):
            try:
                calls = [StoreCall.model_validate_json(line) for line in read_lines(kept.path)]
            except (OSError, ValidationError) as error:
                reason = error.strerror if isinstance(error, OSError) else "a line of it is damaged"
                self._tell(kept.path, reason or "it can't be read")
                self._remove(kept.path)
                del self._kept[task]
            else:
                _LOG.info("rendezvous calls read: path=%s calls=%d", kept.path, len(calls))
                yield from calls

    def keep(self, call: StoreCall) -> None:
        """Write a call that is about to be carried out, if it may change its table."""
        if call.operation not in _CHANGING or call.generation <= self._ended.get(call.task, -1):
            return
        if not _TASK.fullmatch(call.task):
            return
        kept = self._kept.get(call.task)
        if kept is None or kept.generation < call.generation:
            self.drop(call.task, Generation(call.generation - 1))
            path = self._directory / f"{call.task}.{call.generation}.jsonl"
            kept = self._kept[call.task] = _Kept(call.generation, path)
        if kept.generation > call.generation or kept.is_given_up:
            return
        try:
            if kept.file is None:
                self._directory.mkdir(mode=0o700, exist_ok=True)
                kept.file = open_lines(kept.path)
                _LOG.info(
                    "rendezvous file opened: task=%s generation=%d path=%s",
                    call.task, call.generation, kept.path,
                )  # fmt: skip
            kept.file.write(call.model_dump_json().encode() + b"\n")
            kept.file.flush()
        except OSError as error:
            # Half of its calls would make another table.
            kept.is_given_up = True
            kept.close()
            self._tell(kept.path, error.strerror or "it can't be written")
            self._remove(kept.path)

    def drop(self, task: TaskId, generation: Generation) -> None:
        """Remove what is kept of ``generation`` and older ones: they have ended."""
        self._ended[task] = max(generation, self._ended.get(task, generation))
        kept = self._kept.get(task)
        if kept is not None and kept.generation <= generation:
            del self._kept[task]
            kept.close()
            self._remove(kept.path)

    def close(self) -> None:
        """Close the files; they stay."""
        for kept in self._kept.values():
            kept.close()

    def _found(self) -> dict[TaskId, _Kept]:
        """Return the files that are there, the newest of each task; older ones are removed."""
        found: dict[TaskId, _Kept] = {}
        try:
            names = [path.name for path in self._directory.iterdir()]
        except FileNotFoundError:
            return found
        except OSError as error:
            self._tell(self._directory, error.strerror or "it can't be read")
            return found
        matches = [match for name in names if (match := _NAME.fullmatch(name))]
        for match in sorted(matches, key=lambda one: int(one["generation"])):
            task = TaskId(match["task"])
            if task in found:
                self._remove(found[task].path)
            generation = Generation(int(match["generation"]))
            found[task] = _Kept(generation, self._directory / match[0])
        return found

    def _remove(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
            _LOG.debug("rendezvous file removed: path=%s", path)
        except NotADirectoryError:
            return  # so it is not there either
        except OSError as error:
            self._tell(path, error.strerror or "it can't be removed")

    def _tell(self, path: Path, reason: str) -> None:
        _LOG.info("rendezvous file is given up: path=%s reason=%s", path, reason)
        self._note(
            path.name.partition(".")[0],
            f"{path}: {reason}; ranks that meet while the controller is replaced may hang until they are"
            " regrouped",
        )
