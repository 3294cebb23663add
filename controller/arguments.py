"""Types of options that several commands share. argparse prints their mistakes."""

import re
from argparse import ArgumentParser, ArgumentTypeError, HelpFormatter
from pathlib import Path
from typing import Final, NoReturn

from typing_extensions import override

from controller.printing import refuse

_COUNT: Final = re.compile(r"0|[1-9][0-9]{0,17}")
_NUMBER: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_MAX_SHOWN: Final = 80
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_LONGEST_S: Final = 1e6


class HelpText(HelpFormatter):
    """Wraps a text of one line to the terminal; prints a text with line breaks as it is."""

    @override
    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return "".join(indent + line for line in text.splitlines(keepends=True))
        return super()._fill_text(text, width, indent)


class Parser(ArgumentParser):
    """Prints a mistake in one line, without the usage. Its subcommands do the same."""

    def error(self, message: str) -> NoReturn:
        """Print the mistake and exit with code 2."""
        self.exit(refuse(self.prog, f"{message} (see {self.prog} --help)"))


def add_accept_new(parser: ArgumentParser) -> None:
    """Define ``--accept-new``, for commands that log in to the nodes of a cluster file."""
    parser.add_argument(
        "--accept-new",
        action="store_true",
        help="accept the host key of a node that no known_hosts file knows, write it into known_hosts of"
        " the run_dir, and print its fingerprint",
    )


def file_path(text: str) -> Path:
    """Return the path; refuse an empty one, which would be the working directory."""
    if not text:
        raise ArgumentTypeError("the file name is empty: give the path of a file")
    return Path(text)


def count_of(text: str) -> int | None:
    """Return a whole number of at most 18 digits; None if ``text`` is none or begins with 0."""
    return int(text) if _COUNT.fullmatch(text) else None


def decimal_of(text: str) -> float | None:
    """Return a decimal number without a sign; None if ``text`` is none."""
    return float(text) if _NUMBER.fullmatch(text) else None


def duration_s(text: str) -> float:
    """Return a time above 0 in seconds: ``90``, ``90s``, ``10m``, ``2h`` or ``1d``."""
    unit = _UNITS.get(text[-1:], None)
    number = decimal_of(text[:-1] if unit else text)
    if not number or number * (unit or 1.0) > _LONGEST_S:
        raise ArgumentTypeError(f"{text!r:.40} is not a time: write 90, 90s, 10m, 2h or 1d")
    return number * (unit or 1.0)


def positive_int(text: str) -> int:
    """Return a whole number above 0. Raises ``ArgumentTypeError`` if it is none."""
    if not count_of(text):
        raise ArgumentTypeError(f"{text!r} must be a whole number above 0")
    return int(text)


def num_workers(text: str) -> int:
    """Return a number of workers, 0 or more."""
    count = count_of(text)
    if count is None:
        raise ArgumentTypeError(
            f"{text!r:.{_MAX_SHOWN}} is not a number of workers: write a whole number, 0 or more"
        )
    return count
