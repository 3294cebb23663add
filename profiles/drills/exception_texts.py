"""Exceptions that a drill raises in a rank, one for each status that surfaces as an exception.

The texts are data: ``data/exceptions.toml``.
"""

import functools
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from profiles.faults.status import Status, TableStatus
from profiles.faults.status_table import default_statuses, find_status
from profiles.faults.table_rows import CatalogueError, rows_of

ExceptionName = Literal[
    "AcceleratorError",
    "DistBackendError",
    "KeyError",
    "OSError",
    "OutOfMemoryError",
    "RuntimeError",
]
"""Classes that a rank can raise (``nodeagent.rank.agent_link.staged_faults`` imports them)."""

_CUDA_ADVICE: Final = (
    "\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace"
    " below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)


class Raised(BaseModel):
    """An exception that a drill raises.

    Attributes:
        status: The status that its words name.
        exception: Name of its class.
        message: Its text.
        has_cuda_advice: Whether PyTorch's advice on CUDA errors follows the text.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: TableStatus
    exception: ExceptionName
    message: str = Field(min_length=1)
    has_cuda_advice: bool = False

    @property
    def whole_message(self) -> str:
        """The text as the rank's exception has it."""
        return self.message + (_CUDA_ADVICE if self.has_cuda_advice else "")


def load_exceptions(file: Traversable, statuses: Mapping[str, Status]) -> Mapping[str, Raised]:
    """Return the exceptions of a file by their status.

    Raises:
        CatalogueError: The file can't be read, an exception is wrong, or a status comes twice.
    """
    raised_by_status: dict[str, Raised] = {}
    find = functools.partial(find_status, statuses)
    for raised in rows_of(file, "exception", Raised, find, title="status"):
        if raised.status in raised_by_status:
            raise CatalogueError(
                f"{file.name}: exception {raised.status!r} is there twice; leave one of them"
            )
        raised_by_status[raised.status] = raised
    return raised_by_status


RAISED_BY_STATUS: Final = load_exceptions(
    resources.files("profiles.drills").joinpath("data", "exceptions.toml"), default_statuses()
)
