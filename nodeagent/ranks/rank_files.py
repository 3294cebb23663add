"""The directory ``ranks/`` of a node's state directory: the files of all its ranks.

``nodeagent.process_tools.process_files`` has the names and contents of one process's files. A
process that becomes another rank keeps the file names of its first rank. The agent then writes the
new rank into its ``.json``; the process that forked the rank does not write that file again. All
files of an ended rank but its log go once its exit is stored in the outbox. Logs of ended ranks are
kept for the newest ``NUM_LOGS_KEPT``.

This module reads and writes files and decides nothing.
"""

import logging
import re
from collections.abc import Container
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from nodeagent.process_tools.process_files import (
    ExitRecord,
    ProcessFiles,
    StartRecord,
    replace_file,
)
from nodeagent.protocol.ids import TaskId
from nodeagent.protocol.messages import LogPart, ReadLog
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.ranks.supervisor import RankKey, key_of

_LOG = logging.getLogger(__name__)

NUM_LOGS_KEPT: Final = 20
TAIL_BYTES: Final = 4096
_COUNTED_BYTES: Final = 16 * 1024 * 1024
_SEARCHED_BYTES: Final = 16 * TAIL_BYTES
_FATAL: Final = "Fatal Python error: "
_MODULES: Final = re.compile(r"Extension modules: .*\(total: \d+\)$")


class RankRecord(StartRecord):
    """Content of ``.json`` as the agent keeps it.

    Attributes:
        became: The newest rank that the process became; None if it is still its first rank.
        log_begin: Bytes that its log had then: earlier lines belong to another rank.
    """

    became: RankLaunch | None = None
    log_begin: int = 0

    @property
    def first_key(self) -> RankKey:
        """Its first name, which its files and marks keep."""
        return key_of(self.launch)

    @property
    def present(self) -> RankLaunch:
        """The rank that it is now."""
        return self.launch if self.became is None else self.became

    @property
    def key(self) -> RankKey:
        """Name of the rank that it is now."""
        return key_of(self.present)


