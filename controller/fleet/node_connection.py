"""SSH logins: to nodes, and to the jump hosts on the way, which are shared.

A jump host sees every connection to the nodes behind it. So there is one connection to it, at most
``_MOST_THROUGH_ONE`` logins are under way through it, and what it refused is not tried again by
each node.
"""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from types import TracebackType
from typing import Final, Self

import asyncssh

from controller.fleet.address import NodeAddress, SshTarget, connected_socket
from controller.fleet.errors import LinkError, LoginError, PermanentLinkError, translated
from controller.fleet.host_keys import AcceptedKeys, HostKeyCheck
from controller.fleet.login_keys import login_keys
from profiles.records import on_one_line

CONNECT_LIMIT_S: Final = 10.0
_MOST_HANDSHAKES: Final = 64
_MOST_THROUGH_ONE: Final = 8
_KEEPALIVE_S: Final = 5.0
_MOST_LOST_KEEPALIVES: Final = 3
_NUM_FIRST_BYTES: Final = 256
_CROWDED_PAUSE_S: Final = 3.0
SHUT_OUT_PAUSE_S: Final = 40.0
"""Seconds until the next try at a server that shuts this address out: penalties add up."""
_PAUSE_S: Final = 2.0
"""How long the failure of a jump host counts for all nodes behind it."""
_Jumps = tuple[SshTarget, ...]


