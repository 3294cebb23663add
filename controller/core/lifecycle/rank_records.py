"""What is known of each rank, and of each spare. The one writer of ``RankState``."""

from controller.core.state.rank import RankState
from controller.core.state.task import TaskState
from nodeagent.protocol.messages import RankStatus
from nodeagent.protocol.observations import (
    IterationCommitted,
    RankDone,
    RankHalted,
    RankJoined,
    RankObservation,
    RankRaised,
    RankStarted,
)


def note_observed(rank: RankState, observation: RankObservation) -> None:
    """Record the facts of an observation about the process. Other modules judge them."""
    rank.is_seen = True
    match observation:
        case RankJoined():
            rank.joined = observation
        case RankHalted() | RankRaised():
            if observation.position is not None:
                rank.position = observation.position
        case RankStarted():
            rank.pid = observation.pid
        case RankDone():
            rank.done = observation.reason
        case _:
            pass


def note_spare_observed(spare: RankState, observation: RankObservation) -> None:
    """Keep what an observation says about a spare."""
    spare.is_seen = True
    match observation:
        case RankStarted():
            spare.pid = observation.pid
        case RankHalted():
            spare.position = observation.position
        case _:
            pass


def note_iteration(task: TaskState, commit: IterationCommitted) -> None:
    """A rank of the present generation has finished an iteration."""
    rank = task.ranks[commit.global_rank]
    rank.iteration = max(rank.iteration, commit.iteration)


def note_listed(rank: RankState, status: RankStatus) -> None:
    """The node lists a rank of the present generation."""
    rank.is_seen = True
    rank.pid, rank.rss_bytes = status.pid, status.rss_bytes
    rank.iteration = max(rank.iteration, status.iteration)
    rank.busy_s, rank.busy_spread_s = status.busy_s, status.busy_spread_s
    rank.waited_s = status.waited_s
    rank.is_attached = status.is_attached


def note_spare_listed(spare: RankState, status: RankStatus) -> None:
    """The node lists a spare."""
    spare.is_seen = True
    spare.pid, spare.rss_bytes = status.pid, status.rss_bytes


def note_missing(rank: RankState, at: float, *, is_listed: bool) -> float:
    """Keep since when the node does not list the rank; return that, or now if it lists it."""
    if is_listed:
        rank.missing_since = None
        return at
    rank.missing_since = at if rank.missing_since is None else rank.missing_since
    return rank.missing_since


def note_broken(rank: RankState) -> None:
    """The process can't continue in another generation."""
    rank.is_broken = True


def note_sound(rank: RankState) -> None:
    """The process has raised an exception for a fault elsewhere: it can continue."""
    rank.is_broken = False


def note_gone(rank: RankState) -> None:
    """The rank has no process any more."""
    rank.is_alive = False
    rank.rss_bytes = None


def note_spare_gone(spare: RankState) -> None:
    """The spare has no process any more."""
    spare.is_alive = False


def note_returned(rank: RankState) -> None:
    """A rank that was given up with its node lives."""
    rank.is_alive = True


def note_left_over(rank: RankState) -> None:
    """The rank lives on although nothing is left to do: it is ended, and counts as done."""
    rank.done, rank.is_broken = rank.done or "finished", True


def note_finished(rank: RankState) -> None:
    """The rank has done all iterations."""
    rank.done = "finished"


def count_slow_beat(rank: RankState, *, is_slow: bool, most: int) -> int:
    """Count a heartbeat that shows the rank slow, or count back; return the count."""
    step = 1 if is_slow else -1
    rank.num_slow_beats = min(most, max(0, rank.num_slow_beats + step))
    return rank.num_slow_beats
