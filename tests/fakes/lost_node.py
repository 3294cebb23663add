"""A herd of sleeping processes on two nodes, one of which is lost from within.

    python -m tests.fakes.lost_node DIRECTORY KIND

Prints the processes that are left after the herd was ended, a JSON list. Its own process, because a
herd ends everything below the process that it is in.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from peers.machine.peer_nodes import lose_own_node, on_node
from peers.machine.process_herd import Herd, adopt_orphans, descendants

_PROGRAM = [sys.executable, "-m", "tests.fakes.lost_node"]


def main() -> None:
    """Run the part that the command line names."""
    directory, part = Path(sys.argv[1]), sys.argv[2]
    match part:
        case "launcher":
            if os.fork():
                _say_ready(directory)
                os.wait()
            else:
                _sleep(directory)
        case "daemon":
            if os.fork() == 0:
                os.setsid()
                _sleep(directory)
        case "breaker":
            _say_ready(directory)
            while not (directory / "kind").exists():
                time.sleep(0.01)
            kind = (directory / "kind").read_text()
            lose_own_node("lost-node" if kind == "lost-node" else "killed-node")
        case kind:
            _lose(directory, kind)


def _sleep(directory: Path) -> None:
    _say_ready(directory)
    time.sleep(600)


def _say_ready(directory: Path) -> None:
    (directory / f"ready-{os.getpid()}").touch()


def _lose(directory: Path, kind: str) -> None:
    adopt_orphans()
    with Herd(directory / "log") as herd:
        for node, part in ((0, "launcher"), (1, "launcher"), (1, "daemon"), (1, "breaker")):
            environment = {**os.environ, **on_node(str(directory), node)}
            herd.start([*_PROGRAM, str(directory), part], environment)
        _wait_for(6, lambda: len(list(directory.glob("ready-*"))))
        # Who daemonised has left one process of two.
        _wait_for({"0": "RR", "1": "RRRR"}, _states)
        (directory / "kind.tmp").write_text(kind)
        (directory / "kind.tmp").rename(directory / "kind")
        lost = {"0": "RR", "1": "TTTT"} if kind == "lost-node" else {"0": "RR"}
        _wait_for(lost, _states)
    sys.stdout.write(json.dumps(descendants(os.getpid())))


def _wait_for(wanted: object, look: Callable[[], object]) -> None:
    until = time.monotonic() + 20  # noqa: TID251 - real processes take real time
    while (seen := look()) != wanted:
        assert time.monotonic() < until, seen  # noqa: TID251 - the same
        time.sleep(0.01)


def _states() -> dict[str, str]:
    """Return a letter per living process by node: T for stopped, R for all others."""
    found: dict[str, str] = {}
    for pid in descendants(os.getpid()):
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        mark = next((one.decode() for one in environ if one.startswith(b"RECOVERY_NODE=")), "?")
        if state != "Z":
            found[mark[-1]] = found.get(mark[-1], "") + ("T" if state == "T" else "R")
    return dict(sorted(found.items()))


if __name__ == "__main__":
    main()
