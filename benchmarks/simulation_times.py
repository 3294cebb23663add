"""Measures how long simulations take, beside those of an older checkout.

    python benchmarks/simulation_times.py BEFORE SCENARIO... [--policy NAME]... [--rounds N]

BEFORE is a directory with an older checkout, for instance one of ``git worktree add``. Each
scenario is simulated with one seed, in turn by the older checkout and by this one, each as a
process of its own on one core. Figures:

- ``before_s``, ``after_s``: the processor's time in user mode, the median of the rounds;
- ``ratio``: the first over the second, the median of the rounds;
- ``same``: whether both printed the same results, as JSON.
"""

import argparse
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any, Final

from harness.result_pages import ROOT
from harness.termination import end_on_sigterm

_POLICIES: Final = ("unicron", "equal")
_CODE: Final = """
import importlib.util, os, sys
sys.path.insert(0, os.getcwd())
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
has_entry = importlib.util.find_spec("controller.entry_point")
if has_entry:
    from controller.entry_point import main
else:
    from controller.cli import main
sys.exit(main())
"""


def main() -> None:
    """Measure every scenario, and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("before", type=Path, metavar="BEFORE", help="an older checkout")
    parser.add_argument("scenarios", nargs="+", metavar="SCENARIO", help="a name or a file")
    parser.add_argument("--policy", action="append", metavar="NAME", help="default unicron, equal")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="default 1")
    options = parser.parse_args()
    end_on_sigterm()
    for scenario in options.scenarios:
        found = _measure(options.before, scenario, options.policy or _POLICIES, options.rounds)
        sys.stdout.write(f"{json.dumps(found)}\n")
        sys.stdout.flush()


def _measure(
    before: Path, scenario: str, policies: tuple[str, ...], num_rounds: int
) -> dict[str, Any]:
    name = str(Path(scenario).absolute()) if Path(scenario).is_file() else scenario
    words = ["simulate", name, "--seeds", "1", "--json"]
    words += [word for policy in policies for word in ("--policy", policy)]
    times: list[tuple[float, float]] = []
    is_same = True
    for _ in range(num_rounds):
        old_s, old = _run(before, words)
        new_s, new = _run(ROOT, words)
        times.append((old_s, new_s))
        is_same &= old == new
    return {
        "scenario": Path(scenario).name,
        "policies": list(policies),
        "before_s": round(statistics.median(old_s for old_s, _ in times), 1),
        "after_s": round(statistics.median(new_s for _, new_s in times), 1),
        "ratio": round(statistics.median(old_s / new_s for old_s, new_s in times), 2),
        "same": is_same,
    }


def _run(checkout: Path, words: list[str]) -> tuple[float, bytes]:
    """Run ``unicron`` from a checkout; return its time in user mode, and what it printed."""
    reading, writing = os.pipe()
    command = [sys.executable, "-c", _CODE, *words]
    process = os.posix_spawn(
        "/usr/bin/env",
        ["env", "-C", str(checkout.absolute()), *command],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, writing, 1), (os.POSIX_SPAWN_CLOSE, reading)],
    )
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        printed = pipe.read()
    _, status, usage = os.wait4(process, 0)
    if status:
        sys.exit(f"{checkout}: unicron {' '.join(words)} ended with status {status}")
    return usage.ru_utime, printed


if __name__ == "__main__":
    main()
