"""Requests about nodes.

``unicron cordon``, ``drain``, ``isolate`` and ``repair`` take them out of service, ``uncordon``
brings them back. ``unreachable`` decides whether one that is out of contact is lost.
"""

import argparse
import sys
import time
from contextlib import suppress
from typing import Final

from controller.api.views import PlanState
from controller.api.wire import DecideLoss, OrderNode, UncordonNode
from controller.operate.asking import (
    RefusedError,
    add_common,
    complete_names,
    guarded,
    send,
    who_asks,
)
from controller.operate.showing import newest_view
from controller.printing import refuse
from profiles.records import on_one_line

ORDERS: Final = ("cordon", "drain", "isolate", "repair")
_MAX_DIGITS: Final = 4
_LOOK_S: Final = 0.5

_ORDERS: Final = {
    "cordon": """\
Nothing new is placed on the node. What is there stays, and starts there again after a fault.""",
    "drain": """\
A plan moves the node's tasks elsewhere: each finishes its iteration first, and none is lost. It is refused if a
task would have to stop for it. `unicron nodes NODE` shows how far it is; --wait waits until nothing runs there.""",
    "isolate": """\
The node's ranks are ended at once, and a plan divides the remaining nodes. For a node that harms its tasks.""",
    "repair": """\
The node is under repair: it may come and go without an incident. It must not be in use, so drain it first. With
--done the repair is over: the node returns to service once it is in contact and its checks pass.""",
}
_EXAMPLES: Final = {
    "cordon": ("unicron cordon n3 --reason 'fan is loud'",),
    "drain": ("unicron drain n3 --wait",),
    "isolate": ("unicron isolate n3 --reason 'corrupts gradients'",),
    "repair": ("unicron repair n3 --reason 'new fan'", "unicron repair n3 --done"),
}
_UNCORDON = """\
NODE returns the whole node to service, also after cordon, drain and repair; NODE:GPU one GPU that is isolated alone.
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


def add_order_arguments(verb: str, parser: argparse.ArgumentParser) -> None:
    """Define the options of ``cordon``, ``drain``, ``isolate`` or ``repair``."""
    add_common(parser, _ORDERS[verb], _EXAMPLES[verb])
    node = parser.add_argument("node", metavar="NODE", help="the node")
    complete_names(node, "node")
    parser.add_argument("--reason", default="", help="why, for the record")
    if verb == "drain":
        parser.add_argument(
            "--force", action="store_true", help="stop tasks that have no room elsewhere"
        )
        parser.add_argument(
            "--wait",
            action="store_true",
            help="wait until nothing runs there, and show how far it is",
        )
    elif verb == "repair":
        parser.add_argument("--done", action="store_true", help="the repair is over")
        parser.add_argument(
            "--force", action="store_true", help="with --done: return it although a check fails"
        )


def run_order(arguments: argparse.Namespace) -> int:
    """Send the order; return the exit code."""
    verb = arguments.command
    is_forced = getattr(arguments, "force", False)
    if verb == "repair" and is_forced and not arguments.done:
        return refuse("unicron repair", "--force belongs to --done")
    request_id, actor = who_asks()
    order = OrderNode(
        request_id=request_id, actor=actor, node=arguments.node, reason=arguments.reason,
        order="return" if verb == "repair" and arguments.done else verb, is_forced=is_forced,
    )  # fmt: skip

    def work() -> int:
        code = send(arguments, order)
        if code == 0 and getattr(arguments, "wait", False):
            with suppress(KeyboardInterrupt):
                return _wait_for_drain(arguments)
        return code

    return guarded(arguments, work)


def _wait_for_drain(arguments: argparse.Namespace) -> int:
    """Print how many workers are in use, each time that changes, until the node is drained."""
    told = ""
    while True:
        view = newest_view(arguments.connect)
        node = next((each for each in view.nodes if each.node == arguments.node), None)
        if node is None or node.upkeep is None:
            raise RefusedError(f"{arguments.node} is not drained any more")
        if node.upkeep.state == "drained":
            sys.stderr.write(f"{arguments.node} is drained\n")
            return 0
        tasks = sorted({slot.task for slot in node.workers if slot.task})
        num_busy = sum(slot.task is not None for slot in node.workers)
        waiting = next((plan for plan in view.plans if plan.state is PlanState.PENDING), None)
        text = f"{arguments.node}: {num_busy} workers in use by {', '.join(tasks)}"
        if waiting is not None:
            text += f"; {waiting.id}:{waiting.revision} waits for an approval"
        if text != told:
            sys.stderr.write(f"{on_one_line(text)}\n")
            told = text
        time.sleep(_LOOK_S)


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
