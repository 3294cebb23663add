"""``unicron classify``: reads logs and prints the faults in them.

``profiles.faults`` classifies. This module handles options and exit
codes; ``log_reading`` handles files.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from typing import Final

from rich.console import Console

from controller.classify.explain_catalogue import UnknownNameError, explanation, listing
from controller.classify.input_error import InputError
from controller.classify.log_inputs import lines, name_of, opened
from controller.classify.log_paths import STANDARD_INPUT
from controller.classify.log_reading import classify_logs
from controller.classify.specimens import SpecimenError, classify_specimen
from controller.clock import SystemClock
from profiles.faults.catalogue import default_catalogue

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
        if arguments.files or arguments.json:
            raise _UsageError(
                "--jsonl reads its own file and prints JSON: leave out FILE and --json"
            )
        return _classify_specimens(arguments.jsonl)
    return classify_logs(
        arguments.files or [STANDARD_INPUT],
        is_json=arguments.json,
        clock=SystemClock(),
        console=Console(stderr=True),
    )


def _print(text: Iterator[str]) -> int:
    for line in text:
        sys.stdout.write(f"{line}\n")
    return 0


def _fail(message: str) -> int:
    sys.stderr.write(f"unicron classify: {message}\n")
    return 2


def _classify_specimens(path: str) -> int:
    num_wrong = 0
    with opened(path) as text:
        for number, line in enumerate(lines(text), start=1):
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
