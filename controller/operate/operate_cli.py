"""What an operator asks a running controller for, without a console.

``unicron uncordon`` takes an isolated node back; ``unicron unreachable`` says what is true of a node
out of contact.
"""

import argparse
import getpass
import json
import sys
import uuid
from pathlib import Path

from controller.api.client import NoControllerError, ask
from controller.api.wire import Command, DecideLoss, UncordonNode

_MAX_DIGITS = 4

_UNCORDON_EPILOG = """\
NODE:GPU takes back one GPU that is isolated alone, NODE the node with all of them.
A node is isolated by a SEV1 fault, or because lesser faults came back there too often ("unicron policy
explain" lists the rules). It stays out of service until somebody has looked at it and says so here.
The controller refuses while it has no contact with the node, or while a probe still finds what is
wrong; --force overrules that.

examples:
  unicron uncordon n3 --connect /run/unicron.sock
  unicron uncordon n3:1 --connect /run/unicron.sock
  unicron uncordon n3 --connect /run/unicron.sock --force --json
"""

_UNREACHABLE_EPILOG = """\
A node out of contact is presumed training. Where nobody can tell, because a task lives there alone and
no peer node finds it gone, the controller asks; it can be told at any time. A node that is lost is
isolated, and a plan divides the other nodes. Waiting asks again after the same time. The controller
refuses for a node in contact, and to give up a node whose tasks advance.

examples:
  unicron unreachable n3 --lost --connect /run/unicron.sock
  unicron unreachable n3 --wait --connect /run/unicron.sock --json
"""


def add_uncordon_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron uncordon``."""
    _add_common(
        parser,
        _UNCORDON_EPILOG,
        "name of the isolated node, or one isolated GPU of it",
        "NODE[:GPU]",
    )
    parser.add_argument("--force", action="store_true", help="also if its checks do not pass")


def add_unreachable_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron unreachable``."""
    _add_common(parser, _UNREACHABLE_EPILOG, "name of the node out of contact")
    verdict = parser.add_mutually_exclusive_group(required=True)
    verdict.add_argument("--lost", action="store_true", help="it is gone: go on without it")
    verdict.add_argument("--wait", action="store_true", help="it is not, or not yet: wait for it")


def _add_common(
    parser: argparse.ArgumentParser, epilog: str, node: str, metavar: str = "NODE"
) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = epilog
    parser.add_argument("node", metavar=metavar, help=node)
    parser.add_argument(
        "--connect", type=Path, required=True, metavar="SOCKET", help="the controller's API socket"
    )
    parser.add_argument("--json", action="store_true", help="print the answer as one JSON object")


def run_uncordon(arguments: argparse.Namespace) -> int:
    """Ask, print the answer, and return 0 if it was done, 1 if refused, 2 if wrong or nobody answers."""
    node, colon, gpu = arguments.node.partition(":")
    if not node or (colon and not (gpu.isascii() and gpu.isdecimal() and len(gpu) <= _MAX_DIGITS)):
        text = f"unicron uncordon: {arguments.node}: write NODE, or NODE:GPU with the GPU's index\n"
        sys.stderr.write(text)
        return 2
    command = UncordonNode(
        request_id=uuid.uuid4().hex,
        actor=getpass.getuser(),
        node=node,
        is_forced=arguments.force,
        gpu=int(gpu) if colon else None,
    )
    return _run(arguments, command)


def run_unreachable(arguments: argparse.Namespace) -> int:
    """Say it, print the answer, and return 0 if it was done, 1 if refused, 2 if nobody answers."""
    command = DecideLoss(
        request_id=uuid.uuid4().hex,
        actor=getpass.getuser(),
        node=arguments.node,
        is_lost=arguments.lost,
    )
    return _run(arguments, command)


def _run(arguments: argparse.Namespace, command: Command) -> int:
    try:
        reply = ask(arguments.connect, command)
    except NoControllerError as error:
        sys.stderr.write(f"unicron {arguments.command}: {error}\n")
        return 2
    if arguments.json:
        answer = {"is_ok": reply.is_ok, "code": reply.code, "message": reply.message}
        sys.stdout.write(f"{json.dumps(answer)}\n")
    else:
        (sys.stdout if reply.is_ok else sys.stderr).write(f"{reply.message}\n")
    return 0 if reply.is_ok else 1
