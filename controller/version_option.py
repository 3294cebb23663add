"""The option ``--version`` of both commands."""

import argparse
import sys
from collections.abc import Sequence

from typing_extensions import override


class VersionOption(argparse.Action):
    """Prints the version. Only then is it read: that takes a tenth of a command's start."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:  # noqa: A002 (argparse's name)
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)

    @override
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

        try:
            found = version("unicron")
        except PackageNotFoundError:
            found = "(not installed)"
        sys.stdout.write(f"{parser.prog} {found}\n")
        parser.exit()
