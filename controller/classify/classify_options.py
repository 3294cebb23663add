"""The command line of ``unicron classify``."""

import argparse
from typing import Final

_EPILOG: Final = """\
what comes out
  A raw log gives findings: lines that stand near each other are one fault, named by its cause and
  not by the noise around it. Peers' "connection reset" after a rank has died is noise; so is the
  NCCL watchdog after a crash. Lines to ignore (retries that succeed, corrected errors, planned
  stops) give nothing. Severities are those of the Unicron paper:
    SEV1  the node is broken: isolate it, plan again        SEV2  restart the process
    SEV3  try again in place                                none  nothing to act on

examples
  unicron classify train.log                    findings with line numbers, evidence, first response
  dmesg | unicron classify                      a kernel log on standard input
  zcat old.log.gz | unicron classify --json     one JSON object (compressed files can be named, too)
  unicron classify --jsonl excerpts.jsonl       one excerpt a line in, one verdict a line out
  unicron classify --list                       every entry of the catalogue
  unicron classify --explain ecc_error          what a status means and what leads to it
  unicron classify --explain xid-79             where an entry's wording is from, what to do first

exit codes
  0  read to the end, whether or not anything was found
  2  wrong input: one line on standard error says what; of a JSONL file the good lines are answered
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron classify``."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument(
        "file",
        nargs="?",
        default="-",
        metavar="FILE",
        help="raw log to read, plain or gzip; standard input without it, or for '-'",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as one JSON object")
    others = parser.add_mutually_exclusive_group()
    others.add_argument(
        "--jsonl",
        metavar="FILE",
        help='read excerpts, {"id", "channel", "text"} a line, and write {"id", "status",'
        ' "severity", "evidence", "reason"} a line; \'-\' is standard input',
    )
    others.add_argument(
        "--explain", metavar="NAME", help="explain a status or an entry of the catalogue"
    )
    others.add_argument("--list", action="store_true", help="list the catalogue")
