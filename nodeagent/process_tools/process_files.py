"""The files of one rank's process, in ``ranks/`` of the node's state directory.

The template or the exit recorder writes them, and the agent reads them: a restarted agent finds its
ranks there, since it can't wait for processes that are not its children. Every record is replaced
in one step, so a reader sees a whole record or none.

All are called ``<task>.<generation>.<global_rank>`` with one of these endings:

``.log``       standard output and error
``.json``      ``StartRecord``, right after the fork
``.exit``      ``ExitRecord``, once the process was reaped
``.launch``    the launch of a cold start; the agent writes it
``.stack``     stacks, written by the fault handler on a signal
``.attached``  exists once the program of a command task has attached
``.error``     written by a command whose main function has torch's decorator ``record``

Not here: the directory as a whole (``nodeagent.ranks.rank_files``).
"""

import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from nodeagent.protocol.rank_launch import RankLaunch


class StartRecord(BaseModel):
    """Content of ``.json``: a process that was started.

    Attributes:
        launch: The rank that it was started as.
        pid: The process.
        start_ticks: When it began, see ``start_ticks``.
    """

    model_config = ConfigDict(frozen=True)

    launch: RankLaunch
    pid: int
    start_ticks: int


class ExitRecord(BaseModel):
    """Content of ``.exit``: how a process ended."""

    model_config = ConfigDict(frozen=True)

    pid: int
    exit_code: int | None = None
    signal: int | None = None
    is_core_dumped: bool = False
    wall_s: float


@dataclass(frozen=True, slots=True)
class ProcessFiles:
    """Paths of one process's files.

    Attributes:
        directory: ``ranks/`` of the state directory.
        stem: Name of the files without their ending.
    """

    directory: Path
    stem: str

    @classmethod
    def of(cls, state_dir: Path, launch: RankLaunch) -> "ProcessFiles":
        """Return the files of ``launch``.

        Raises:
            ValueError: The task's name can't be part of a file name.
        """
        if not launch.task or "/" in launch.task or "\0" in launch.task:
            raise ValueError(f"task name {launch.task!r} can't be part of a file name")
        stem = f"{launch.task}.{launch.generation}.{launch.global_rank}"
        return cls(state_dir / "ranks", stem)

    @property
    def log(self) -> Path:
        """Standard output and error of the rank."""
        return self._with(".log")

    @property
    def start(self) -> Path:
        """The ``StartRecord``."""
        return self._with(".json")

    @property
    def exit(self) -> Path:
        """The ``ExitRecord``."""
        return self._with(".exit")

    @property
    def launch(self) -> Path:
        """The launch of a cold start. A rank without this file was forked from the template."""
        return self._with(".launch")

    @property
    def stack(self) -> Path:
        """Where the rank's fault handler writes its stacks on a signal."""
        return self._with(".stack")

    @property
    def attached(self) -> Path:
        """Exists once the program of a command task has attached."""
        return self._with(".attached")

    @property
    def error(self) -> Path:
        """Where torch's ``record`` writes the exception of a command."""
        return self._with(".error")

    @property
    def temporary(self) -> tuple[Path, ...]:
        """All files but the log: they are removed once the exit is stored."""
        return self.start, self.exit, self.launch, self.stack, self.attached, self.error

    def write_start(self, launch: RankLaunch, pid: int) -> None:
        """Record that the rank runs as ``pid``. Raises ``OSError``."""
        replace_file(self.start, StartRecord(launch=launch, pid=pid, start_ticks=start_ticks(pid)))

    def write_exit(self, pid: int, wait_status: int, wall_s: float) -> None:
        """Record how the rank ended, from the status that ``waitpid`` gave. Raises ``OSError``."""
        code = os.waitstatus_to_exitcode(wait_status)
        record = ExitRecord(
            pid=pid,
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            is_core_dumped=os.WCOREDUMP(wait_status),
            wall_s=wall_s,
        )
        replace_file(self.exit, record)

    def clear(self) -> None:
        """Remove what an earlier process of the same rank has left."""
        for path in (self.exit, self.attached, self.error):
            path.unlink(missing_ok=True)

    def _with(self, ending: str) -> Path:
        return self.directory / f"{self.stem}{ending}"


def replace_file(path: Path, content: BaseModel) -> None:
    """Write ``content`` as JSON in one step: a reader sees the old file or the new one.

    Raises:
        OSError: It can't be written; the old file stays.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(content.model_dump_json())
    scratch.replace(path)


def start_ticks(pid: int) -> int:
    """Return field 22 of ``/proc/<pid>/stat``: when the process began, in clock ticks since boot.

    Together with the pid it names one process for ever. A pid alone is used again.

    Raises:
        OSError: There is no such process.
    """
    stat = Path(f"/proc/{pid}/stat").read_text()
    # The second field is the name in parentheses and may hold anything, spaces included.
    return int(stat.rpartition(")")[2].split()[19])
