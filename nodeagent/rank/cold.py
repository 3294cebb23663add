"""A rank started without the template: slower by the imports, otherwise the same.

    python -m nodeagent.rank.cold --state-dir DIR --launch FILE

``FILE`` holds a ``RankLaunch`` as JSON. This small process forks the rank before anything is
imported, then waits for it and records its exit: to the agent, a cold rank looks like a warm one,
and survives it in the same way. The pid in the rank's files is the rank's, not this process's.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from nodeagent.clock import SystemClock
from nodeagent.protocol.training import RankLaunch
from nodeagent.rank.files import RankFiles
from nodeagent.rank.imports import import_training_program
from nodeagent.rank.process import fork_rank


def main(arguments: Sequence[str] | None = None) -> int:
    """Start one rank and wait for its end. Returns 0, or 2 if nothing could be started."""
    parser = argparse.ArgumentParser(prog="nodeagent.rank.cold")
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--launch", type=Path, required=True)
    options = parser.parse_args(arguments)
    try:
        launch = RankLaunch.model_validate_json(options.launch.read_bytes())
        files = RankFiles.of(options.state_dir, launch)
        pid = fork_rank(
            files, launch, lambda: _import_and_run(options.state_dir, launch), lambda: None
        )
    except (OSError, ValidationError, ValueError) as error:
        sys.stderr.write(f"can't start the rank of {options.launch}: {error}\n")
        return 2
    _, status = os.waitpid(pid, 0)
    files.write_exit(pid, status, SystemClock().wall_s())
    return 0


def _import_and_run(state_dir: Path, launch: RankLaunch) -> int:
    run_rank = import_training_program()
    return run_rank(state_dir, launch)


if __name__ == "__main__":
    sys.exit(main())
