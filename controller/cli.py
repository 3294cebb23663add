"""The command line of the controller: ``unicron COMMAND``."""

import sys
from collections.abc import Sequence

from controller.arguments import HelpText, Parser
from controller.command_table import COMMANDS
from controller.completion import completed_words, offer_completions
from controller.printing import drop_output, is_of_output, refuse
from controller.python_settings import collect_seldom, start_no_numeric_threads
from controller.version_option import VersionOption

_DESCRIPTION = """\
Unicron keeps Megatron training alive. It detects and classifies faults, chooses the cheapest recovery,
and divides the remaining workers over all tasks for the highest weighted FLOP/s.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    start_no_numeric_threads()
    parser = Parser(
        prog="unicron",
        description=_DESCRIPTION,
        formatter_class=HelpText,
        epilog="Start here: unicron-console --demo, or unicron run --help for your own cluster",
    )
    parser.add_argument("--version", action=VersionOption, help="print the version")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    words = completed_words() or (sys.argv[1:] if arguments is None else arguments)
    chosen = next((word for word in words if not word.startswith("-")), None)
    run = None
    for command in COMMANDS:
        below = commands.add_parser(
            command.name, help=command.help, description=command.description
        )
        if command.name == chosen:
            add_arguments, run = command.load()
            add_arguments(below)
    offer_completions(parser)
    parsed = parser.parse_args(words)
    assert run is not None, "the parser refuses what names no command"
    try:
        code = run(parsed)
        sys.stdout.flush()
    except OSError as error:
        if parsed.command in {"demo", "down", "run"} or not is_of_output(error):
            raise  # they write much else
        drop_output()
        return refuse(
            f"unicron {parsed.command}", f"standard output: {str(error.strerror).lower()}"
        )
    return code


if __name__ == "__main__":
    collect_seldom()
    sys.exit(main())
