"""Where results go: JSON files and generated sections of the documentation."""

import argparse
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).absolute().parents[2]
MEASUREMENTS: Final = ROOT / "docs" / "measurements.md"


def machine() -> dict[str, Any]:
    """Return what a figure depends on besides the code."""
    return {
        "version": version("unicron"),
        "torch": version("torch"),
        "megatron_core": version("megatron-core"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": len(os.sched_getaffinity(0)),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def command_line() -> str:
    """Return the command that runs this program as it was run, less what says where results go."""
    words = [word for word in sys.argv[1:] if word != "--write-docs"]
    return shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *words])


def machine_line(found: dict[str, Any]) -> str:
    """Return ``machine`` in words."""
    return (
        f"{found['date']}, {found['cores']} cores ({found['system']}); Python {found['python']},"
        f" torch {found['torch']}, megatron-core {found['megatron_core']}."
    )


def write_results(name: str, report: dict[str, Any]) -> Path:
    """Write ``docs/benchmarks/<name>.json`` and return its path."""
    path = ROOT / "docs" / "benchmarks" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
    return path


def read_results(name: str) -> dict[str, Any]:
    """Return what ``write_results`` wrote last; empty if it never did."""
    path = ROOT / "docs" / "benchmarks" / f"{name}.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def with_others(name: str, cases: list[dict[str, Any]], *keys: str) -> list[dict[str, Any]]:
    """Return ``cases`` and earlier cases of the same model; ``keys`` distinguish cases."""

    def key_of(case: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(case[key] for key in keys)

    measured = {
        key_of(case): case
        for case in [*read_results(name).get("cases", []), *cases]
        if case["model"] == cases[0]["model"]
    }
    return [measured[key] for key in sorted(measured)]


def origin(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what a case of its own date says of how it was measured."""
    return {
        "date": machine()["date"],
        "command": command_line(),
        "model": {"num_layers": arguments.layers, "hidden_size": arguments.hidden_size},
    }


def commands_of(cases: Sequence[dict[str, Any]]) -> str:
    """Return the commands that measured ``cases``, each once, as a block of a page."""
    return "\n".join(dict.fromkeys(f"    {case['command']}" for case in cases))


def write_section(page: Path, name: str, text: str, script: str | None = None) -> None:
    """Put ``text`` between the markers of ``page`` for ``name``, which ``script`` owns.

    ``script`` is the name of a benchmark's module: ``name`` if None.

    Raises:
        ValueError: The page has no such markers.
    """
    begin = f"<!-- {name}: made by benchmarks/{script or name}.py, do not edit -->"
    end = f"<!-- {name}: end -->"
    before, found_begin, rest = page.read_text().partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise ValueError(f"{page}: the lines {begin!r} and {end!r} are missing")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}")
