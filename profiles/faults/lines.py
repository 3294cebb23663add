"""Lines as logs hold them: colours, prefixes of launchers and shippers, times of many kinds.

A line is reduced in two steps. Its *text* is the line without colours; its *body* is the
text behind the prefixes (time, host, process). Nothing here knows what a fault is.
"""

import re
from dataclasses import dataclass
from typing import Final, Literal

_ANSI: Final = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07)|[\x00-\x08\x0b\x0c\x0e-\x1f]")

_PREFIX: Final = re.compile(
    r"""(?x)
    \s+ | \|\s | E\s{2,}
    | <\d{1,3}>(?=\S)                                               # syslog priority
    | \[(?!Errno)[^\]\n]{1,120}\]\s*[:|-]*\s*                       # anything in brackets
    | <(?:stderr|stdout)>:?\s*
    | \d{4}[-/:]\d\d[-/:]\d\d[T_\s-]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?[:,|\s-]*
    | (?:\d\d-\d\d\s)?\d\d:\d\d:\d\d(?:[.,]\d+)?[:,|\s-]+
    | (?:std(?:err|out)\s)?[FP]\s(?=\S)                             # containerd
    | [IWEF]\d{3,4}\s\d\d:\d\d:\d\d\.\d+\s+\d*\s*\S+\]\s*         # glog
    | (?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)?\s?
      (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s+\d+\s\d\d:\d\d:\d\d(?:\.\d+)?\s
      [\w.-]+\s[\w./-]+(?:\[\d+\])?:\s                              # syslog
    | kern\s*:\w+\s*:\s
    | \(\w[\w.: ]*\spid=\d+[^)]*\)\s*                               # Ray
    | (?:rank|worker|node|host|task|global_rank)[\s_=]?\d+\s*[:|]\s
    | \d{1,5}:\s(?=\S)                                              # srun --label
    | [a-z][a-z0-9._]*[-\d][a-z0-9._-]*:\s(?!error)                   # host
    | (?:ERROR|CRITICAL|FATAL|WARNING|WARN|INFO|DEBUG|TRACE)\b\s*[:|-]*\s*
    | [\w./-]+\.(?:py|cc|cpp|cu|c|h|hpp)[:(]\d+\)?[:\]]*\s+(?:--?\s)?
    """
)
_MAX_PREFIXES: Final = 12
_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
        start=1,
    )
}
_DAY_S: Final = 86400.0

_UPTIME: Final = re.compile(r"^\s*(?:<\d+>)?\[\s*(\d{1,9}\.\d{1,9})\]")
_ISO: Final = re.compile(
    r"\b\d{4}[-/:](\d\d)[-/:](\d\d)[T_\s-](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
)
_SYSLOG: Final = re.compile(
    r"\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s+(\d{1,2})\s+(?:\d{4}\s+)?(\d\d):(\d\d):(\d\d)(?:\.(\d+))?",
    re.IGNORECASE,
)
_GLOG: Final = re.compile(r"\b[IWEF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d+))?")


@dataclass(frozen=True, slots=True)
class Moment:
    """When a line was written.

    Attributes:
        clock: Seconds since boot, or a calendar without years. Moments of different clocks can't
            be compared, and logs do mix them.
        at_s: Seconds of that clock.
    """

    clock: Literal["uptime", "calendar"]
    at_s: float


def without_colours(line: str) -> str:
    """Return the line without escape sequences and control characters."""
    return _ANSI.sub("", line) if not line.isprintable() else line


def body_of(text: str) -> str:
    """Return what a line says behind its prefixes, at most a dozen of them."""
    position = 0
    for _ in range(_MAX_PREFIXES):
        found = _PREFIX.match(text, position)
        if found is None or found.end() == position:
            break
        position = found.end()
    return text[position:]


def moment_of(text: str) -> Moment | None:
    """Return when ``text`` was written, or None if it does not say."""
    if found := _UPTIME.match(text):
        return Moment("uptime", float(found[1]))
    head = text[:160]
    if found := _GLOG.search(head) or _ISO.search(head):
        month, day, hour, minute, second, fraction = found.groups()
        return _calendar(int(month), day, hour, minute, f"{second}.{fraction or 0}")
    if found := _SYSLOG.search(head):
        name, day, hour, minute, second, fraction = found.groups()
        return _calendar(_MONTHS[name.lower()], day, hour, minute, f"{second}.{fraction or 0}")
    return None


def _calendar(month: int, day: str, hour: str, minute: str, second: str) -> Moment:
    # Months of 31 days: only the order of moments and spans of hours matter.
    days = month * 31 + int(day)
    return Moment("calendar", days * _DAY_S + int(hour) * 3600 + int(minute) * 60 + float(second))
