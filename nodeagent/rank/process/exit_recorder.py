"""The parent of a rank that the template did not fork. It waits for the rank and records its exit.

An agent can't wait for a process that is not its child, and may be replaced while the rank lives.
So each such rank has a small parent of its own, started with ``--state-dir`` and ``--launch``. The
pid in the rank's files is that of the rank, not of its parent.

When the rank ends, the parent kills the rest of its process group. Children of the program would
otherwise hold its ports and its memory.
"""

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import ValidationError

from nodeagent.process_tools.node_clock import SystemNodeClock
from nodeagent.process_tools.process_files import ProcessFiles
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.rank.process.fork import fork_rank


class CannotStartError(ValueError):
    """The rank can't be started. The text says why."""


def run_recorded(
    program: str,
    arguments: Sequence[str] | None,
    run: Callable[[Path, RankLaunch], int],
    check: Callable[[RankLaunch], None] = lambda _launch: None,
) -> int:
    """Fork one rank and wait for its end.

    Args:
        program: Name for messages.
        arguments: The command line.
        run: Runs in the rank with the state directory and the launch; returns the exit code.
        check: Runs before the fork; raises ``CannotStartError`` if the rank can't be started.

    Returns:
        0 once the rank has ended in any way; 2 if it could not be started, with a line on stderr.
    """
    parser = argparse.ArgumentParser(prog=program)
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--launch", type=Path, required=True)
    options = parser.parse_args(arguments)
    try:
        launch = RankLaunch.model_validate_json(options.launch.read_bytes())
        check(launch)
        files = ProcessFiles.of(options.state_dir, launch)
        pid = fork_rank(files, launch, lambda: run(options.state_dir, launch), lambda: None)
    except CannotStartError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except (OSError, ValidationError, ValueError) as error:
        sys.stderr.write(f"can't start the rank of {options.launch}: {error}\n")
        return 2
    # Kill the group before the rank is reaped: until then no other process can get its pid.
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    files.write_exit(pid, status, SystemNodeClock().wall_s())
    return 0
