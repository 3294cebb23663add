"""``unicron classify``: reads logs and prints the faults in them.

``profiles.faults`` classifies. This module handles files, terminals and exit codes.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress

from controller.classify.explain_catalogue import UnknownNameError, explanation, listing
from controller.classify.findings_text import JsonReport, TextReport
from controller.classify.log_inputs import InputError, chunks, lines, name_of, opened
from controller.classify.specimens import SpecimenError, classify_specimen
from profiles.faults.catalogue import default_catalogue
from profiles.faults.stream import FindingStream

_PROGRESS_BYTES: Final = 32 << 20
"""The smallest file that gets a progress bar."""
_INTERRUPTED: Final = 130
_PIPE_CLOSED: Final = 141


class _UsageError(Exception):
    """Two options conflict. The text is one line."""


def run(arguments: argparse.Namespace) -> int:
    """Run ``unicron classify`` and return the exit code: 0 read to the end, 2 wrong input."""
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except (InputError, UnknownNameError, _UsageError) as error:
        return _fail(str(error))
    except BrokenPipeError:
        # The reader closed the pipe. Without this, Python would report it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except KeyboardInterrupt:
        return _INTERRUPTED
    return code


def _run(arguments: argparse.Namespace) -> int:
    if arguments.list:
        return _print(listing(default_catalogue()))
    if arguments.explain is not None:
        return _print(explanation(arguments.explain, default_catalogue()))
    if arguments.jsonl is not None:
        if arguments.file != "-" or arguments.json:
            raise _UsageError(
                "--jsonl reads its own file and prints JSON: leave out FILE and --json"
            )
        return _classify_specimens(arguments.jsonl)
    return _find(arguments.file, is_json=arguments.json)


def _print(text: Iterator[str]) -> int:
    for line in text:
        sys.stdout.write(f"{line}\n")
    return 0


def _fail(message: str) -> int:
    sys.stderr.write(f"unicron classify: {message}\n")
    return 2


def _classify_specimens(path: str) -> int:
    num_wrong = 0
    with opened(path) as file:
        for number, line in enumerate(lines(file, name_of(path)), start=1):
            if not line.strip():
                continue
            try:
                verdict = classify_specimen(line)
            except SpecimenError as error:
                num_wrong += 1
                _fail(f"{name_of(path)}: line {number}: {error}")
                continue
            sys.stdout.write(json.dumps(verdict) + "\n")
    return 2 if num_wrong else 0


def _find(path: str, *, is_json: bool) -> int:
    write = sys.stdout.write
    report = JsonReport(write, path) if is_json else TextReport(write, name_of(path))
    stream = FindingStream()
    with opened(path) as file, _progress(path) as advance:
        report.begin()
        for chunk in chunks(file, name_of(path)):
            for finding in stream.feed(chunk):
                report.add(finding)
            advance(len(chunk))
    for finding in stream.close():
        report.add(finding)
    report.end(stream.num_lines)
    return 0


@contextmanager
def _progress(path: str) -> Iterator[Callable[[int], None]]:
    """Show a progress bar while a big file is read, if standard error is a terminal."""
    size = 0 if path == "-" else Path(path).stat().st_size
    if size < _PROGRESS_BYTES or not sys.stderr.isatty():
        yield lambda _: None
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(Path(path).name, total=size)
        yield lambda num_bytes: bar.advance(task, num_bytes)
