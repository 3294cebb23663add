"""What options of several commands stand for: files, counts and weights. A mistake is told by argparse."""

import re
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import Final, NoReturn

from controller.printing import refuse

_COUNT: Final = re.compile(r"0|[1-9][0-9]{0,17}")
_NUMBER: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_MAX_SHOWN: Final = 80


class Parser(ArgumentParser):
    """Tells a mistake in one line, without the usage; its subcommands do the same."""

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments."""
        self.exit(refuse(self.prog, f"{message} (see {self.prog} --help)"))


def file_path(text: str) -> Path:
    """Return the path that a user names; an empty one would be the directory one is in."""
    if not text:
        raise ArgumentTypeError("the name is empty: name a file")
    return Path(text)


def count_of(text: str) -> int | None:
    """Return a number in plain decimal digits, without zeros in front and of 18 digits at most; else None."""
    return int(text) if _COUNT.fullmatch(text) else None


def number_of(text: str) -> float | None:
    """Return a decimal number without a sign, as it is commonly written; else None."""
    return float(text) if _NUMBER.fullmatch(text) else None


def num_workers(text: str) -> int:
    """Return a number of workers, 0 or more."""
    count = count_of(text)
    if count is None:
        raise ArgumentTypeError(
            f"{text!r:.{_MAX_SHOWN}} is no number of workers: write it in digits"
        )
    return count
