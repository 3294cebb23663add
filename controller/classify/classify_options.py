"""The command line of ``unicron classify``."""

import argparse
from typing import Final

from controller.arguments import HelpText

_EPILOG: Final = """\
output:
  Each finding is one fault. Lines close to each other form one fault, classified by its cause.
  Consequences are ignored: a peer's "connection reset" after a rank has died, or the NCCL watchdog
  after a crash. Retries that succeed, corrected errors and planned stops give no finding.
  The severities are those of the Unicron paper:
    SEV1  the node is broken: isolate it, plan again        SEV2  restart the process
    SEV3  try again with the same processes                 none  no action

examples:
  unicron classify train.log                    findings with line numbers, evidence, first response
  dmesg | unicron classify                      a kernel log from standard input
  unicron classify old.log.gz --json            one JSON object; gzip files are unpacked
  unicron classify --jsonl excerpts.jsonl       one excerpt per line in, one verdict per line out
  unicron classify --list                       every entry of the catalogue
  unicron classify --explain ecc_error          the meaning of a status, and its entries
  unicron classify --explain xid-79             the patterns and source of an entry, the first response

exit codes:
  0  the input was read to its end, with or without findings
  2  wrong input; one line on standard error names it. Good lines of a JSONL file are still answered
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron classify``."""
    parser.formatter_class = HelpText
    parser.epilog = _EPILOG
    parser.add_argument(
        "file",
        nargs="?",
        default="-",
        metavar="FILE",
        help="log file, plain or gzip; without FILE or with '-', standard input",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as one JSON object")
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
