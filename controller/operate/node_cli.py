"""Requests about nodes: ``unicron uncordon`` and ``unicron unreachable``."""

import argparse

from controller.api.wire import DecideLoss, UncordonNode
from controller.operate.asking import add_common, complete_names, guarded, send, who_asks
from controller.printing import refuse

_MAX_DIGITS = 4

_UNCORDON = """\
NODE returns the whole node to service, NODE:GPU one GPU that is isolated alone.
A SEV1 fault isolates a node; so do lesser faults that return too often (see `unicron policy explain`).
The node stays out of service until an operator has checked it and runs this command.
The controller refuses if the node is out of contact, or if a probe still finds a fault. --force
overrides both."""

_UNREACHABLE = """\
The controller assumes that a node out of contact still trains. It asks an operator if it can't find out:
a task runs on that node alone, and no peer node finds the node gone. You may decide at any time.
--lost isolates the node, and a plan divides the remaining nodes. --wait keeps the node; the controller asks
again after the same time.
The controller refuses if the node is in contact, and --lost if the node's tasks advance."""


def add_uncordon_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron uncordon``."""
    add_common(
        parser,
        _UNCORDON,
        (
            "unicron uncordon n3 --cluster cluster.toml",
            "unicron uncordon n3:1",
            "unicron uncordon n3 --connect /run/unicron.sock --force --json",
        ),
    )
    node = parser.add_argument(
        "node", metavar="NODE[:GPU]", help="the isolated node, or one isolated GPU of it"
    )
    complete_names(node, "node")
    parser.add_argument(
        "--force",
        action="store_true",
        help="return it to service although a check fails or the node is out of contact",
    )


def add_unreachable_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron unreachable``."""
    add_common(
        parser,
        _UNREACHABLE,
        (
            "unicron unreachable n3 --lost --cluster cluster.toml",
            "unicron unreachable n3 --wait --connect /run/unicron.sock --json",
        ),
    )
    node = parser.add_argument("node", metavar="NODE", help="the node out of contact")
    complete_names(node, "node")
    verdict = parser.add_mutually_exclusive_group(required=True)
    verdict.add_argument(
        "--lost", action="store_true", help="the node is lost: continue without it"
    )
    verdict.add_argument("--wait", action="store_true", help="the node may return: wait for it")


def run_uncordon(arguments: argparse.Namespace) -> int:
    """Ask for a node or GPU back; return the exit code."""
    node, colon, gpu = arguments.node.partition(":")
    if not node or (colon and not (gpu.isascii() and gpu.isdecimal() and len(gpu) <= _MAX_DIGITS)):
        text = f"{arguments.node}: write NODE, or NODE:GPU with the GPU's index"
        return refuse("unicron uncordon", text)
    request_id, actor = who_asks()
    command = UncordonNode(
        request_id=request_id, actor=actor, node=node, is_forced=arguments.force,
        gpu=int(gpu) if colon else None,
    )  # fmt: skip
    return guarded(arguments, lambda: send(arguments, command))


def run_unreachable(arguments: argparse.Namespace) -> int:
    """Send the decision about a node out of contact; return the exit code."""
    request_id, actor = who_asks()
    command = DecideLoss(
        request_id=request_id, actor=actor, node=arguments.node, is_lost=arguments.lost
    )
    return guarded(arguments, lambda: send(arguments, command))
