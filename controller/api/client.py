"""One command to a running controller: connect, ask, wait for the answer. For scripts and commands.

Consoles stay connected and use their own link (``console.client``).
"""

import socket
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from controller.api.wire import API_VERSION, Command, FromServer, Greeting, Reply

_FROM_SERVER: Final[TypeAdapter[FromServer]] = TypeAdapter(FromServer)
_TIMEOUT_S: Final = 10.0


class NoControllerError(Exception):
    """Nobody answers at the socket, or not in this version. The text is one line."""


def ask(path: Path, command: Command) -> Reply:
    """Send ``command`` to the controller at ``path`` and return its reply.

    Raises:
        NoControllerError: There is none, it speaks another version, or it does not answer.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_TIMEOUT_S)
        try:
            connection.connect(str(path))
            connection.sendall(command.model_dump_json().encode() + b"\n")
            with connection.makefile("rb") as lines:
                for line in lines:
                    message = _FROM_SERVER.validate_json(line)
                    if isinstance(message, Greeting) and message.version != API_VERSION:
                        raise NoControllerError(
                            f"{path}: the controller speaks API version {message.version}, this"
                            f" command {API_VERSION}"
                        )
                    if isinstance(message, Reply) and message.request_id == command.request_id:
                        return message
        except FileNotFoundError as error:
            raise NoControllerError(f"{path}: there is no controller's socket") from error
        except TimeoutError as error:
            text = f"{path}: the controller does not answer within {_TIMEOUT_S:.0f} s"
            raise NoControllerError(text) from error
        except OSError as error:
            raise NoControllerError(f"{path}: {(error.strerror or str(error)).lower()}") from error
        except ValidationError as error:
            raise NoControllerError(f"{path}: not a controller's socket") from error
    raise NoControllerError(f"{path}: the controller closed the connection without an answer")
