"""Errors between controller and node, and the one place that translates asyncssh's errors.

LinkError
+-- TemporaryLinkError   a retry may help: refused, reset, timed out, agent not up yet
+-- PermanentLinkError   a retry gives the same: wrong host key, key refused, no Python, a
directory that can't be written

``LoginError`` is what a login says by itself. ``translated`` turns it into one of them.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import asyncssh

from nodeagent.protocol.codec import ProtocolError

REFUSED_PAUSE_S: Final = 30.0
"""Seconds between two tries of a login that was refused. Each one counts against this address."""


class LinkError(Exception):
    """The node can't be used now. The text is the reason, in one line.

    Attributes:
        retry_after_s: Seconds that a retry should wait at least. Servers shut out addresses that
            come back too often.
    """

    def __init__(self, text: str, retry_after_s: float = 0.0) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class TemporaryLinkError(LinkError):
    """A retry may help."""


class PermanentLinkError(LinkError):
    """A retry gives the same result: an operator has to act."""


class LoginError(Exception):
    """A login failed. The text says why, and what to do, in one line.

    Attributes:
        is_permanent: Whether a retry gives the same, until somebody acts.
        retry_after_s: Seconds that a retry should wait at least.
    """

    def __init__(
        self, text: str, *, is_permanent: bool = True, retry_after_s: float = REFUSED_PAUSE_S
    ) -> None:
        super().__init__(text)
        self.is_permanent = is_permanent
        self.retry_after_s = retry_after_s


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn errors of asyncssh and the system into link errors whose text begins with ``doing``."""
    try:
        yield
    except LoginError as error:
        kind = PermanentLinkError if error.is_permanent else TemporaryLinkError
        raise kind(f"{doing}: {error}", error.retry_after_s) from error
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        raise PermanentLinkError(f"{doing}: the login key can't be used: {error}") from error
    except ValueError as error:
        raise PermanentLinkError(f"{doing}: the address makes no sense: {error}") from error
    except TimeoutError as error:
        raise TemporaryLinkError(f"{doing}: no answer in time") from error
    except ConnectionRefusedError as error:
        raise TemporaryLinkError(f"{doing}: connection refused") from error
    except (asyncssh.Error, OSError, ProtocolError, asyncio.IncompleteReadError) as error:
        text = str(error) or type(error).__name__
        raise TemporaryLinkError(f"{doing}: {text}") from error
