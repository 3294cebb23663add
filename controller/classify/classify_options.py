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
