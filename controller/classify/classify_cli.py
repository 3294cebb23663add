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

from controller.arguments import HelpText
from controller.classify.explain_catalogue import (
    SpecimenError,
    UnknownNameError,
    classify_specimen,
    explanation,
    listing,
)
from controller.classify.log_inputs import STANDARD_INPUT, lines, name_of, opened
from controller.classify.log_reading import classify_logs
from controller.classify.unpacking import InputError
from controller.clock import SystemClock
from profiles.faults.catalogue import default_catalogue

_EPILOG: Final = """\
output:
  Each finding is one fault. Lines close to each other form one fault, classified by its cause.
  Consequences are ignored: a peer's "connection reset" after a rank has died, or the NCCL watchdog
  after a crash. Retries that succeed, corrected errors and planned stops give no finding.
  The severities are those of the Unicron paper:
    SEV1  the node is broken: isolate it, plan again        SEV2  restart the process
    SEV3  try again with the same processes                 none  no action

  Several files get a summary: a row for each, and their total.

input:
  gzip, bzip2, xz and zstd are unpacked; UTF-16 and UTF-32 are decoded. The content decides, not the
  name. A directory stands for all files below it, sorted, without hidden ones.
  A binary or an archive is refused. Of a damaged file, what lies before the damage is classified.

examples:
  unicron classify train.log                    findings with line numbers, evidence, first response
  dmesg | unicron classify                      a kernel log from standard input
  unicron classify logs/ old.log.xz             all files of a directory, and one more
  unicron classify old.log.gz --json            one JSON object per file
  unicron classify --jsonl excerpts.jsonl       one excerpt per line in, one verdict per line out
  unicron classify --list                       every entry of the catalogue
  unicron classify --explain ecc_error          the meaning of a status, and its entries
  unicron classify --explain xid-79             the patterns and source of an entry, the first response

exit codes:
  0    all inputs were read to their ends, with or without findings
  2    something could not be read, or an option is wrong; standard error has one line for each.
       All other files, and the good lines of a JSONL file, are still answered
  130  Ctrl-C; what was read until then is printed
  141  the reader of standard output has closed it
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron classify``."""
    parser.formatter_class = HelpText
    parser.epilog = _EPILOG
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="log files, plain or compressed, and directories of them; without FILE or with '-',"
        " standard input",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object per file, each on its own line"
    )
    others = parser.add_mutually_exclusive_group()
    others.add_argument(
        "--jsonl",
        metavar="FILE",
        help='classify excerpts: each line of FILE is {"id", "channel", "text"}, each line of the'
        ' output {"id", "status", "severity", "evidence", "reason"}; \'-\' is standard input',
    )
    others.add_argument(
        "--explain", metavar="NAME", help="explain one status or one entry of the catalogue"
    )
    others.add_argument("--list", action="store_true", help="list all statuses and entries")


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
