"""What commands to a running controller share: whom they ask, what they print, how they exit."""

import argparse
import getpass
import json
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final, Literal

from controller.api.client import NoControllerError, ask, connect
from controller.api.views import ClusterView, PlanState
from controller.api.wire import Command, Reply
from controller.arguments import HelpText
from controller.clusterfile.controller_choice import (
    EXPLAINED,
    ChoiceError,
    add_choice,
    choose_controller,
    refuse_without_controller,
)
from controller.completion import complete_with
from controller.printing import refuse
from profiles.records import on_one_line

EXIT_REFUSED: Final = 1
EXIT_UNKNOWN: Final = 4
EXIT_STALE: Final = 5
EXIT_CODES: Final = """\
exit codes:
  0  done
  1  the controller refused; the message says why
  2  wrong arguments, or a mistake in the cluster file
  3  no controller answers
  4  there is nothing of that name"""
EXIT_CODES_OF_PLANS: Final = f"""\
{EXIT_CODES}
  5  the plan was decided or has changed meanwhile: look at it again"""
_EXIT_BY_CODE: Final = {
    "unknown": EXIT_UNKNOWN, "superseded": EXIT_STALE, "decided": EXIT_STALE
}  # fmt: skip


NameKind = Literal["task", "node", "incident", "plan", "waiting plan"]
_NAMES: Final[dict[NameKind, Callable[[ClusterView], Iterable[str]]]] = {
    "task": lambda view: (each.name for each in view.tasks),
    "node": lambda view: (each.node for each in view.nodes),
    "incident": lambda view: (each.id for each in view.incidents),
    "plan": lambda view: (each.id for each in view.plans),
    "waiting plan": lambda view: (
        f"{each.id}:{each.revision}" for each in view.plans if each.state is PlanState.PENDING
    ),
}


class RefusedError(Exception):
    """What is asked for can't be done. The text is one line, for operators.

    Attributes:
        exit_code: How the command ends.
    """

    def __init__(self, text: str, exit_code: int = EXIT_REFUSED) -> None:
        super().__init__(text)
        self.exit_code = exit_code


def add_common(
    parser: argparse.ArgumentParser,
    text: str,
    examples: Iterable[str],
    exit_codes: str = EXIT_CODES,
) -> None:
    """Define what every such command has: the choice of the controller, ``--json``, and its help.

    Args:
        parser: Of the command.
        text: What its help says first.
        examples: Command lines.
        exit_codes: What its exit codes mean.
    """
    lines = "\n".join(f"  {example}" for example in examples)
    parser.formatter_class = HelpText
    parser.epilog = f"{text}\n\n{EXPLAINED}\n\n{exit_codes}\n\nexamples:\n{lines}\n"
    add_choice(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def complete_names(action: argparse.Action, *kinds: NameKind) -> None:
    """Have an argument completed with names that the running controller knows."""

    def names(arguments: argparse.Namespace) -> Iterator[str]:
        with suppress(ChoiceError, NoControllerError):
            choose_controller(arguments)
            with connect(arguments.connect) as connection:
                view = next(connection.views())
                for kind in kinds:
                    yield from _NAMES[kind](view)

    complete_with(action, names)


def who_asks() -> tuple[str, str]:
    """Return a new request's id, and the user's name."""
    return uuid.uuid4().hex, getpass.getuser()


def guarded(arguments: argparse.Namespace, work: Callable[[], int]) -> int:
    """Choose the controller, do ``work``, and turn what may go wrong into a line and an exit code.

    The controller's socket is in ``arguments.connect`` then.
    """
    program = f"unicron {arguments.command}"
    try:
        choose_controller(arguments)
        return work()
    except ChoiceError as error:
        return refuse(program, str(error))
    except NoControllerError as error:
        return refuse_without_controller(program, arguments, str(error))
    except RefusedError as error:
        refuse(program, str(error))
        return error.exit_code


def send(arguments: argparse.Namespace, command: Command) -> int:
    """Send a request to the chosen controller and print its answer; return the exit code."""
    return printed(arguments, ask(arguments.connect, command))


def printed(arguments: argparse.Namespace, reply: Reply) -> int:
    """Print an answer; return the exit code."""
    if arguments.json:
        answer = {"is_ok": reply.is_ok, "code": reply.code, "message": explained(reply)}
        sys.stdout.write(f"{json.dumps(answer)}\n")
    else:
        (sys.stdout if reply.is_ok else sys.stderr).write(f"{on_one_line(explained(reply))}\n")
    return 0 if reply.is_ok else _EXIT_BY_CODE.get(reply.code, EXIT_REFUSED)


def explained(reply: Reply) -> str:
    """Return the answer's sentence, with what it means if an older controller gave it."""
    if reply.code == "invalid" and "kind" in reply.message:
        return "this controller is of an older version and does not know this command"
    return reply.message


def known_names(kind: str, wanted: Iterable[str], known: Iterable[str]) -> set[str]:
    """Return the wanted names; all if none is named.

    Raises:
        RefusedError: There is none of a wanted name.
    """
    there, asked = list(known), list(wanted)
    for name in asked:
        if name not in there:
            are = f"{', '.join(there)} exist" if there else f"there is no {kind} at all"
            raise RefusedError(f"there is no {kind} {name}: {are}", EXIT_UNKNOWN)
    return set(asked or there)
