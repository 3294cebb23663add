"""A healthy demo on a busy machine: it must open no incident, for as long as one likes.

    python -m tests.campaigns.quiet [--iterations N] [--full-speed] [--no-load]

Both tasks of the demo train, with a checkpoint every 20 iterations, while a process that does
nothing but compute keeps a processor busy. At full speed, without the pauses that the demo makes to
be watched, iterations differ more among each other. One JSON object goes to standard output:
iterations, incidents, and warnings by kind. The exit code is 1 if there was an incident, or the run
did not end.

2,000 iterations take half an hour on two processors.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from profiles.task_profiles import default_task_profiles
from tests.fakes.demo_runs import command

_CHECKPOINT_INTERVAL = 20
_ALARMS = ("warning", "error")


def main(arguments: Sequence[str]) -> int:
    """Run the campaign and return the exit code."""
    parser = argparse.ArgumentParser(prog="quiet")
    parser.add_argument("--iterations", type=int, default=2000, metavar="N")
    parser.add_argument("--no-load", action="store_true", help="leave the other processor alone")
    parser.add_argument("--full-speed", action="store_true", help="train without pauses")
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    load = contextlib.nullcontext() if options.no_load else other_processor_busy()
    # A short path: the name of a unix socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="ur-") as directory, load:
        outcome, events, code = _run(
            Path(directory), options.iterations, is_full_speed=options.full_speed
        )
    found = {
        "exit_code": code,
        "took_s": round(time.perf_counter() - began, 1),
        "iterations": {task["name"]: task["iterations"] for task in outcome.get("tasks", [])},
        "incidents": outcome.get("incidents", []),
        "alarms": dict(Counter(e["kind"] for e in events if e["level"] in _ALARMS)),
        "texts": [
            f"{e['at']:.1f} {e['source']}: {e['text']}" for e in events if e["level"] in _ALARMS
        ],
    }
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    return 0 if code == 0 and not found["incidents"] else 1


@contextlib.contextmanager
def other_processor_busy() -> Iterator[None]:
    """Keep one processor busy inside the block."""
    process = multiprocessing.get_context("spawn").Process(target=_compute_for_ever, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _compute_for_ever() -> None:
    parent, number = os.getppid(), 0
    while os.getppid() == parent:
        number = (number * 6_364_136_223_846_793_005 + 1) % 2**64


def _run(
    directory: Path, num_iterations: int, *, is_full_speed: bool
) -> tuple[dict[str, Any], list[Any], int]:
    """Run the demo in ``directory``; return its outcome, its events and its exit code."""
    tasks, log = directory / "tasks.toml", directory / "events.jsonl"
    tasks.write_text(_tasks(is_full_speed=is_full_speed))
    options = ("--headless", "--json", "--auto-heal", "--event-log", str(log))
    finished = subprocess.run(
        command(*options, "--iterations", str(num_iterations), "--tasks", str(tasks)),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(directory)},
    )
    events = [json.loads(line) for line in log.read_text().splitlines()]
    outcome = json.loads(finished.stdout) if finished.stdout else {}
    return outcome, events, finished.returncode


def _tasks(*, is_full_speed: bool) -> str:
    """Return the demo's tasks as TOML, with fewer checkpoints."""
    blocks = []
    for profile in default_task_profiles():
        fields = profile.model_dump(mode="json", exclude_none=True)
        fields["checkpoint_interval"] = _CHECKPOINT_INTERVAL
        if is_full_speed:
            fields["iteration_floor_s"] = 0.0
        blocks.append(
            "[[task]]\n" + "\n".join(f"{key} = {_toml(value)}" for key, value in fields.items())
        )
    return "\n".join(blocks) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    return json.dumps(value)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
