"""The report of a rank of ours about an exception that ended its training.

``exception_report`` makes the report, and recognises broken collectives in any program.
"""

from nodeagent.protocol.observations import RankRaised
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.protocol.regroup import Position
from nodeagent.rank.agent_link.exception_report import is_of_collective, raised
from nodeagent.rank.agent_link.rendezvous_store import StoreError
from nodeagent.rank.groups.halting import HaltedError


def describe(
    error: Exception, launch: RankLaunch, iteration: int, position: Position | None
) -> RankRaised:
    """Return the report about ``error``. Long texts are cut at their beginning: the cause is at the end."""
    return raised(
        error,
        (launch.task, launch.generation, launch.global_rank),
        iteration,
        position,
        is_in_collective=is_in_collective(error),
    )


def is_in_collective(error: Exception) -> bool:
    """Return whether ``error`` came out of communication with other ranks.

    A failed rendezvous with the peers counts as well.
    """
    return isinstance(error, (StoreError, HaltedError)) or is_of_collective(error)
