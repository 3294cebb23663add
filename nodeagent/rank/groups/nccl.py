"""Ends NCCL's process groups. Written after the sources of torch and NCCL.

With NCCL one rank alone has been run, halted and regrouped on a GPU. It waits for nobody there: no
abort has ended a collective that waits for a lost peer.

A group is *aborted*: its running kernels end with any data that is there. That needs care:

- An abort may wait for the device while a kernel of another group there waits for the same lost
  peer. It may also wait until the other ranks of the node abort. So all groups are aborted at once,
  each in a thread of its own.
- A peer's kernel may take the remains of an aborted kernel for data. So a rank that parks by itself
  aborts nothing, which would wake no peer anyway. After a halt only results count that can't have
  been damaged in this way (``Iterations.settle`` and ``check_complete``).
- torch ends a *batch* of sends and receives only if each of them was accepted. Otherwise the thread
  stays inside the batch, and none of its later operations runs. So a failed batch is ended here.
- If a group is freed while an operation is being launched on it, the process ends. So an abort
  waits for the launch, and no other operation is launched on that group.
- NCCL connects a group at its first use, and nothing can end a group that is being connected. So
  the ranks meet in the store first. Then a thread that can be abandoned connects the groups of
  every iteration (``Groups.form``).
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

_LOG = logging.getLogger(__name__)

_SETTINGS: Final = {
    # NCCL's monitor threads would ask our store once per second for a peer's signal to dump. Each
    # call would travel to the controller, and would need Python's lock.
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    # After an error the watchdog would wait a minute for that dump, and an abort for the watchdog.
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "0",
    # The watchdog would end the process when a peer is lost, which the controller decides. It would
    # also end it at an error of CUDA, before the training thread could report the error.
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",
}

_GRACE_S: Final = 0.05
"""Seconds before an abort.

Meanwhile peers receive their own halt, and a launch in progress ends.
"""

_LAUNCH_LIMIT_S: Final = 1.0
"""Seconds that an abort waits for a launch.

A launch that connects its group first may never end.
"""

_COLLECTIVES: Final = (
    "all_gather",
    "all_gather_into_tensor",
    "all_reduce",
    "broadcast",
    "reduce_scatter_tensor",
)
_CALLERS: Final = ("torch.distributed", "megatron.core")
"""Packages whose modules may have imported a collective by name."""

_LOOK_S: Final = 0.005
_NUM_LOOKS: Final = 100

_GPU: Final = torch.device("cuda")

_launching = threading.RLock()
_aborted: Final[set[str]] = set()
"""Names of the groups of this generation that are, or are about to be, aborted."""
_aborts: Final[list[threading.Thread]] = []


def prepare_nccl() -> None:
    """Prepare this process so that its groups can be aborted.

    Call it once, before any group is made.
    """
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
    """Begin to end every operation on the group. Any thread may call it; it returns at once."""
    devices: Any = group
    if _GPU not in devices._device_types:  # noqa: SLF001 - no public way to ask
        return
    _aborted.add(group.group_name)
    thread = threading.Thread(target=_abort, args=(group,), name="abort", daemon=True)
    _aborts.append(thread)
    thread.start()


def wait_for_aborts() -> None:
    """Wait without a limit until all aborts of the generation are complete.

    If an abort never ends, the rank does not join the next generation and is replaced.
    """
    for thread in _aborts:
        thread.join()
    _aborts.clear()
    _aborted.clear()


def device_ends_soon() -> bool:
    """Return whether the GPU completes all operations of this thread within half a second."""
    try:
        everything = torch.cuda.current_stream().record_event()
        for _ in range(_NUM_LOOKS):
            if everything.query():
                return True
            time.sleep(_LOOK_S)
    except RuntimeError as error:
        _LOG.warning("cannot query the GPU: reason=%s", first_line(error))
    return False


def _abort(group: ProcessGroup) -> None:
    time.sleep(_GRACE_S)
    # The group refuses further launches. Wait until a launch in progress is done.
    if _launching.acquire(timeout=_LAUNCH_LIMIT_S):
        _launching.release()
    devices: Any = group
    try:
        devices._get_backend(_GPU).abort()  # noqa: SLF001 - no public way
    except RuntimeError as error:
        _LOG.warning(
            "abort of a process group failed: group=%s reason=%s",
            group.group_name,
            first_line(error),
        )


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
    if (
        getattr(group, "group_name", None) in _aborted
    ):  # A rank that is no member has no group name.
        raise RuntimeError(f"NCCL: {group} was aborted")


def _end_batch(operation: P2POp) -> None:
    """End a batch that torch has begun and not ended."""
    batches: Any = distributed_c10d._world.pg_coalesce_state  # noqa: SLF001 - no public way
    if batches.pop(operation.group, None) is not None:
        group: Any = operation.group
        with contextlib.suppress(RuntimeError):
            group._end_coalescing(operation.tensor.device)  # noqa: SLF001 - the same
