"""What a rank says about an exception that ended its training.

A rank can't tell a peer's failure from its own: a collective that breaks because a peer died raises
here, with a ``RuntimeError`` of gloo or an error class of ``torch.distributed``. It only states
whether the exception came out of a collective; the controller weighs that against what the other
ranks and nodes report.
"""

import traceback
from typing import Final

from torch import distributed

from nodeagent.protocol.observations import RankRaised
from nodeagent.protocol.regroup import Position
from nodeagent.protocol.training import RankLaunch
from nodeagent.rank.store import StoreError
from nodeagent.rank.wake import HaltedError

_MAX_TRACEBACK_CHARS: Final = 16_000
_MAX_MESSAGE_CHARS: Final = 2_000
_NUM_INNERMOST_FRAMES: Final = 4
_COLLECTIVE_FILES: Final = ("/torch/distributed/", "/megatron/core/pipeline_parallel/p2p_")
_COLLECTIVE_WORDS: Final = ("gloo", "nccl", "connection closed by peer", "connection reset by peer")


def describe(
    error: Exception, launch: RankLaunch, iteration: int, position: Position | None
) -> RankRaised:
    """Return the report about ``error``. Long texts keep their end, where the cause stands."""
    text = "".join(traceback.format_exception(error))
    return RankRaised(
        task=launch.task,
        generation=launch.generation,
        global_rank=launch.global_rank,
        exception_type=type(error).__name__,
        message=str(error)[:_MAX_MESSAGE_CHARS],
        traceback=text[-_MAX_TRACEBACK_CHARS:],
        is_in_collective=is_in_collective(error),
        iteration=iteration,
        position=position,
    )


def is_in_collective(error: Exception) -> bool:
    """Return whether ``error`` came out of communication with other ranks.

    Failing to meet the peers (the rendezvous store) counts as well.
    """
    if isinstance(error, (distributed.DistError, StoreError, HaltedError)):
        return True
    # A wrong argument raises inside torch.distributed too, but as ValueError or TypeError.
    if not isinstance(error, (RuntimeError, OSError)):
        return False
    message = str(error).lower()
    if any(word in message for word in _COLLECTIVE_WORDS):
        return True
    frames = traceback.extract_tb(error.__traceback__)[-_NUM_INNERMOST_FRAMES:]
    return any(part in frame.filename for frame in frames for part in _COLLECTIVE_FILES)
