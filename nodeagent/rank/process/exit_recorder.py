"""The parent of a rank that the template did not fork: it waits for it and records its exit.

An agent can't wait for a process that is not its child, and may be replaced while the rank lives.
So each such rank has a small parent of its own, started with ``--state-dir`` and ``--launch``. The
pid in the rank's files is the rank's, not the parent's. What the rank leaves behind in its process
group ends with it: a program's children would hold its ports and its memory.
"""

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import ValidationError

from nodeagent.process_tools.clock import SystemNodeClock
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.rank.process.fork import fork_rank
from nodeagent.rank.process.process_files import ProcessFiles


class CannotStartError(ValueError):
    """The rank would fail before its first instruction; the text says why."""


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
        run: What the rank does, given the state directory; it returns the exit code.
        check: Raises ``CannotStartError`` where there is no use in a fork.

    Returns:
        0 once the rank has ended, however; 2 if nothing could be started, with a line on stderr.
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
    # Not reaped before its group is ended: until then its number can't come to mean another's.
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    files.write_exit(pid, status, SystemNodeClock().wall_s())
    return 0