class RankFiles:
    """The directory ``ranks/`` of one state directory. Keys name the first rank of a process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700, exist_ok=True)

    def log(self, key: RankKey) -> Path:
        """Return where the rank's stdout and stderr go."""
        return self.of(key).log

    def records(self, known: Container[str] = ()) -> list[RankRecord]:
        """Return every record whose stem is not in ``known``.

        An unreadable record is moved aside and logged.
        """
        found = []
        for path in sorted(self.directory.glob("*.json")):
            if path.name.removesuffix(".json") in known:
                continue
            try:
                found.append(RankRecord.model_validate_json(path.read_bytes()))
            except FileNotFoundError:
                continue
            except ValidationError as error:
                _LOG.error(
                    "rank record unreadable, moved aside: path=%s reason=%s",
                    path,
                    error.errors()[0]["msg"],
                )
                path.rename(path.with_suffix(".bad"))
        return found

    def record(self, key: RankKey) -> RankRecord | None:
        """Return the record of the process with the first rank ``key``, if there is one."""
        try:
            return RankRecord.model_validate_json(self.of(key).start.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def rename(self, record: RankRecord, launch: RankLaunch) -> RankRecord:
        """Record that the process became the rank of ``launch``; return the new record.

        Raises:
            OSError: It can't be written; the old record stands.
        """
        log = self.log(record.first_key)
        size = log.stat().st_size if log.exists() else 0
        renamed = record.model_copy(update={"became": launch, "log_begin": size})
        replace_file(self.of(record.first_key).start, renamed)
        return renamed

    def is_cold(self, key: RankKey) -> bool:
        """Return whether the rank was started without the template."""
        return self.of(key).launch.exists()

    def is_attached(self, key: RankKey) -> bool:
        """Return whether the rank is a command with a program that has attached."""
        return self.of(key).attached.exists()

    def write_launch(self, launch: RankLaunch) -> Path:
        """Write what a cold rank is to be; return the file."""
        path = self.of(key_of(launch)).launch
        replace_file(path, launch)
        return path

    def exit(self, key: RankKey, pid: int) -> ExitRecord | None:
        """Return how the process ended, once that is written.

        An older process's file does not count.
        """
        try:
            ended = ExitRecord.model_validate_json(self.of(key).exit.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None
        return ended if ended.pid == pid else None

    def tail(self, key: RankKey, begin: int = 0) -> str:
        """Return the last lines of the rank's log from ``begin`` on, at most ``TAIL_BYTES``."""
        return last_words(tail_of(self.log(key), _SEARCHED_BYTES, begin))

    def logs_of(self, task: TaskId, global_rank: int) -> list[Path]:
        """Return the logs of the processes that began as this rank, the newest first."""
        found: list[tuple[int, Path]] = []
        for path in self.directory.glob("*.log"):
            stem, _, rank = path.name.removesuffix(".log").rpartition(".")
            name, _, generation = stem.rpartition(".")
            if name == task and rank == str(global_rank) and generation.isdecimal():
                found.append((int(generation), path))
        return [path for _, path in sorted(found, reverse=True)]

    def line_of(self, key: RankKey, tail: str) -> int:
        """Return the number of the line at which ``tail`` begins in the log; 0 if not known.

        Long logs are not counted: that would delay the report of an exit.
        """
        path = self.log(key)
        try:
            if not tail or path.stat().st_size > _COUNTED_BYTES:
                return 0
            text = path.read_bytes().decode("utf-8", "replace")
        except OSError:
            return 0
        return text[: -len(tail)].count("\n") + 1 if text.endswith(tail) else 0

    def retire(self, key: RankKey) -> None:
        """Remove what is left of an ended rank, except its log; drop logs that are too old."""
        for path in self.of(key).temporary:
            path.unlink(missing_ok=True)
        ended = [
            path
            for path in self.directory.glob("*.log")
            if not ProcessFiles(self.directory, path.name.removesuffix(".log")).start.exists()
        ]
        ended.sort(key=lambda path: path.stat().st_mtime)
        for path in ended[:-NUM_LOGS_KEPT]:
            path.unlink(missing_ok=True)

    def stack(self, key: RankKey) -> Path:
        """Return where the rank's fault handler writes stacks."""
        return self.of(key).stack

    def of(self, key: RankKey) -> ProcessFiles:
        """Return the files of one process."""
        return ProcessFiles(self.directory, key.stem)


def tail_of(path: Path, num_bytes: int = TAIL_BYTES, begin: int = 0) -> str:
    """Return the end of a text file, from a line's beginning on; empty if there is no file.

    What stands before ``begin``, where a line begins, is left out.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(begin, size - num_bytes))
            data = file.read()
    except FileNotFoundError:
        return ""
    if size - num_bytes > begin:
        data = data[data.find(b"\n") + 1 :]
    return data.decode("utf-8", "replace")


def log_part(request: ReadLog, path: Path, first_byte: int) -> LogPart:
    """Return the part of a log that is asked for: what follows the last part, or the end.

    Args:
        request: What is asked for.
        path: The rank's newest log.
        first_byte: Where its output begins in it: before that another rank wrote.

    Raises:
        OSError: It can't be read.
    """
    size = path.stat().st_size
    if request.name == path.name and first_byte <= request.begin <= size:
        begin, is_line_begin = request.begin, True
    else:
        begin = max(first_byte, size - request.max_bytes)
        is_line_begin = begin == first_byte
    with path.open("rb") as file:
        file.seek(begin)
        data = file.read(request.max_bytes)
    if not is_line_begin:
        cut = data.find(b"\n") + 1
        begin, data = begin + cut, data[cut:]
    return LogPart(
        command_id=request.command_id, name=path.name, begin=begin, end=begin + len(data),
        text=data.decode("utf-8", "replace"),
    )  # fmt: skip


def last_words(text: str, num_bytes: int = TAIL_BYTES) -> str:
    """Return the end of ``text``, from a line's beginning on, in at most ``num_bytes`` bytes.

    Of a last line that is longer than that its end.

    Python's report of a fatal signal begins with the name of the signal, which the stacks of many
    threads would push out: that line then stands first. The modules it lists at its end go.
    """
    lines = [line for line in text.splitlines(keepends=True) if not _MODULES.match(line)]
    heads = [line for line in lines if line.startswith(_FATAL)][-1:]
    room = num_bytes - sum(len(line.encode()) for line in heads)
    kept: list[str] = []
    while lines and (room := room - len(lines[-1].encode())) >= 0:
        kept.append(lines.pop())
    if lines and not kept:
        return lines[-1].encode()[-num_bytes:].decode("utf-8", "ignore")
    cut_off = [head for head in heads if head in lines]
    return "".join([*cut_off, *reversed(kept)])
