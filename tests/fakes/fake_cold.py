"""A cold start of a fake rank: forks it, writes its files and waits, as the real one does."""

import argparse
import os
import sys
from pathlib import Path

from nodeagent.protocol.rank_launch import RankLaunch
from tests.fakes.fake_rank import fork_rank, script_of, write_exit


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--launch", type=Path, required=True)
    options = parser.parse_args()
    rank = RankLaunch.model_validate_json(options.launch.read_bytes())
    if script_of(rank).is_cold_start_broken:
        sys.stderr.write("can't start: its script says so\n")
        return 2
    pid = fork_rank(options.state_dir, rank, [])
    write_exit(options.state_dir, rank, pid, os.waitpid(pid, 0)[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
