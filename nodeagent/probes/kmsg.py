"""The kernel's own log device, ``/dev/kmsg``: one record a read, none lost unless it wraps around.

Needs root or a machine that lets everybody read (``kernel.dmesg_restrict``). Records are returned
in the form of ``dmesg``, with seconds since boot in front. Never blocks.
"""

import logging
import os
from pathlib import Path
from typing import Final

from typing_extensions import override

from nodeagent.detect.lost_lines import Lost
from nodeagent.probes.log_source import LogSource

_LOG = logging.getLogger(__name__)

KMSG: Final = Path("/dev/kmsg")
_RECORD_BYTES: Final = 16 * 1024
"""More than the kernel's longest record; a smaller buffer would be an error."""
_MAX_RECORDS: Final = 1000


class KernelMessages(LogSource):
    """Records that the kernel has written since this object was made."""

    def __init__(self, path: Path = KMSG) -> None:
        """Open the device at its end.

        Raises:
            OSError: It is not there, or may not be read.
        """
        self._path = path
        self._device = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        os.lseek(self._device, 0, os.SEEK_END)
        self._gaps = SequenceGaps()

    @property
    @override
    def name(self) -> str:
        return str(self._path)

    @override
    def read(self) -> list[bytes]:
        """Return new records, at most a thousand.

        Raises:
            OSError: The device can't be read any more.
        """
        lines: list[bytes] = []
        for _ in range(_MAX_RECORDS):
            try:
                record = os.read(self._device, _RECORD_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:  # the kernel was faster; the next read finds the oldest left
                _LOG.warning(
                    "kernel records were overwritten before they were read: source=%s", self.name
                )
                self._gaps.note_overrun()
                continue
            if not record:
                break
            self._gaps.take(record)
            lines.append(as_dmesg(record))
        return lines

    @override
    def take_lost(self) -> Lost:
        """Return how many records were overwritten unread since the last call."""
        return Lost(num_lines=self._gaps.take_lost())

    @override
    def close(self) -> None:
        if self._device >= 0:
            os.close(self._device)
            self._device = -1


class SequenceGaps:
    """Counts overwritten records by the numbers of those before and after them."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._is_overrun = False
        self._num_lost = 0

    def note_overrun(self) -> None:
        """The kernel says that the next record in order is gone."""
        self._is_overrun = True

    def take(self, record: bytes) -> None:
        """Take in the next record that is there."""
        number = record.split(b",", 2)[1:2]
        if not number or not number[0].isdigit():
            return
        now = int(number[0])
        if self._is_overrun:  # one at least, where nothing was read before it
            self._num_lost += 1 if self._last is None else max(1, now - self._last - 1)
        self._last, self._is_overrun = now, False

    def take_lost(self) -> int:
        """Return the count since the last call."""
        num_lost, self._num_lost = self._num_lost, 0
        return num_lost


def as_dmesg(record: bytes) -> bytes:
    """Return a record ``level,sequence,microseconds,flags;text`` as ``[seconds] text``.

    Lines of a record after its first hold properties of the device; they are left out.
    """
    head, _, text = record.partition(b";")
    fields = head.split(b",")
    text = text.partition(b"\n")[0]
    if len(fields) < 3 or not fields[2].isdigit():
        return text
    return b"[%12.6f] %s" % (int(fields[2]) / 1e6, text)
