"""Requests of an operator to a running controller, without a console.

``unicron uncordon`` returns an isolated node or GPU to service. ``unicron unreachable`` decides
whether a node out of contact is lost.
"""

import argparse
import getpass
import json
import sys
import uuid

from controller.api.client import NoControllerError, ask
from controller.api.wire import Command, DecideLoss, UncordonNode
from controller.arguments import HelpText
from controller.clusterfile.controller_choice import (
    ChoiceError,
    add_choice,
    choose_controller,
    refuse_without_controller,
)
from controller.printing import refuse

_MAX_DIGITS = 4

_UNCORDON_EPILOG = """\
NODE returns the whole node to service, NODE:GPU one GPU that is isolated alone.
A SEV1 fault isolates a node; so do lesser faults that return too often (see `unicron policy explain`).
The node stays out of service until an operator has checked it and runs this command.
The controller refuses if the node is out of contact, or if a probe still finds a fault. --force
overrides both.

exit codes:
  0  done
  1  the controller refused; the message says why
  2  wrong arguments, or a mistake in the cluster file
  3  no controller answers

examples:
  unicron uncordon n3 --cluster cluster.toml
  unicron uncordon n3:1
  unicron uncordon n3 --connect /run/unicron.sock --force --json
"""

_UNREACHABLE_EPILOG = """\
The controller assumes that a node out of contact still trains. It asks an operator if it can't find out:
a task runs on that node alone, and no peer node finds the node gone. You may decide at any time.
--lost isolates the node, and a plan divides the remaining nodes. --wait keeps the node; the controller asks
again after the same time.
The controller refuses if the node is in contact, and --lost if the node's tasks advance.

exit codes:
  0  done
  1  the controller refused; the message says why
  2  wrong arguments, or a mistake in the cluster file
  3  no controller answers

examples:
  unicron unreachable n3 --lost --cluster cluster.toml
  unicron unreachable n3 --wait --connect /run/unicron.sock --json
"""


def add_uncordon_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron uncordon``."""
    _add_common(
        parser,
        _UNCORDON_EPILOG,
        "the isolated node, or one isolated GPU of it",
        "NODE[:GPU]",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="return it to service although a check fails or the node is out of contact",
    )


def add_unreachable_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron unreachable``."""
    _add_common(parser, _UNREACHABLE_EPILOG, "the node out of contact")
    verdict = parser.add_mutually_exclusive_group(required=True)
    verdict.add_argument(
        "--lost", action="store_true", help="the node is lost: continue without it"
    )
    verdict.add_argument("--wait", action="store_true", help="the node may return: wait for it")


def _add_common(
    parser: argparse.ArgumentParser, epilog: str, node: str, metavar: str = "NODE"
) -> None:
    parser.formatter_class = HelpText
    parser.epilog = epilog
    parser.add_argument("node", metavar=metavar, help=node)
    add_choice(parser)
    parser.add_argument("--json", action="store_true", help="print the answer as one JSON object")


def run_uncordon(arguments: argparse.Namespace) -> int:
    """Send the request; return 0 if done, 1 if refused, 2 if wrong or without an answer."""
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
    """Send the decision; return 0 if it was done, 1 if refused, 2 if no controller answers."""
    command = DecideLoss(
        request_id=uuid.uuid4().hex,
        actor=getpass.getuser(),
        node=arguments.node,
        is_lost=arguments.lost,
    )
    return _run(arguments, command)


def _run(arguments: argparse.Namespace, command: Command) -> int:
    program = f"unicron {arguments.command}"
    try:
        choose_controller(arguments)
        reply = ask(arguments.connect, command)
    except ChoiceError as error:
        return refuse(program, str(error))
    except NoControllerError as error:
        return refuse_without_controller(program, arguments, str(error))
    if arguments.json:
        answer = {"is_ok": reply.is_ok, "code": reply.code, "message": reply.message}
        sys.stdout.write(f"{json.dumps(answer)}\n")
    else:
        (sys.stdout if reply.is_ok else sys.stderr).write(f"{reply.message}\n")
    return 0 if reply.is_ok else 1
