"""The options ``--log-level``, ``--log-format`` and ``--log-file`` of long-running commands."""

import argparse
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TextIO

from typing_extensions import override

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")

_PACKAGES: Final = ("console", "controller", "nodeagent", "profiles")
_ANNOUNCEMENTS: Final = "controller.server.announcements"
"""The logger of announcements. The commands show those on standard error themselves."""


class LogOptionError(Exception):
    """The log can't be written as the options say. The text names the option and the reason."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Where to log, and how.

    Attributes:
        level: ``debug``, ``info``, ``warning`` or ``error``; None is ``info`` in a file, else
            ``warning``.
        format: ``text`` or ``json``.
        file: Lines are appended to it; None is standard error.
    """

    level: str | None = None
    format: Literal["text", "json"] = "text"
    file: Path | None = None

    @property
    def level_number(self) -> int:
        """The level as ``logging`` knows it."""
        name = self.level or ("info" if self.file else "warning")
        return int(logging.getLevelNamesMapping()[name.upper()])


_EXPLAINED: Final = """\
The log shows what happens at the edges of the controller: connections, commands to nodes, files
and clients of the API. Without these options only warnings and errors of the controller itself are
printed, on standard error, between the lines that show the progress."""
_EXPLAINED_FOR_CONSOLES: Final = """\
The log shows the console's own work; with --demo also the demo's controller. Without --log-file
nothing is logged: the console draws on the terminal."""


def add_logging_arguments(parser: argparse.ArgumentParser, *, owns_terminal: bool = True) -> None:
    """Define the options; a command that draws on the terminal does not own it."""
    log = parser.add_argument_group("log", _EXPLAINED if owns_terminal else _EXPLAINED_FOR_CONSOLES)
    log.add_argument(
        "--log-level",
        choices=LEVELS,
        metavar="LEVEL",
        help="debug, info, warning or error (default: info in a file"
        + (", warning on standard error)" if owns_terminal else ")"),
    )
    log.add_argument(
        "--log-format",
        choices=FORMATS,
        default="text",
        metavar="FORMAT",
        help="text, or json: one object a line, with the identifiers as keys (default text)",
    )
    log.add_argument(
        "--log-file",
        type=Path,
        metavar="FILE",
        help="append the log to FILE, in a directory that exists (default: "
        + ("standard error)" if owns_terminal else "no log)"),
    )


def log_arguments(options: LogOptions) -> list[str]:
    """Return the options as arguments of another command."""
    words = ["--log-format", options.format]
    words += ["--log-level", options.level] if options.level else []
    return words + (["--log-file", str(options.file.absolute())] if options.file else [])


def log_options(arguments: argparse.Namespace) -> LogOptions:
    """Return the parsed options."""
    return LogOptions(arguments.log_level, arguments.log_format, arguments.log_file)


@contextmanager
def logging_to(options: LogOptions, *, owns_terminal: bool = True) -> Iterator[None]:
    """Log as the options say for the length of the block.

    Args:
        options: Where to log, and how.
        owns_terminal: Whether lines may go to standard error. If not, only a file is logged to.

    Raises:
        LogOptionError: The file can't be written.
    """
    handler = _handler(options, owns_terminal=owns_terminal)
    handler.setFormatter(_formatter(options.format))
    handler.addFilter(_is_wanted)
    level_by_logger = {logging.getLogger(): max(options.level_number, logging.WARNING)}
    level_by_logger |= {logging.getLogger(name): options.level_number for name in _PACKAGES}
    before = {logger: logger.level for logger in level_by_logger}
    for logger, level in level_by_logger.items():
        logger.setLevel(level)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        with suppress(OSError):  # of lines that could not be written before
            handler.close()
        for logger, level in before.items():
            logger.setLevel(level)


def _handler(options: LogOptions, *, owns_terminal: bool) -> logging.Handler:
    if options.file is not None:
        return _LogFile(_writable(options.file), encoding="utf-8")
    if not owns_terminal:
        return logging.NullHandler()
    handler = _StandardError()
    handler.addFilter(lambda record: record.name != _ANNOUNCEMENTS)
    return handler


def _is_wanted(record: logging.LogRecord) -> bool:
    """Whether a record is Unicron's own, or a warning: asyncssh logs details of each connection."""
    return record.name.partition(".")[0] in _PACKAGES or record.levelno >= logging.WARNING


def _formatter(name: Literal["text", "json"]) -> logging.Formatter:
    # Imported when needed: it imports pydantic, which would delay the help text of the console.
    from nodeagent.process_tools.log_format import JsonFormatter, TextFormatter  # noqa: PLC0415

    return JsonFormatter() if name == "json" else TextFormatter()


def _writable(path: Path) -> Path:
    """Return ``path``, which can be appended to; a new file has mode 0600.

    Raises:
        LogOptionError: It can't.
    """
    if not path.parent.is_dir():
        raise LogOptionError(f"--log-file {path}: there is no directory {path.parent}")
    try:
        if not path.exists():
            path.touch(mode=0o600)
        with path.open("ab"):
            return path
    except OSError as error:
        raise LogOptionError(f"--log-file {path}: {(error.strerror or 'error').lower()}") from error


class _LogFile(logging.FileHandler):
    """Appends to a file. It drops a line on a full disk, which must not end a run."""

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to the present ``sys.stderr``, which progress bars replace while they are shown."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.setStream(sys.stderr)
        super().emit(record)

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)
