"""Completion of ``unicron`` in bash, zsh and fish, with the names that a running controller knows.

A shell runs the program with the line so far in its environment, and reads the words that may
follow. ``unicron completion SHELL`` prints what has to be in the shell's start-up file for that.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

from controller.arguments import HelpText

_LINE: Final = "COMP_LINE"
_IS_ASKED: Final = "_ARGCOMPLETE"
_SHELLS: Final = ("bash", "zsh", "fish")
_EPILOG: Final = """\
With the script, the tab key completes commands, options, and names of tasks, nodes, incidents and plans.

exit codes:
  0  done
  2  wrong arguments

examples:
  unicron completion bash > ~/.local/share/bash-completion/completions/unicron
  unicron completion zsh > "${fpath[1]}/_unicron"
  unicron completion fish > ~/.config/fish/completions/unicron.fish
"""


def completed_words() -> list[str]:
    """Return the words of the line that a shell wants completed; none if no shell asks."""
    if _IS_ASKED not in os.environ:
        return []
    return os.environ.get(_LINE, "").split()[1:]


def offer_completions(parser: argparse.ArgumentParser) -> None:
    """If a shell asks, print the words that may follow, and end the program."""
    if _IS_ASKED in os.environ:
        import argcomplete  # noqa: PLC0415 - only a shell needs it

        argcomplete.autocomplete(parser)


def complete_with(
    action: argparse.Action, names: Callable[[argparse.Namespace], Iterable[str]]
) -> None:
    """Have an argument completed with names, which are asked for only then."""

    def completer(parsed_args: argparse.Namespace, **_: Any) -> list[str]:  # noqa: ANN401
        return list(names(parsed_args))

    action.completer = completer  # type: ignore[attr-defined]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron completion``."""
    parser.formatter_class, parser.epilog = HelpText, _EPILOG
    parser.add_argument("shell", choices=_SHELLS, help="the shell")


def run(arguments: argparse.Namespace) -> int:
    """Print the script; return the exit code."""
    from argcomplete.shell_integration import shellcode  # noqa: PLC0415 - only this needs it

    sys.stdout.write(shellcode(["unicron"], shell=arguments.shell))
    return 0
