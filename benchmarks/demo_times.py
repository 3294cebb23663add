"""Measures the demo as a user runs it, and prints one JSON object.

    python benchmarks/demo_times.py [--repeat N] [--write-docs]

Figures, seconds unless said otherwise, median and worst over the repeats:

- ``first_iteration``: from the command to the moment when every task has committed an iteration;
- ``agent_ready``: from an agent process's start to its socket answering, as the agent itself says;
- ``agent_rss_mb``: the largest resident memory of any agent at the end of the run;
- ``rank_start``: from the order to start a rank to its process, forked from the warm template;
- ``detect_*``, ``recovery_*``, ``cure_*``: from a fault to its detection, to the first iteration
  after it, and to its incident's end.

These are measurements of one machine at one time, not limits.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from harness.result_pages import (
    MEASUREMENTS,
    command_line,
    machine,
    machine_line,
    write_results,
    write_section,
)
from harness.termination import end_on_sigterm

DRILLS = ("kill-rank@8", "lose-node@16")
_TITLES: Final = {
    "first_iteration": "from the command until all tasks are past their first iteration",
    "total": "whole run, both faults healed",
    "agent_ready": "an agent's start until its socket answers",
    "agent_rss_mb": "resident memory of the largest agent at the end of the run (no torch imported), MB",
    "rank_start": "order to start a rank until its process runs, forked from the warm template",
    "detect_exited_abnormally": "killed rank: fault until first trace",
    "recovery_exited_abnormally": "killed rank: fault until its task has committed the next iteration",
    "cure_exited_abnormally": "killed rank: fault until the incident is resolved",
    "detect_lost_connection": "lost node: connection lost until it is given up",
    "recovery_lost_connection": "lost node: until the tasks it hit have committed the next iteration",
    "cure_lost_connection": "lost node: until the incident is resolved",
}


def main() -> None:
    """Run the demo a few times and print what was measured."""
    end_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs (default 3)")
    parser.add_argument("--write-docs", action="store_true", help=f"update {MEASUREMENTS.name}")
    arguments = parser.parse_args()
    samples: dict[str, list[float]] = {}
    for number in range(arguments.repeat):
        sys.stderr.write(f"run {number + 1} of {arguments.repeat}\n")
        for name, value in measure().items():
            samples.setdefault(name, []).append(value)
    report = {
        **machine(),
        "command": command_line(),
        "repeats": arguments.repeat,
        "median": {name: round(statistics.median(values), 3) for name, values in samples.items()},
        "worst": {name: round(max(values), 3) for name, values in samples.items()},
    }
    json.dump(report, sys.stdout, indent=2)
    sys.stdout.write("\n")
    if arguments.write_docs:
        write_results("demo_times", report)
        write_section(MEASUREMENTS, "demo_times", _section(report))


def _section(report: dict[str, Any]) -> str:
    rows = "\n".join(
        f"| {_TITLES.get(name, name)} | {median:.2f} | {report['worst'][name]:.2f} |"
        for name, median in report["median"].items()
    )
    return f"""\
{machine_line(report)}

    {report["command"]}

| | median | worst of {report["repeats"]} |
|---|---|---|
{rows}"""


def measure() -> dict[str, float]:
    """Run the demo once and return its figures."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "events.jsonl"
        command = [sys.executable, "-m", "controller.cli", "demo", "--headless", "--auto-heal"]
        command += [word for drill in DRILLS for word in ("--drill", drill)]
        command += ["--iterations", "30", "--json", "--event-log", str(log)]
        finished = subprocess.run(command, check=True, capture_output=True, text=True)
        events = [json.loads(line) for line in log.read_text().splitlines()]
    outcome = json.loads(finished.stdout)
    first: dict[str, float] = {}
    for event in events:
        if event["kind"] == "iteration":
            first.setdefault(event["source"], event["at"])
    figures = {
        "first_iteration": max(first.values()),
        "total": events[-1]["at"],
        "agent_ready": measure_agent_start(),
        "agent_rss_mb": max(node["agent_rss_bytes"] for node in outcome["nodes"]) / 1e6,
        "rank_start": statistics.median(
            e["start_s"] for e in events if e["kind"] == "rank_started" and e["generation"] > 1
        ),
    }
    for incident in outcome["incidents"]:
        status = incident["status"]
        figures[f"detect_{status}"] = incident["detected_at"] - incident["fault_at"]
        figures[f"recovery_{status}"] = incident["recovery_s"]
        figures[f"cure_{status}"] = incident["resolved_at"] - incident["fault_at"]
    return figures


def measure_agent_start() -> float:
    """Start an agent on its own and return the seconds until its socket answered."""
    agent = [sys.executable, "-m", "nodeagent"]
    with tempfile.TemporaryDirectory() as directory:
        place = ["--state-dir", directory]
        start = [*agent, "start", *place, "--node", "n1", "--num-workers", "2", "--no-template"]
        started = subprocess.run(start, check=True, capture_output=True, text=True)
        subprocess.run([*agent, "stop", *place], check=True, capture_output=True)
    return float(json.loads(started.stdout)["ready_s"])


if __name__ == "__main__":
    main()
