"""NVIDIA's Xid codes: which status a code stands for, and when its line says something else.

The table is data (``data/xid.toml``). A code alone does not decide: newer NVLink codes come in
fatal and nonfatal kinds, 13 depends on what the access was, 154 on the action that it asks for, and
43 and 45 repeat the code that caused them.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from profiles.faults.entry import Entry
from profiles.faults.status import Status, TableStatus

SOURCE: Final = "NVIDIA Xid catalogue, https://docs.nvidia.com/deploy/xid-errors/"

XID_WORD: Final = "xid"
"""What stands, in lower case, in every line that names a code."""
_XID: Final = re.compile(
    r"\bXid\b(?:\s*\((?:PCI:)?[^)]*\))?\s*(?:error|code|event|errors)?\s*[:=]?\s*#?(\d{1,3})\b(?!\.\d)",
    re.IGNORECASE,
)
_NUMBERS: Final = re.compile(rb"xid(?: ?\([^)]*\))?\D{0,12}(\d{1,3})", re.IGNORECASE)
_CAUSED_BY: Final = re.compile(r"caused by previous Xid (\d{1,3})", re.IGNORECASE)
_NONFATAL: Final = re.compile(r"\bnon-?fatal\b", re.IGNORECASE)
_RECOVERY: Final = re.compile(
    r"\bto\s+(?:0x[0-9a-f]+\s*)?\(?\s*([A-Za-z][A-Za-z &+]*)", re.IGNORECASE
)
"""The action that Xid 154 asks for from now on: ``changed from 0x0 (None) to 0x1 (GPU Reset)``."""
_OUT_OF_RANGE: Final = re.compile(r"Out Of Range Address", re.IGNORECASE)
_COUNT_OF: Final = re.compile(r"\bXids?\b[^:=]*[:=]\s*0\b|\bxid=0\b", re.IGNORECASE)


def xid_numbers(line: bytes) -> bytes:
    """Return the codes that ``line`` names, one behind the other: its shape does not show them."""
    return b",".join(_NUMBERS.findall(line))


class XidCode(BaseModel):
    """One code of the vendor's table.

    Attributes:
        number: The code.
        mnemonic: The driver's name of it.
        name: Its meaning.
        action: The vendor's immediate action; empty if the table states none.
        status: The status it stands for.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int = Field(gt=0)
    mnemonic: str
    name: str
    action: str = ""
    status: TableStatus


class XidTable:
    """The codes, as entries of the catalogue."""

    def __init__(self, codes: Sequence[XidCode], statuses: Mapping[str, Status]) -> None:
        self.codes = tuple(codes)
        self._entry_by_number: Mapping[int, Entry] = {
            code.number: _entry_of(code) for code in codes
        }
        self._out_of_range = _entry(
            "xid-13-out-of-range",
            statuses["illegal_memory_access"],
            "Restart the process; if it comes back, run with CUDA_LAUNCH_BLOCKING=1.",
        )
        self._recovery = _entry(
            "xid-154-action",
            statuses["gpu_driver_error"],
            "The driver asks for a recovery action: reset the GPU, or drain and restart the node.",
        )
        self._unknown = _entry(
            "xid-unknown",
            statuses["gpu_driver_error"],
            "Look the code up in NVIDIA's newest Xid catalogue.",
        )

    @property
    def entries(self) -> list[Entry]:
        """Every entry that a line can lead to."""
        return [*self._entry_by_number.values(), self._out_of_range, self._recovery, self._unknown]

    def read(self, text: str) -> Entry | None:
        """Return what the Xid in ``text`` stands for, or None if there is none to act on."""
        found = _XID.search(text)
        if found is None or _COUNT_OF.search(text):
            return None
        number = int(found[1])
        if number == 0 or _NONFATAL.search(text):
            return None
        if caused_by := _CAUSED_BY.search(text):
            number = int(caused_by[1])
        if number == 154 and (changed_to := _RECOVERY.search(text)) is not None:
            return self._recovery if changed_to[1].lower() != "none" else None
        if number == 13 and _OUT_OF_RANGE.search(text):
            return self._out_of_range
        return self._entry_by_number.get(number, self._unknown)


def _entry_of(code: XidCode) -> Entry:
    action = f" (NVIDIA's action: {code.action})" if code.action else ""
    return _entry(f"xid-{code.number}", code.status, f"{code.name}{action}.")


def _entry(name: str, status: Status, response: str) -> Entry:
    return Entry(
        id=name,
        status=status,
        precedence=status.facts.xid_precedence,
        patterns=(),
        source=SOURCE,
        response=response,
    )
