"""The table of statuses, read from ``data/statuses.toml`` and checked as a whole.

Code that needs one certain status asks ``named``. Everything else is asked of the facts of the
status at hand.
"""

import functools
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final, Literal, get_args

from profiles.faults.status import Severity, Status, StatusFacts
from profiles.faults.table_rows import CatalogueError, document_of, row_of, unknown

NamedStatus = Literal[
    "exited_abnormally",
    "gpu_driver_error",
    "illegal_memory_access",
    "link_flapping",
    "lost_connection",
    "nan_loss",
    "nccl_timeout",
    "none",
    "other_software_error",
    "task_hang",
]
"""Statuses that the code names itself. A table that lacks one of them is refused."""

_FILE: Final = "statuses.toml"


@functools.cache
def default_statuses() -> Mapping[str, Status]:
    """Return the table that ships with the package; read once per process."""
    return load_statuses(resources.files("profiles.faults").joinpath("data", _FILE))


def named(name: NamedStatus) -> Status:
    """Return a status of the package's own table."""
    return default_statuses()[name]


@functools.cache
def default_statuses_by_sign() -> Mapping[str, Status]:
    """Return which status of the package's own table a measurement of a node's probes means."""
    return status_by_sign(default_statuses())


def load_statuses(file: Traversable) -> Mapping[str, Status]:
    """Read a table of statuses; its order is that of the file.

    Raises:
        CatalogueError: The file can't be read, a status is wrong, or one that the code names is
            missing.
    """
    statuses: dict[str, Status] = {}
    for name, table in document_of(file).items():
        facts = row_of(f"{file.name}: status {name!r}", table, StatusFacts)
        statuses[name] = Status(name, facts)
    for name in get_args(NamedStatus):
        if name not in statuses:
            raise CatalogueError(f"{file.name}: status {name!r} is missing: the code names it")
    for status in statuses.values():
        _check(status, statuses, file.name)
    status_by_sign(statuses, file.name)
    return statuses


def find_status(statuses: Mapping[str, Status], name: str) -> Status:
    """Return the status ``name``.

    Raises:
        ValueError: There is none. The text names the nearest one.
    """
    if name not in statuses:
        raise ValueError(unknown("status", name, statuses))
    return statuses[name]


def status_by_sign(statuses: Mapping[str, Status], file_name: str = _FILE) -> Mapping[str, Status]:
    """Return which status a measurement of a node's probes means.

    Raises:
        CatalogueError: One measurement means two statuses.
    """
    by_sign: dict[str, Status] = {}
    for status in statuses.values():
        for sign in status.facts.measured_as:
            if sign in by_sign:
                raise CatalogueError(
                    f"{file_name}: status {status!r}: measured_as {sign!r} already means"
                    f" {by_sign[sign]!r}; leave it in one of them"
                )
            by_sign[sign] = status
    return by_sign


def _check(status: Status, statuses: Mapping[str, Status], file_name: str) -> None:
    other = status.facts.in_rank_counts_as
    if other is not None and other not in statuses:
        raise CatalogueError(
            f"{file_name}: status {status!r}: in_rank_counts_as: {unknown('status', other, statuses)}"
        )
    if status.is_fault == (status == "none"):
        raise CatalogueError(
            f"{file_name}: status {status!r}: severity {Severity.NONE.value!r} belongs to the status"
            " 'none', and to no other"
        )
