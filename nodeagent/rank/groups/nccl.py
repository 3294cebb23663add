"""Ending NCCL's process groups. Written after the sources of torch and NCCL, and not run on a GPU yet.

A group is *aborted*: what its kernels have begun they end with whatever is there. That needs care.

- An abort may wait for the device, where the kernel of another group waits for the same lost peer, and for
  the other ranks of the node to abort too. So all groups are aborted at once, each in a thread of its own.
- A peer's kernels can take what an aborted one leaves for data. A rank that parks by itself aborts
  nothing therefore, which would wake no peer anyway; and of what was under way at a halt only that counts
  which can't be of that kind (``Iterations.settle`` and ``check_complete``).
- torch ends a *batch* of sends and receives only where each of them was taken. Else the thread would be
  inside a batch for ever, and nothing that it starts would run any more.
- A group that is freed while something is launched on it ends the process. So an abort waits for what is being
  launched, and nothing more is launched on that group.
- Nothing can end a group that is being connected, which NCCL does at its first use. So ranks
  meet in the store first, and the groups of every iteration are connected in a thread that can be given up
  (``Groups.form``).
"""

import contextlib
import functools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import distributed
from torch.distributed import P2POp, ProcessGroup, Work, distributed_c10d

from nodeagent.rank.agent_link.exception_report import first_line

logger = logging.getLogger(__name__)

_SETTINGS: Final = {
    # NCCL's monitor threads would ask our store once per second for a peer's signal to dump; each
    # question would travel to the controller, and the threads would need Python's lock for it.
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    # After an error the watchdog would wait a minute for that dump, and whoever ends the group for it.
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "0",
    # The watchdog would end the process when a peer is lost; the controller decides that. And at an error of
    # CUDA, whose text the training thread is to report.
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",
}

_GRACE_S: Final = 0.05
"""Before an abort: peers hear of their own halt meanwhile, and a collective that is being launched is launched."""

_LAUNCH_LIMIT_S: Final = 1.0
"""How long an abort waits for what is being launched; where that connects its group first it may take for ever."""

_COLLECTIVES: Final = (
    "all_gather",
    "all_gather_into_tensor",
    "all_reduce",
    "broadcast",
    "reduce_scatter_tensor",
)
_CALLERS: Final = ("torch.distributed", "megatron.core")
"""Packages whose modules may have taken over a collective by its name."""

_LOOK_S: Final = 0.005
_NUM_LOOKS: Final = 100

_GPU: Final = torch.device("cuda")

_launching = threading.RLock()
_aborted: Final[set[str]] = set()
"""Names of the groups of this generation that are, or are about to be, aborted."""
_aborts: Final[list[threading.Thread]] = []


def prepare_nccl() -> None:
    """Make this process one whose groups can be aborted. Call it once, before any group is made."""
    os.environ.update(_SETTINGS)
    module: Any = distributed
    fenced: dict[int, Any] = {
        id(each): _unless_aborted(each) for each in (getattr(module, name) for name in _COLLECTIVES)
    }
    fenced[id(module.batch_isend_irecv)] = _whole_batches(module.batch_isend_irecv)
    for name, caller in list(sys.modules.items()):
        if name.startswith(_CALLERS):
            for attribute, value in list(vars(caller).items()):
                if id(value) in fenced:
                    setattr(caller, attribute, fenced[id(value)])


def abort(group: ProcessGroup) -> None:
    """Have every operation on the group end, at once or soon. Returns immediately, from any thread."""
    devices: Any = group
    if _GPU not in devices._device_types:  # noqa: SLF001 - no public way to ask
        return
    _aborted.add(group.group_name)
    thread = threading.Thread(target=_abort, args=(group,), name="abort", daemon=True)
    _aborts.append(thread)
    thread.start()


def wait_for_aborts() -> None:
    """Wait until all groups that were to be aborted are; the generation is over.

    As long as it takes: a rank that does not come to the next generation is replaced.
    """
    for thread in _aborts:
        thread.join()
    _aborts.clear()
    _aborted.clear()


def device_ends_soon() -> bool:
    """Return whether the GPU has done all that this thread asked of it, within half a second."""
    try:
        everything = torch.cuda.current_stream().record_event()
        for _ in range(_NUM_LOOKS):
            if everything.query():
                return True
            time.sleep(_LOOK_S)
    except RuntimeError as error:
        logger.warning("the GPU can't be asked: %s", first_line(error))
    return False


def _abort(group: ProcessGroup) -> None:
    time.sleep(_GRACE_S)
    # Nothing is launched on the group any more; what is being launched is.
    if _launching.acquire(timeout=_LAUNCH_LIMIT_S):
        _launching.release()
    devices: Any = group
    try:
        devices._get_backend(_GPU).abort()  # noqa: SLF001 - no public way
    except RuntimeError as error:
        logger.warning("aborting %s: %s", group.group_name, first_line(error))


def _unless_aborted(collective: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(collective)
    def launched(*args: object, **options: Any) -> object:  # noqa: ANN401 - torch's
        with _launching:
            _refuse_aborted(options.get("group"))
            return collective(*args, **options)

    return launched


def _whole_batches(batch: Callable[[list[P2POp]], list[Work]]) -> Callable[..., list[Work]]:
    @functools.wraps(batch)
    def launched(p2p_op_list: list[P2POp]) -> list[Work]:
        with _launching:
            for operation in p2p_op_list:
                _refuse_aborted(operation.group)
            try:
                return batch(p2p_op_list)
            except RuntimeError:
                _end_batch(p2p_op_list[0])
                raise

    return launched


def _refuse_aborted(group: ProcessGroup | None) -> None:
    if getattr(group, "group_name", None) in _aborted:  # none where this rank is no member
        raise RuntimeError(f"NCCL: {group} was aborted")


def _end_batch(operation: P2POp) -> None:
    """Leave a batch that torch has begun and not ended."""
    batches: Any = distributed_c10d._world.pg_coalesce_state  # noqa: SLF001 - no public way
    if batches.pop(operation.group, None) is not None:
        group: Any = operation.group
        with contextlib.suppress(RuntimeError):
            group._end_coalescing(operation.tensor.device)  # noqa: SLF001 - the same
