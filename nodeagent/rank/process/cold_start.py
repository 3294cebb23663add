"""A rank started without the template: slower by the imports, otherwise the same.

    python -m nodeagent.rank.process.cold_start --state-dir DIR --launch FILE

``FILE`` holds a ``RankLaunch`` as JSON. This small process forks the rank before anything is
imported, waits for it, and records its exit (``exit_recorder``). To the agent a cold rank looks
like a warm one. It also survives the agent like a warm one.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.rank.process.exit_recorder import run_recorded
from nodeagent.rank.process.warm_imports import import_training_program


def main(arguments: Sequence[str] | None = None) -> int:
    """Start one rank and wait for its end. Returns 0, or 2 if nothing could be started."""
    return run_recorded("nodeagent.rank.process.cold_start", arguments, _import_and_run)


def _import_and_run(state_dir: Path, launch: RankLaunch) -> int:
    run_rank = import_training_program()
    return run_rank(state_dir, launch)


if __name__ == "__main__":
    sys.exit(main())
