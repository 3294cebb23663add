"""A cluster file on another machine, and the controller there: ``ssh://[USER@]HOST[:PORT]/PATH``.

A thread logs in, as the user's SSH configuration says and with host keys verified, and reads which
directory the run has. Then it passes each connection to a local socket on to the controller's. So
commands connect as they do on the controller's own machine.
"""

import asyncio
import atexit
import concurrent.futures
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import asyncssh

from controller.clusterfile.cluster_keys import SshSection
from controller.clusterfile.file_places import (
    SOCKET_NAME,
    RemoteClusterError,
    RemoteFile,
    RemotePlace,
)
from controller.clusterfile.ssh_config import SshConfig, SshConfigError
from controller.fleet.address import NodeAddress
from controller.fleet.errors import LinkError, translated
from controller.fleet.node_commands import run_words
from controller.fleet.node_connection import SshLogins
from nodeagent.protocol.ids import NodeId

_MARK: Final = "unicron-places:"
_LOOK: Final = (
    f'cd && printf "\\n{_MARK}%s\\n%s\\n" "$(pwd -P)" "${{XDG_STATE_HOME:-}}"'
    f' && cat -- "$1" && printf "\\n{_MARK}"'
)
_PAUSE_S: Final = 2.0


class Tunnel:
    """A way to the controller of a remote cluster file, kept by a thread until the program ends.

    It logs in again when the connection breaks; meanwhile nothing is at its local end.

    Args:
        place: The cluster file.
        socket_of: Returns the path of the controller's socket there, from the file.

    Attributes:
        socket: The local end, in a directory of mode 0700.

    Raises:
        RemoteClusterError: The machine can't be reached, or the file can't be read.
    """

    def __init__(self, place: RemotePlace, socket_of: Callable[[RemoteFile], str]) -> None:
        self._place, self._socket_of = place, socket_of
        self._address = _address_of(place)
        directory = tempfile.TemporaryDirectory(prefix="unicron-")
        atexit.register(directory.cleanup)
        self.socket = Path(directory.name) / SOCKET_NAME
        self._is_open = concurrent.futures.Future[None]()
        threading.Thread(target=self._run, name="tunnel", daemon=True).start()
        self._is_open.result()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:  # noqa: BLE001 - whatever it is, the program waits for it
            if not self._is_open.done():
                self._is_open.set_exception(error)

    async def _serve(self) -> None:
        async with SshLogins() as logins:
            while True:
                try:
                    await self._connect(logins)
                except LinkError as error:
                    if not self._is_open.done():
                        raise RemoteClusterError(str(error)) from error
                self.socket.unlink(missing_ok=True)
                await asyncio.sleep(_PAUSE_S)

    async def _connect(self, logins: SshLogins) -> None:
        """Serve the local end until the connection ends.

        Raises:
            LinkError: There is no connection, or it broke.
            RemoteClusterError: The file can't be read.
        """
        async with await logins.open(self._address) as connection:
            target = self._socket_of(await _read(connection, self._place))
            with translated(f"forwarding to {target} on {self._place.host}"):
                await connection.forward_local_path(str(self.socket), target)
            if not self._is_open.done():
                self._is_open.set_result(None)
            await connection.wait_closed()


def _address_of(place: RemotePlace) -> NodeAddress:
    section = SshSection(user=place.user or None, port=place.port)
    try:
        target, jumps = SshConfig(section, Path.cwd()).way_to(place.host)
    except SshConfigError as error:
        raise RemoteClusterError(str(error)) from error
    # Nothing of Unicron is used there but the controller's socket.
    return NodeAddress(NodeId(place.host), target, "", "", 0, jumps=jumps)


async def _read(connection: asyncssh.SSHClientConnection, place: RemotePlace) -> RemoteFile:
    doing = f"reading {place.path} on {place.host}"
    done = await run_words(connection, doing, ["sh", "-c", _LOOK, "sh", place.path])
    _, _, told = done.text.partition(_MARK)
    home, _, rest = told.partition("\n")
    state_home, _, text = rest.partition("\n")
    text, is_whole, _ = text.partition(f"\n{_MARK}")
    if done.status != 0 or not is_whole:
        raise RemoteClusterError(f"{doing}: {done.last_words}")
    return RemoteFile(text, home, state_home)
