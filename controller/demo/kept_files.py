"""The files of a run that ``unicron demo --keep DIR`` copies, before the warden removes them.

``DIR`` gets the journal and the event log, and a directory for each node: the logs of
its agent, its template and its ranks, the exit status of each rank, and the kernel log. Keys,
server configurations and checkpoints are not copied. The directory of a node that was restored has
only the files since then.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from controller.core.state.incident import Incident
from controller.localcluster.local_node import LocalNode
from controller.store.run_file import JOURNAL_NAME
from controller.store.segments import segments_directory

EVENT_LOG_NAME: Final = "events.jsonl"
_OF_A_NODE: Final = ("agent.log*", "template.log", "kernel.log", "ranks/*.log", "ranks/*.exit")

_MAX_LOGS: Final = 8
"""Logs that are named for one incident: those of its first pieces of evidence."""


def why_unusable(directory: Path) -> str:
    """Return why nothing can be kept in ``directory``; empty if it is new or empty."""
    try:
        if directory.is_dir():
            has_files = any(directory.iterdir())
            return "is not empty; choose an empty or a new directory" if has_files else ""
        if directory.exists():
            return "is no directory; choose an empty or a new directory"
        if not directory.parent.is_dir():
            return f"there is no directory {directory.parent}; create it or choose another"
    except OSError as error:
        return f"{(error.strerror or 'unreadable').lower()}: {error.filename}"
    return ""


def keep_files(
    directory: Path, root: Path, nodes: Iterable[LocalNode], event_log: Path | None
) -> None:
    """Copy the files of a run. Agents and ranks may still append to their logs.

    Args:
        directory: Where to; it is made with mode 0700 if it is new.
        root: The directory of the run.
        nodes: All nodes of the run.
        event_log: The event log; None if none was written.

    Raises:
        OSError: A file can't be copied.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    closed = segments_directory(root / JOURNAL_NAME)
    found = [
        (path, directory / path.relative_to(root))
        for path in (root / JOURNAL_NAME, *sorted(closed.glob("*")))
    ]
    if event_log is not None:
        found.append((event_log, directory / EVENT_LOG_NAME))
    for node in nodes:
        found += [
            (path, directory / node.node / path.relative_to(node.state_dir))
            for pattern in _OF_A_NODE
            for path in sorted(node.state_dir.glob(pattern))
        ]
    for source, target in found:
        _copy(source, target)


class KeptLogs:
    """Names the files to which ``keep_files`` will copy the logs of ranks that incidents are about.

    Args:
        directory: The ``DIR`` of ``--keep``.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._told: set[tuple[str, Path]] = set()

    def new(self, incidents: Iterable[Incident]) -> list[tuple[str, Path]]:
        """Return a line for operators and the path for each log that was not named before."""
        found: list[tuple[str, Path]] = []
        for incident in incidents:
            for item in incident.evidence[:_MAX_LOGS]:
                if not item.log or item.node is None:
                    continue
                path = self._directory / item.node / "ranks" / PurePosixPath(item.log).name
                if (incident.name, path) not in self._told:
                    self._told.add((incident.name, path))
                    who = f"rank {item.global_rank} of {item.task}"
                    found.append((f"{incident.name}: the log of {who} is kept as {path}", path))
        return found


def _copy(source: Path, target: Path) -> None:
    if not source.exists():
        return  # the run ended before it was written
    if target.exists() and target.samefile(source):
        return  # the event log was written into the directory
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copyfile(source, target)
