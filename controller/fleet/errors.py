"""What can go wrong between controller and node, and the one place that translates it.

LinkError
+-- TemporaryLinkError    worth another try: refused, reset, timed out, agent not up yet
+-- PermanentLinkError    another try gives the same: wrong host key, key refused, no Python, a
                          directory that can't be written
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import asyncssh

from nodeagent.protocol.codec import ProtocolError


class LinkError(Exception):
    """The node can't be used now; the text says why, in one line."""


class TemporaryLinkError(LinkError):
    """Worth another try."""


class PermanentLinkError(LinkError):
    """Another try gives the same; an operator has to mend something."""


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn asyncssh's and the system's errors into link errors that say what was being done."""
    try:
        yield
    except asyncssh.HostKeyNotVerifiable as error:
        raise PermanentLinkError(f"{doing}: host key is not the pinned one: {error}") from error
    except asyncssh.PermissionDenied as error:
        raise PermanentLinkError(f"{doing}: the login key is refused: {error}") from error
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        raise PermanentLinkError(f"{doing}: the login key can't be used: {error}") from error
    except (asyncssh.SFTPNoConnection, asyncssh.SFTPConnectionLost) as error:
        raise TemporaryLinkError(f"{doing}: {error}") from error
    except asyncssh.SFTPError as error:
        raise PermanentLinkError(f"{doing}: {error}") from error
    except ValueError as error:
        raise PermanentLinkError(f"{doing}: the address makes no sense: {error}") from error
    except TimeoutError as error:
        raise TemporaryLinkError(f"{doing}: no answer in time") from error
    except ConnectionRefusedError as error:
        raise TemporaryLinkError(f"{doing}: connection refused") from error
    except (asyncssh.Error, OSError, ProtocolError, asyncio.IncompleteReadError) as error:
        text = str(error) or type(error).__name__
        raise TemporaryLinkError(f"{doing}: {text}") from error
