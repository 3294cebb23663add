"""Which SIGKILL came from the kernel's out-of-memory killer, and which from somebody else.

The kernel raises its counts of such kills, of the whole node and of the control group, *before* it
sends the signal, and prints the pid right after. So where no count has risen lately nothing need be
waited for: it was a plain SIGKILL. Where one has, the log says who was meant; it may arrive through
a daemon and be late. Only where the log names nobody at all does a risen count of the process's own
control group decide.

Times are seconds of any one monotonic clock.
"""

import re
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

RECENT_S: Final = 30.0
"""How old a kill may be when its process has ended: releasing much memory takes a while."""
_MAX_PIDS: Final = 256

_KILLED: Final = re.compile(
    rb"[Oo]ut of memory.{0,40}?: Kill(?:ed)? process (\d+)"
    rb"|oom-kill:.{0,2000}?\bpid=(\d+)"
    rb"|oom_reaper: reaped process (\d+)"
)

NODE: Final = "node"
"""Group of all processes of the node."""


class MemoryKills:
    """What is known of the kernel's kills for memory on this node."""

    def __init__(self) -> None:
        self._killed_at: OrderedDict[int, float] = OrderedDict()
        self._counts: dict[str, int] = {}
        self._risen_at: dict[str, float] = {}
        self._unclaimed: dict[str, int] = {}

    def take_lines(self, lines: Iterable[bytes], now_s: float) -> None:
        """Take in lines of the kernel log; those of other things are passed over."""
        for line in lines:
            if b"rocess" in line or b"oom-kill" in line:
                for found in _KILLED.finditer(line):
                    self._killed_at[int(found[1] or found[2] or found[3])] = now_s
        while len(self._killed_at) > _MAX_PIDS:
            self._killed_at.popitem(last=False)

    def take_count(self, group: str, num_kills: int, now_s: float) -> None:
        """Take in how many processes of ``group`` the kernel has killed since it was made.

        The first count of a group says nothing about now, and neither does one that fell: another
        group has taken its name.
        """
        before = self._counts.get(group, num_kills)
        self._counts[group] = num_kills
        if num_kills > before:
            self._risen_at[group] = now_s
            self._unclaimed[group] = self._unclaimed.get(group, 0) + num_kills - before

    def forget(self, group: str) -> None:
        """Drop what is known of a group in which nothing runs any more."""
        for known in (self._counts, self._risen_at, self._unclaimed):
            known.pop(group, None)

    def is_killed(self, pid: int, group: str | None, now_s: float) -> bool | None:
        """Return whether the kernel killed ``pid`` for memory; None while that is not known yet.

        Args:
            pid: A process that a SIGKILL has ended.
            group: Its control group, if its counts are known.
            now_s: The time.
        """
        if pid in self._killed_at:
            self._claim(group)
            return True
        closest = group if group in self._counts else NODE
        if closest in self._counts and not self._has_risen(closest, now_s):
            return False
        return None

    def decide(self, pid: int, group: str | None, now_s: float) -> bool:
        """Return the same when there is no more time to wait."""
        is_killed = self.is_killed(pid, group, now_s)
        if is_killed is not None:
            return is_killed
        names_others = any(now_s - at_s <= RECENT_S for at_s in self._killed_at.values())
        if names_others or group is None or not self._unclaimed.get(group):
            return False
        self._claim(group)
        return True

    def _has_risen(self, group: str, now_s: float) -> bool:
        return group in self._risen_at and now_s - self._risen_at[group] <= RECENT_S

    def _claim(self, group: str | None) -> None:
        """One kill that a group counted is explained: it can't explain another end as well."""
        if group is not None and self._unclaimed.get(group):
            self._unclaimed[group] -= 1


def kills_in(text: str) -> int | None:
    """Return the count in ``/proc/vmstat``, ``memory.events`` or ``memory.oom_control``, if any."""
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.isdigit():
            return int(value)
    return None
