"""The faults that drills on ranks request from the ranks' agents."""

from typing import Final

from nodeagent.protocol.rank_faults import RankFault
from profiles.drills.drill import Drill
from profiles.drills.kernel_texts import KERNEL_MESSAGES

_EXIT_CODE: Final = 3
_SLOW: Final = RankFault(kind="slow", factor=1.5, count=20)
_SPIKE: Final = RankFault(kind="spike", factor=6.0, count=8)

_FAULT_BY_FAMILY: Final = {
    "kill-rank": RankFault(kind="kill"),
    "freeze-rank": RankFault(kind="freeze"),
    "exit-code": RankFault(kind="exit", count=_EXIT_CODE),
    "segfault": RankFault(kind="segfault"),
    "exception": RankFault(kind="raise"),
    "disk-full": RankFault(kind="write_full"),
    "hang-collective": RankFault(kind="hang"),
    "slow-rank": _SLOW,
    "loss-spike": _SPIKE,
}


def fault_of(drill: Drill) -> RankFault:
    """Return the fault that ``drill`` stages in a rank. The rank's agent carries it out."""
    match drill.option:
        case ("status", status):
            return RankFault(kind="raise", status=status)
        case ("times", times):
            return RankFault(kind="nan", count=int(times))
        case ("line", name):
            return RankFault(kind="raise", status=KERNEL_MESSAGES[name].raises or "")
        case _:
            return _FAULT_BY_FAMILY[drill.family]
