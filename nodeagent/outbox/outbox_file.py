"""The outbox on disk: ``outbox.jsonl``, one record per line, appended and flushed before use.

A record reaches the kernel in one ``write`` before it is applied, so a kill at any instant leaves
whole records and at most one half line at the end, which the next agent drops: nothing that was
answered or sent can be missing. A crash of the whole machine may lose the newest records (there is
no fsync: such a node is lost to the controller anyway, and its ranks with it).

The file is rewritten when most of it has been acknowledged. What the records mean is decided in
``outbox``.
"""

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from nodeagent.outbox.contents import Outbox
from nodeagent.outbox.outbox_records import Mark, MarkScope, OutboxRecord
from nodeagent.protocol.codec import MAX_LINE_BYTES, Codec, ProtocolError, encode
from nodeagent.protocol.observations import AnyObservation
from nodeagent.protocol.orders import HaltOrder

_LOG = logging.getLogger(__name__)

COMPACT_BYTES: Final = 1024 * 1024
"""A file grows by this much and to twice its live content before it is rewritten."""

_CODEC: Final[Codec[OutboxRecord]] = Codec(TypeAdapter(OutboxRecord))


class OutboxFile:
    """An ``Outbox`` whose every change is on disk first. One owner per file: see the agent's lock.

    All changing methods raise ``OSError`` when the record can't be written, or is longer than a
    line to the controller may be; nothing has changed then, neither in memory nor on disk.
    """

    def __init__(
        self,
        path: Path,
        outbox: Outbox | None = None,
        compact_bytes: int = COMPACT_BYTES,
    ) -> None:
        self.outbox = outbox or Outbox()
        self.on_report: Callable[[], None] = lambda: None
        self._path = path
        self._compact_bytes = compact_bytes
        self._load()
        self._file = -1
        self._size = self._live_size = 0
        self._compact()

    def store(self, observation: AnyObservation, wall_s: float, mark: Mark | None = None) -> bool:
        """Store a report; return False if its mark says that it is stored already."""
        record = self.outbox.store(observation, wall_s, mark)
        if record is None:
            return False
        self._write(record)
        if num_dropped := self.outbox.trim():
            _LOG.warning("outbox full: oldest routine reports dropped: count=%d", num_dropped)
            self._try_compact()
        self.on_report()
        return True

    def advance(self, scope: MarkScope, name: str, value: int = 1) -> None:
        """Raise a mark to ``value``, unless it is as high already."""
        record = self.outbox.advance(Mark(scope=scope, name=name, value=value))
        if record is not None:
            self._write(record)

    def request_halt(self, halt: HaltOrder) -> HaltOrder | None:
        """Take in that a generation shall park; see ``Outbox.request_halt``.

        Returns all that was asked of the generation, taken together; None if a newer one was
        halted.
        """
        record = self.outbox.request_halt(halt)
        if record is not None:
            self._write(record)
        whole = self.outbox.halt(halt.task)
        return whole if whole is not None and whole.generation == halt.generation else None

    def acknowledge(self, seq: int) -> None:
        """Drop the reports up to ``seq``."""
        record = self.outbox.acknowledge(seq)
        if record is not None:
            self._write(record)

    def attach(self, run_id: str, term: int, last_seq: int, processes: list[str]) -> None:
        """Take in that a controller takes over; see ``Outbox.attach``."""
        for record in self.outbox.attach(run_id, term, last_seq, processes):
            self._write(record)

    def close(self) -> None:
        """Close the file. May be called again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, record: OutboxRecord) -> None:
        line = encode(record)
        if len(line) > MAX_LINE_BYTES:
            # Nothing after it would ever reach the controller.
            raise OSError(
                errno.EMSGSIZE, f"{len(line)} bytes, and at most {MAX_LINE_BYTES} can be sent"
            )
        try:
            num_written = os.write(self._file, line)
        except OSError:
            os.ftruncate(self._file, self._size)
            raise
        if num_written < len(line):  # the disk is full: half a record must not stay
            os.ftruncate(self._file, self._size)
            raise OSError(f"{self._path}: wrote {num_written} of {len(line)} bytes")
        self._size += len(line)
        self.outbox.apply(record)
        if self._size > self._live_size + self._compact_bytes + 2 * self.outbox.num_bytes:
            self._try_compact()

    def _load(self) -> None:
        # Line by line: a full outbox, read at once, would double the agent's memory until its end.
        try:
            with self._path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    self._read_back(number, line)
        except FileNotFoundError:
            return

    def _read_back(self, number: int, line: bytes) -> None:
        if not line.endswith(b"\n"):
            _LOG.warning(
                "outbox: half-written record dropped: path=%s bytes=%d", self._path, len(line)
            )
            return
        try:
            self.outbox.apply(_CODEC.decode(line))
        except ProtocolError as error:
            _LOG.error(
                "outbox: damaged record dropped: path=%s line=%d reason=%s",
                self._path,
                number,
                error,
            )

    def _try_compact(self) -> None:
        try:
            self._compact()
        except OSError as error:
            # The file as it is says the same at greater length; try again after as much growth.
            _LOG.warning("cannot compact outbox: path=%s reason=%s", self._path, error)
            self._live_size = self._size

    def _compact(self) -> None:
        """Replace the file by a snapshot, atomically."""
        scratch = self._path.with_suffix(".tmp")
        with scratch.open("wb") as file:
            file.writelines(self.outbox.snapshot())
            size = file.tell()
        scratch.chmod(0o600)
        scratch.replace(self._path)
        self.close()
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._size = self._live_size = size
