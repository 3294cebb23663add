"""Starts the programs of ``nodeagent/rank``: the template, single ranks without it, and commands.

They live in sessions of their own, so that the agent's end is not theirs, and with one thread each
for numerics until a rank sets its own. Their environment names the state directory, so that
``unicron``'s node command can find every one of them again, whoever forked it. The agent itself
imports nothing of theirs.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # commands of the node need neither, nor the protocol that they import
    from nodeagent.ranks.rank_files import RankFiles
    from nodeagent.ranks.supervisor import RankKey

TEMPLATE_MODULE: Final = "nodeagent.rank.process.template"
COLD_MODULE: Final = "nodeagent.rank.process.cold_start"
COMMAND_MODULE: Final = "nodeagent.rank.process.command_rank"
STATE_DIR_VARIABLE: Final = "UNICRON_STATE_DIR"
_ONE_THREAD: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def code_dir() -> Path:
    """Return the directory that holds the packages this agent runs from."""
    return Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Launcher:
    """What to run for a template and for a cold rank.

    Attributes:
        state_dir: The node's state directory, absolute.
        template_module: Module that is run as the template.
        cold_module: Module that starts one rank without a template.
    """

    state_dir: Path
    template_module: str = TEMPLATE_MODULE
    cold_module: str = COLD_MODULE

    @property
    def template_log(self) -> Path:
        """Where the template's output goes."""
        return self.state_dir / "template.log"

    def start_template(self) -> subprocess.Popen[bytes]:
        """Start a template. Raises ``OSError`` if no process can be made."""
        return self._start(self.template_module, [], self.template_log)

    def start_cold(
        self, files: "RankFiles", key: "RankKey", launch: Path
    ) -> subprocess.Popen[bytes]:
        """Start the rank that is described in ``launch``; its output goes to the rank's log.

        Raises:
            OSError: No process can be made.
        """
        return self._start(self.cold_module, ["--launch", str(launch)], files.log(key))

    def start_command(
        self, files: "RankFiles", key: "RankKey", launch: Path
    ) -> subprocess.Popen[bytes]:
        """Start the command that is described in ``launch``; its output goes to the rank's log.

        Raises:
            OSError: No process can be made.
        """
        return self._start(COMMAND_MODULE, ["--launch", str(launch)], files.log(key))

    def _start(self, module: str, arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", module, "--state-dir", str(self.state_dir), *arguments]
        with log.open("ab") as output:
            return subprocess.Popen(  # noqa: S603 - the command is our own
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.state_dir,
                env=_environment(self.state_dir),
                start_new_session=True,
            )


def _environment(state_dir: Path) -> dict[str, str]:
    paths = [str(code_dir()), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        **dict.fromkeys(_ONE_THREAD, "1"),
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYTHONUNBUFFERED": "1",
        STATE_DIR_VARIABLE: str(state_dir),
    }
