"""The rendezvous calls on disk, from which the next controller restores the same tables.

``DIRECTORY/TASK.GENERATION.jsonl`` holds each call that may change a table, one ``StoreCall`` a
line. A call is written before it is answered. Tables are a function of their calls: carried out
again in their order, the calls restore the tables and the answers to repeated calls. Ranks also
call for their in-memory checkpoints and before they exit, so a file stays until its generation has
ended. A task has at most one file.

Lines survive a kill of the process. Unlike those of the journal they are not synced to the disk.
If a file can't be written or read, operators get a note, and the controller continues without it.
Ranks that then meet while the controller is replaced hang, and are regrouped as after any other
hang.
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
from typing_extensions import override

from controller.ports import CallKeeper
from controller.store.line_files import open_lines, read_lines
from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.rendezvous import StoreCall, StoreOperation

_LOG: Final = logging.getLogger(__name__)
_CHANGING: Final = frozenset[StoreOperation]({"set", "add", "compare_set", "append", "delete_key"})
_TASK: Final = re.compile(r"[\w@-]{1,64}", re.ASCII)
"""Names that are safe in a path. Tasks have no other names, but a node may send one."""
_NAME: Final = re.compile(rf"(?P<task>{_TASK.pattern})\.(?P<generation>\d+)\.jsonl", re.ASCII)


@dataclass(slots=True)
class _Kept:
    """The file of a task's newest generation."""

    generation: Generation
    path: Path
    file: BufferedWriter | None = None
    is_given_up: bool = False

    def close(self) -> None:
        file, self.file = self.file, None
        if file is not None:
            with contextlib.suppress(OSError):  # of lines that could not be written before
                file.close()


class RendezvousFiles(CallKeeper):
    """The files of a run's tasks. No method raises: operators get a note about a failure.

    Args:
        directory: Their directory, made before the first write.
        note: Called with a task and a line for operators.
    """

    def __init__(self, directory: Path, note: Callable[[str, str], None]) -> None:
        self._directory = directory
        self._note = note
        self._kept: dict[TaskId, _Kept] = {}
        self._ended: dict[TaskId, Generation] = {}

    def clear(self) -> None:
        """Remove the files of another run."""
        for kept in self._found().values():
            self._remove(kept.path)

    @override
    def read(self) -> Iterator[StoreCall]:
        self._kept = self._found()
        for task, kept in list(self._kept.items()):
            try:
                calls = [StoreCall.model_validate_json(line) for line in read_lines(kept.path)]
            except (OSError, ValidationError) as error:
                reason = error.strerror if isinstance(error, OSError) else "a line of it is damaged"
                self._give_up(kept.path, reason or "it can't be read")
                self._remove(kept.path)
                del self._kept[task]
            else:
                _LOG.info("rendezvous calls read: path=%s calls=%d", kept.path, len(calls))
                yield from calls

    @override
    def keep(self, call: StoreCall) -> None:
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
            # Without this call the file would restore another table.
            kept.is_given_up = True
            kept.close()
            self._give_up(kept.path, error.strerror or "it can't be written")
            self._remove(kept.path)

    @override
    def drop(self, task: TaskId, generation: Generation) -> None:
        self._ended[task] = max(generation, self._ended.get(task, generation))
        kept = self._kept.get(task)
        if kept is not None and kept.generation <= generation:
            del self._kept[task]
            kept.close()
            self._remove(kept.path)

    def close(self) -> None:
        """Close the files. They stay on the disk."""
        for kept in self._kept.values():
            kept.close()

    def _found(self) -> dict[TaskId, _Kept]:
        """Return the newest file of each task, and remove older files."""
        found: dict[TaskId, _Kept] = {}
        try:
            names = [path.name for path in self._directory.iterdir()]
        except FileNotFoundError:
            return found
        except OSError as error:
            self._give_up(self._directory, error.strerror or "it can't be read")
            return found
        matches = [match for name in names if (match := _NAME.fullmatch(name))]
        for match in sorted(matches, key=_generation_of):
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
            return  # so the file is not there either
        except OSError as error:
            self._give_up(path, error.strerror or "it can't be removed")

    def _give_up(self, path: Path, reason: str) -> None:
        _LOG.info("rendezvous file is given up: path=%s reason=%s", path, reason)
        self._note(
            path.name.partition(".")[0],
            f"{path}: {reason}; if the controller is replaced now, ranks that meet at that time may hang"
            " until they are regrouped",
        )


def _generation_of(match: re.Match[str]) -> int:
    return int(match["generation"])
