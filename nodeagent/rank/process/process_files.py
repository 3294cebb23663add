"""The files about one rank's process, in ``ranks/`` of the node's state directory.

The parent of a rank writes them, and the agent reads them. So a restarted agent finds its ranks,
and it learns of exits although the ranks are not its children. A file is replaced in one step, so a
reader sees all of it or nothing.

The rank ``<task>.<generation>.<global_rank>`` has these files:

- ``.json``, written right after the fork: ``launch``, ``pid``, ``start_ticks``.
- ``.exit``, written when the rank was reaped: ``pid``, ``exit_code``, ``signal``,
  ``is_core_dumped``, ``wall_s``.
- ``.log``: its standard output and error.
- ``.stack``: its stacks, dumped at a signal.
- ``.attached``: exists once the program of a command has attached to the agent.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from nodeagent.protocol.rank_launch import RankLaunch


@dataclass(frozen=True, slots=True)
class ProcessFiles:
    """Paths of one rank's files.

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
        return self.directory / f"{self.stem}.log"

    @property
    def stack(self) -> Path:
        """The file to which the rank's fault handler dumps its stacks at a signal."""
        return self.directory / f"{self.stem}.stack"

    @property
    def attached(self) -> Path:
        """The file that exists once the program of a command has attached."""
        return self.directory / f"{self.stem}.attached"

    def write_start(self, launch: RankLaunch, pid: int) -> None:
        """Record that the rank runs as ``pid``. Raises ``OSError``."""
        record = {
            "launch": launch.model_dump(mode="json"),
            "pid": pid,
            "start_ticks": start_ticks(pid),
        }
        self._replace("json", record)

    def write_exit(self, pid: int, wait_status: int, wall_s: float) -> None:
        """Record how the rank ended, from the status that ``waitpid`` gave. Raises ``OSError``."""
        code = os.waitstatus_to_exitcode(wait_status)
        record: dict[str, object] = {
            "pid": pid,
            "exit_code": code if code >= 0 else None,
            "signal": -code if code < 0 else None,
            "is_core_dumped": os.WCOREDUMP(wait_status),
            "wall_s": wall_s,
        }
        self._replace("exit", record)

    def clear(self) -> None:
        """Remove the exit and the mark ``attached`` of an earlier process of the same rank."""
        (self.directory / f"{self.stem}.exit").unlink(missing_ok=True)
        self.attached.unlink(missing_ok=True)

    def _replace(self, ending: str, record: dict[str, object]) -> None:
        final = self.directory / f"{self.stem}.{ending}"
        temporary = self.directory / f".{self.stem}.{ending}.{os.getpid()}"
        temporary.write_text(json.dumps(record))
        temporary.replace(final)


def start_ticks(pid: int) -> int:
    """Return field 22 of ``/proc/<pid>/stat``: when the process began, in clock ticks since boot.

    Together with the pid it names a process for good, while a pid alone is used again.

    Raises:
        OSError: There is no such process.
    """
    stat = Path(f"/proc/{pid}/stat").read_text()
    # The second field is the name in parentheses and may hold anything, spaces included.
    return int(stat.rpartition(")")[2].split()[19])
