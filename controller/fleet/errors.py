"""Errors between controller and node, and the one place that translates asyncssh's errors.

LinkError
+-- TemporaryLinkError   a retry may help: refused, reset, timed out, agent not up yet
+-- PermanentLinkError   a retry gives the same: wrong host key, key refused, no Python, a
directory that can't be written
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import asyncssh

from nodeagent.protocol.codec import ProtocolError


class LinkError(Exception):
    """The node can't be used now. The text is the reason, in one line."""


class TemporaryLinkError(LinkError):
    """A retry may help."""


class PermanentLinkError(LinkError):
    """A retry gives the same result: an operator has to act."""


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn errors of asyncssh and the system into link errors whose text begins with ``doing``."""
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
