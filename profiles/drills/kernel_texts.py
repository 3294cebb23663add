"""Lines of the kernel log that a drill writes into the log of a node.

The lines of single messages are data: ``data/kernel_messages.toml``.
"""

import functools
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from profiles.faults.status import Status, TableStatus
from profiles.faults.status_table import default_statuses, find_status
from profiles.faults.table_rows import CatalogueError, rows_of


class KernelMessage(BaseModel):
    """What a kernel prints about one event.

    Attributes:
        name: Name of the message, unique: ``kernel-log:line=NAME``.
        status: The status that the lines mean; ``none`` for harmless ones.
        text: Its lines, without time stamps. ``{pid}`` and ``{name}`` stand for the rank's process.
        raises: Status of the exception that the rank gets at the same time; None for no exception.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    status: TableStatus
    text: str = Field(min_length=1)
    raises: TableStatus | None = None


def load_kernel_messages(
    file: Traversable, statuses: Mapping[str, Status]
) -> Mapping[str, KernelMessage]:
    """Return the messages of a file by their names.

    Raises:
        CatalogueError: The file can't be read, a message is wrong, or a name comes twice.
    """
    messages: dict[str, KernelMessage] = {}
    find = functools.partial(find_status, statuses)
    for message in rows_of(file, "message", KernelMessage, find):
        if message.name in messages:
            raise CatalogueError(
                f"{file.name}: message {message.name!r} is there twice; leave one of them"
            )
        messages[message.name] = message
    return messages


KERNEL_MESSAGES: Final = load_kernel_messages(
    resources.files("profiles.drills").joinpath("data", "kernel_messages.toml"), default_statuses()
)

LINK_FLAP: Final = (
    "mlx5_core 0000:5e:00.0 ens3f0np0: Link down\nmlx5_core 0000:5e:00.0 ens3f0np0: Link up"
)
"""Printed twice, a moment apart, it is a link that flaps."""

OOM_KILL: Final = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/unicron-drill,task_memcg=/unicron-drill,task={name},pid={pid},uid=0\n"
    "Memory cgroup out of memory: Killed process {pid} ({name}) total-vm:5301232kB,"
    " anon-rss:466816kB, file-rss:86568kB, shmem-rss:0kB, UID:0 pgtables:1920kB oom_score_adj:0"
)
"""What the kernel prints when a memory limit ends a process."""
