"""The report about an exception in any program. It needs no torch, which the program may lack.

A rank can't distinguish a peer's failure from its own: when a peer dies, the collective raises here
too. So the report only states whether the exception came from communication with other ranks. The
controller compares it with the reports of other ranks and nodes.
"""

import traceback
from pathlib import Path
from typing import Final

from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.observations import RankRaised
from nodeagent.protocol.regroup import Position

_MAX_TRACEBACK_CHARS: Final = 16_000
_MAX_MESSAGE_CHARS: Final = 2_000
_NUM_INNERMOST_FRAMES: Final = 4
_COLLECTIVE_FILES: Final = ("/torch/distributed/", "/megatron/core/pipeline_parallel/p2p_")
_COLLECTIVE_WORDS: Final = ("gloo", "nccl", "connection closed by peer", "connection reset by peer")


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or the name of its class if it has no text."""
    return next(iter(_text_of(error).splitlines()), type(error).__name__)


def raised(
    error: BaseException,
    rank: tuple[TaskId, Generation, int],
    iteration: int,
    position: Position | None = None,
    *,
    is_in_collective: bool,
) -> RankRaised:
    """Return the report about ``error``. A long traceback keeps its end, which names the cause.

    Args:
        error: The exception.
        rank: Task, generation and global rank of the process.
        iteration: The running iteration.
        position: The rank's progress; None if it can't join another generation.
        is_in_collective: Whether the exception may be the echo of a peer's end.
    """
    task, generation, global_rank = rank
    text = "".join(traceback.format_exception(error))
    return RankRaised(
        task=task,
        generation=generation,
        global_rank=global_rank,
        exception_type=type(error).__name__,
        message=_sendable(_text_of(error)[:_MAX_MESSAGE_CHARS]),
        traceback=_sendable(text[-_MAX_TRACEBACK_CHARS:]),
        is_in_collective=is_in_collective,
        iteration=iteration,
        position=position,
        log=_sendable(_own_log()),
    )


def _text_of(error: BaseException) -> str:
    """Return an error's text; its class is a program's own, and may raise while it makes one."""
    try:
        return str(error)
    except Exception as inner:  # noqa: BLE001 - the first error is the one that counts
        return f"its text can't be read: {type(inner).__name__}"


def _own_log() -> str:
    """Return the path of this process's log, where its standard error goes; empty if nowhere."""
    try:
        path = str(Path("/proc/self/fd/2").readlink())
    except OSError:
        return ""
    return path if path.startswith("/") and path.endswith(".log") else ""


def _sendable(text: str) -> str:
    """Return ``text`` without lone surrogates: JSON can't carry them, and file names have them."""
    return text.encode("utf-8", "replace").decode()


def is_of_collective(error: BaseException) -> bool:
    """Return whether class and text of ``error`` point to communication with other ranks."""
    if any(
        base.__module__.startswith("torch") and base.__name__ == "DistError"
        for base in type(error).__mro__
    ):
        return True
    # A wrong argument raises inside torch.distributed too, but as ValueError or TypeError.
    if not isinstance(error, (RuntimeError, OSError)):
        return False
    message = _text_of(error).lower()
    if any(word in message for word in _COLLECTIVE_WORDS):
        return True
    frames = traceback.extract_tb(error.__traceback__)[-_NUM_INNERMOST_FRAMES:]
    return any(part in frame.filename for frame in frames for part in _COLLECTIVE_FILES)
