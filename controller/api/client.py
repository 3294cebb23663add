"""A client for scripts and commands: connect to a running controller, send a request, watch views.

Consoles stay connected and use a link of their own (``console.client``).
"""

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from controller.api.view_changes import ChangesError, applied
from controller.api.views import ClusterView, LogLine
from controller.api.wire import (
    API_VERSION,
    Changes,
    Command,
    FollowChanges,
    FromServer,
    Greeting,
    LogLines,
    Reply,
    Snapshot,
)

_FROM_SERVER: Final[TypeAdapter[FromServer]] = TypeAdapter(FromServer)
_TIMEOUT_S: Final = 10.0


class NoControllerError(Exception):
    """No controller answers at the socket, or it has another API version. The text is one line."""


class Connection:
    """A connection to a controller; made by ``connect``."""

    def __init__(self, path: Path, messages: Iterator[FromServer], link: socket.socket) -> None:
        self._path = path
        self._messages = messages
        self._link = link

    def ask(self, command: Command) -> Reply:
        """Send ``command`` and return its reply. Messages before the reply are dropped.

        Raises:
            NoControllerError: The controller does not answer.
        """
        try:
            line = command.model_dump_json().encode() + b"\n"
        except PydanticSerializationError as error:
            raise NoControllerError("the request holds bytes that are not UTF-8") from error
        try:
            self._link.sendall(line)
        except OSError as error:
            raise NoControllerError(f"{self._path}: {_reason(error)}") from error
        for message in self._messages:
            if isinstance(message, Reply) and message.request_id == command.request_id:
                return message
        text = "the controller closed the connection without an answer"
        raise NoControllerError(f"{self._path}: {text}")

    def beginning(self) -> tuple[float, list[LogLine]]:
        """Return the start of the run, seconds since the epoch, and the newest lines until now.

        Raises:
            NoControllerError: The controller does not answer.
        """
        started_wall_s: float | None = None
        for message in self._messages:
            if isinstance(message, LogLines) and started_wall_s is not None:
                return started_wall_s, message.lines
            if isinstance(message, Snapshot):
                if started_wall_s is not None:  # a second one: there are no lines yet
                    return started_wall_s, []
                started_wall_s = message.view.started_wall_s
        raise NoControllerError(f"{self._path}: the controller closed the connection")

    def lines(self) -> Iterator[LogLine]:
        """Yield each new line of the event stream, until the connection ends.

        Raises:
            NoControllerError: No message arrives for too long.
        """
        for message in self._messages:
            if isinstance(message, LogLines):
                yield from message.lines

    def news(self) -> Iterator[ClusterView | list[LogLine]]:
        """Yield views and lines as they come, the newest known lines first.

        Raises:
            NoControllerError: No message arrives for too long, or changes fit no view.
        """
        view: ClusterView | None = None
        try:
            # A controller of an older version refuses this, and sends whole views.
            self._link.sendall(FollowChanges().model_dump_json().encode() + b"\n")
        except OSError as error:
            raise NoControllerError(f"{self._path}: {_reason(error)}") from error
        for message in self._messages:
            if isinstance(message, LogLines):
                yield message.lines
                continue
            if isinstance(message, Snapshot):
                view = message.view
            elif isinstance(message, Changes) and view is not None:
                view = self._changed(view, message)
            else:
                continue
            yield view

    def _changed(self, view: ClusterView, message: Changes) -> ClusterView:
        try:
            return applied(view, message.fields)
        except ChangesError as error:
            raise NoControllerError(f"{self._path}: changes do not fit: {error}") from error

    def views(self) -> Iterator[ClusterView]:
        """Yield a view after each change, and about once a second, until the connection ends.

        Raises:
            NoControllerError: No message arrives for too long.
        """
        for message in self._messages:
            if isinstance(message, Snapshot):
                yield message.view


@contextmanager
def connect(path: Path) -> Iterator[Connection]:
    """Connect to the controller at ``path``.

    Raises:
        NoControllerError: There is no controller, or it has another API version.
    """
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(_TIMEOUT_S)
        try:
            link.connect(str(path))
        except FileNotFoundError as error:
            raise NoControllerError(f"{path}: there is no controller's socket") from error
        except ConnectionRefusedError as error:
            reason = _reason(error) if path.is_socket() else "is no socket; name a controller's"
            raise NoControllerError(f"{path}: {reason}") from error
        except OSError as error:
            raise NoControllerError(f"{path}: {_reason(error)}") from error
        with link.makefile("rb") as lines:
            yield Connection(path, _messages(path, lines), link)


def _messages(path: Path, lines: Iterable[bytes]) -> Iterator[FromServer]:
    try:
        for line in lines:
            message = _FROM_SERVER.validate_json(line)
            if isinstance(message, Greeting) and message.version != API_VERSION:
                raise NoControllerError(
                    f"{path}: the controller has API version {message.version}, this"
                    f" command {API_VERSION}"
                )
            yield message
    except TimeoutError as error:
        text = f"{path}: the controller does not answer within {_TIMEOUT_S:.0f} s"
        raise NoControllerError(text) from error
    except OSError as error:
        raise NoControllerError(f"{path}: {_reason(error)}") from error
    except ValidationError as error:
        raise NoControllerError(f"{path}: not a controller's socket") from error


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def ask(path: Path, command: Command) -> Reply:
    """Send ``command`` to the controller at ``path`` and return its reply.

    Raises:
        NoControllerError: There is no controller, it has another API version, or it does not
            answer.
    """
    with connect(path) as connection:
        return connection.ask(command)
