"""The definitions of the options of ``unicron demo``, and its help."""

import argparse
from pathlib import Path
from typing import Final

from controller.arguments import HelpText
from controller.logs.log_options import add_logging_arguments

DEFAULT_ITERATIONS: Final = 30
_EPILOG = """\
drills:
  KIND@ITERATION[:key=value,...] runs the drill after the task has committed that iteration.
  `unicron drill list` explains every kind, its keys, and the expected diagnosis.

examples:
  unicron demo --headless --auto-heal --drill kill-rank@8 --drill lose-node@16 --iterations 30 --json
  unicron demo --headless --auto-heal --drill exception@10:task=gpt-b,rank=2 --iterations 20
  unicron demo --headless --auto-heal --drill exception@10:status=ecc_error --iterations 20
  unicron demo --nodes-only --dir play   and, in another terminal: unicron run play/cluster.toml --auto-heal
  unicron demo --nodes 6 --auto-heal     and, in another terminal: unicron-console --connect SOCKET

exit codes:
  0  a headless run reached its last iteration with every drill run; an interactive run ended
  1  a task did not reach its last iteration, a drill did not run, or the cluster did not start
  2  wrong options: nothing was started; or a drill that the task's program can't stage ended the run
  128+N  ended by signal N
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron demo``."""
    parser.formatter_class = HelpText
    parser.epilog = _EPILOG
    _add_cluster(parser)
    _add_training(parser)
    _add_healing(parser)
    _add_output(parser)
    add_logging_arguments(parser)


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    cluster = parser.add_argument_group("cluster")
    cluster.add_argument(
        "--nodes", type=int, default=4, metavar="N", help="number of nodes (default 4)"
    )
    cluster.add_argument(
        "--workers-per-node",
        type=int,
        default=2,
        metavar="K",
        help="workers on each node (default 2)",
    )
    cluster.add_argument(
        "--base-port",
        type=int,
        metavar="PORT",
        help="node n1 listens on PORT, n2 on PORT+1, and so on (default: free ports)",
    )
    cluster.add_argument(
        "--sshd",
        choices=["auto", "openssh", "asyncssh"],
        default="auto",
        help="SSH server of the nodes; auto is OpenSSH if it is installed and works, else asyncssh"
        " (default auto)",
    )
    cluster.add_argument(
        "--namespaces",
        action="store_true",
        help="give each node its own network namespace; the drill partition needs it. Requires root"
        " and iproute2 (default: all nodes share the loopback network)",
    )
    cluster.add_argument(
        "--nodes-only",
        action="store_true",
        help="start only the nodes, and write DIR/cluster.toml for `unicron run`; Ctrl-C ends them,"
        " SIGUSR1 starts lost nodes again. Needs --dir",
    )
    cluster.add_argument(
        "--dir", type=Path, metavar="DIR", help="new or empty directory for --nodes-only"
    )
    cluster.add_argument(
        "--sshd-config",
        action="append",
        default=[],
        metavar="LINE",
        help="a line for the sshd_config of every node, before the demo's own lines: sshd takes the"
        " first value of a key. May be repeated; needs OpenSSH",
    )


def _add_training(parser: argparse.ArgumentParser) -> None:
    training = parser.add_argument_group("training")
    training.add_argument(
        "--tasks",
        type=Path,
        metavar="FILE",
        help="TOML file of task profiles (default: gpt-a and gpt-b)",
    )
    training.add_argument(
        "--data",
        default="",
        metavar="FILE",
        help="text file to train on (default: text from Python's documentation)",
    )
    training.add_argument(
        "--seed", type=int, default=1, help="seed of the weights and the data order (default 1)"
    )
    training.add_argument(
        "--iterations",
        type=int,
        metavar="N",
        help="end when every task has committed N iterations (default:"
        f" {DEFAULT_ITERATIONS} with --headless, else run until stopped)",
    )


def _add_healing(parser: argparse.ArgumentParser) -> None:
    healing = parser.add_argument_group("recovery")
    healing.add_argument(
        "--auto-heal", action="store_true", help="apply plans without an operator's approval"
    )
    healing.add_argument(
        "--settings",
        type=Path,
        metavar="FILE",
        help="TOML file with [policy] and [failure_domains]; see `unicron policy explain --help`",
    )
    healing.add_argument(
        "--drill",
        action="append",
        default=[],
        metavar="KIND@ITERATION[:key=value,...]",
        help="inject a fault; may be repeated (see drills below)",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    output = parser.add_argument_group("output")
    output.add_argument(
        "--headless", action="store_true", help="run to the last iteration, then exit"
    )
    output.add_argument(
        "--json",
        action="store_true",
        help="print the outcome as one JSON object on standard output; needs --headless",
    )
    output.add_argument(
        "--event-log", type=Path, metavar="FILE", help="write every event to FILE, as JSON lines"
    )
    output.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="at the end copy the journal, the event log and the logs of agents and ranks into DIR, which"
        " must be new or empty (default: removed with the demo)",
    )
    output.add_argument(
        "--tables",
        type=Path,
        metavar="DIR",
        help="keep the measured throughput tables in DIR (default: removed with the demo)",
    )
    output.add_argument(
        "--serve",
        type=Path,
        metavar="SOCKET",
        help="path of the API socket for consoles (default: in the demo's directory)",
    )
    output.add_argument(
        "--time-limit",
        type=float,
        metavar="SECONDS",
        help="end the demo with exit code 1 after this time (default: no limit)",
    )
