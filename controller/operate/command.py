"""``unicron uncordon``: what an operator asks a running controller for, without a console."""

import argparse
import getpass
import json
import sys
import uuid
from pathlib import Path

from controller.api.client import NoControllerError, ask
from controller.api.wire import UncordonNode

_MAX_DIGITS = 4

_EPILOG = """\
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


def add_uncordon_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron uncordon``."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument(
        "node", metavar="NODE[:GPU]", help="name of the isolated node, or one isolated GPU of it"
    )
    parser.add_argument(
        "--connect", type=Path, required=True, metavar="SOCKET", help="the controller's API socket"
    )
    parser.add_argument("--force", action="store_true", help="also if its checks do not pass")
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
    try:
        reply = ask(arguments.connect, command)
    except NoControllerError as error:
        sys.stderr.write(f"unicron uncordon: {error}\n")
        return 2
    if arguments.json:
        answer = {"is_ok": reply.is_ok, "code": reply.code, "message": reply.message}
        sys.stdout.write(f"{json.dumps(answer)}\n")
    else:
        (sys.stdout if reply.is_ok else sys.stderr).write(f"{reply.message}\n")
    return 0 if reply.is_ok else 1