class SshLogins:
    """Opens SSH connections. Close it: it holds the connections to jump hosts.

    Args:
        accepted: The project's own known_hosts file, if there is one.
    """

    def __init__(self, accepted: AcceptedKeys | None = None) -> None:
        self._accepted = accepted
        # Each takes milliseconds of one core: more at once would all run into their time limit.
        self._handshakes = asyncio.Semaphore(_MOST_HANDSHAKES)
        self._shared: dict[_Jumps, _SharedJump] = {}

    async def __aenter__(self) -> Self:
        """Begin to open connections."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """End the connections to jump hosts."""
        self.close()

    def close(self) -> None:
        """End the connections to jump hosts, and with them all that lead through them."""
        for shared in self._shared.values():
            shared.close()
        self._shared.clear()

    async def open(self, address: NodeAddress) -> asyncssh.SSHClientConnection:
        """Return a connection to a node.

        Raises:
            LinkError: There is none. The text says why, and what to do.
        """
        with translated(f"connecting to {address.node} at {address.way}"):
            return await self._login(address.ssh, address.jumps)

    async def _login(self, target: SshTarget, jumps: _Jumps) -> asyncssh.SSHClientConnection:
        if not jumps:
            return await self._login_directly(target)
        shared = self._shared.setdefault(jumps, _SharedJump())
        async with shared.gate:
            through = await shared.connection(lambda: self._login_at_jump(jumps))
            async with asyncio.timeout(CONNECT_LIMIT_S):
                return await self._handshake(target, tunnel=through)

    async def _login_at_jump(self, jumps: _Jumps) -> asyncssh.SSHClientConnection:
        try:
            with translated(f"the jump host {jumps[-1].place}"):
                return await self._login(jumps[-1], jumps[:-1])
        except LinkError as error:
            is_permanent = isinstance(error, PermanentLinkError)
            pause_s = max(_PAUSE_S, error.retry_after_s)
            raise LoginError(
                str(error), is_permanent=is_permanent, retry_after_s=pause_s
            ) from error

    async def _login_directly(self, target: SshTarget) -> asyncssh.SSHClientConnection:
        # A machine that is down takes the whole limit. It must not take another node's handshake.
        async with asyncio.timeout(CONNECT_LIMIT_S):
            connected = await connected_socket(target.host, target.port)
        with contextlib.ExitStack() as closing:
            closing.callback(connected.close)
            async with asyncio.timeout(CONNECT_LIMIT_S):
                _check_first_bytes(target, await _first_bytes(connected))
            connection = await self._handshake(target, sock=connected)
            closing.pop_all()  # the connection closes it from now on
        return connection

    async def _handshake(
        self,
        target: SshTarget,
        *,
        sock: socket.socket | None = None,
        tunnel: asyncssh.SSHClientConnection | None = None,
    ) -> asyncssh.SSHClientConnection:
        check = HostKeyCheck(target, self._accepted)
        async with login_keys(target) as keys, self._handshakes:
            with _explained(target, check):
                return await asyncssh.connect(
                    target.host,
                    target.port,
                    sock=sock,
                    tunnel=tunnel or (),
                    username=target.user,
                    client_keys=list(keys),
                    known_hosts=check.known_hosts,
                    host_key_alias=target.host_key_alias or None,
                    client_factory=lambda: check,
                    agent_path=None,
                    config=None,
                    encryption_algs=_FAST_CIPHERS,
                    login_timeout=CONNECT_LIMIT_S,
                    keepalive_interval=_KEEPALIVE_S,
                    keepalive_count_max=_MOST_LOST_KEEPALIVES,
                )


_FAST_CIPHERS: Final = "^aes128-gcm@openssh.com,aes256-gcm@openssh.com"
"""Tried before all others: a packet of a heartbeat costs a fifth of what ChaCha20 takes here."""


class _SharedJump:
    """The connection to a jump host. All nodes behind it share it."""

    def __init__(self) -> None:
        self.gate = asyncio.Semaphore(_MOST_THROUGH_ONE)
        self._opening = asyncio.Lock()
        self._connection: asyncssh.SSHClientConnection | None = None
        self._failure: LoginError | None = None
        self._failed_until = 0.0

    async def connection(
        self, login: Callable[[], Awaitable[asyncssh.SSHClientConnection]]
    ) -> asyncssh.SSHClientConnection:
        """Return the connection; ``login`` opens one if there is none.

        Raises:
            LoginError: There is none. All who ask soon afterwards get the same error.
        """
        now = asyncio.get_running_loop().time
        async with self._opening:
            if self._connection is not None and not self._connection.is_closed():
                return self._connection
            failure = self._failure
            if failure is not None and now() < self._failed_until:
                raise LoginError(
                    str(failure),
                    is_permanent=failure.is_permanent,
                    retry_after_s=failure.retry_after_s,
                )
            try:
                self._connection = await login()
            except LoginError as error:
                self._failure, self._failed_until = error, now() + error.retry_after_s
                raise
            return self._connection

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.abort()


async def _first_bytes(connected: socket.socket) -> bytes:
    """Return the first bytes that a server sends, and leave them to be read again.

    Nothing if it closes or resets the connection.
    """
    loop = asyncio.get_running_loop()
    has_spoken = asyncio.Event()
    loop.add_reader(connected, has_spoken.set)
    try:
        await has_spoken.wait()
    finally:
        loop.remove_reader(connected)
    try:
        return connected.recv(_NUM_FIRST_BYTES, socket.MSG_PEEK)
    except ConnectionResetError:
        return b""


def _check_first_bytes(target: SshTarget, first: bytes) -> None:
    """Say what it means that a server says something else than its version.

    Raises:
        LoginError: It closes the connection.
    """
    if b"MaxStartups" in first:
        raise LoginError(
            f"its SSH server has too many logins under way (it says {_quoted(first)}): more fit with a"
            f" larger MaxStartups in sshd_config on {target.host}",
            is_permanent=False,
            retry_after_s=_CROWDED_PAUSE_S,
        )
    if not first or b"Not allowed at this time" in first:
        raise _shut_out(target)


def _shut_out(target: SshTarget) -> LoginError:
    return LoginError(
        "its SSH server closes the connection before its banner, as it does with addresses that it"
        f" penalises: on {target.host}, name this machine in PerSourcePenaltyExemptList of sshd_config, or"
        f" raise MaxStartups; the next try is in {SHUT_OUT_PAUSE_S:g} s",
        is_permanent=False,
        retry_after_s=SHUT_OUT_PAUSE_S,
    )


def _quoted(first: bytes) -> str:
    line = first.splitlines()[0].decode(errors="replace")
    return repr(on_one_line(line))


@contextlib.contextmanager
def _explained(target: SshTarget, check: HostKeyCheck) -> Iterator[None]:
    """Turn what ends a handshake into a reason and a mend."""
    try:
        yield
    except asyncssh.HostKeyNotVerifiable as error:
        # asyncssh has no error of its own for a revoked key.
        is_revoked = "revoked" in str(error)
        raise LoginError(check.why_revoked() if is_revoked else check.why_refused()) from error
    except asyncssh.PermissionDenied as error:
        key = target.client_key or "the keys of the ssh-agent"
        raise LoginError(
            f"the login as {target.user} with {key} is refused: add the public key to ~/.ssh/authorized_keys"
            f" of {target.user} there (ssh-copy-id), or name another user or identity"
        ) from error
    except (asyncssh.ConnectionLost, ConnectionResetError) as error:
        if check.server_version:
            raise
        raise _shut_out(target) from error
    except asyncssh.ChannelOpenError as error:
        if "reset by peer" in str(error):  # as the jump host saw it
            raise _shut_out(target) from error
        if error.code != asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED:
            raise
        raise LoginError(
            f"the jump host does not forward to {target.place}: allow it there with AllowTcpForwarding and"
            " PermitOpen in sshd_config"
        ) from error
