"""asyncssh's SSH server for a node, used if OpenSSH is missing or can't serve.

It is a process of its own: ``python -m controller.localcluster.ssh.asyncssh_server --config FILE``.
It accepts the run's key for the demo's user, and runs commands with that user's shell.
It forwards connections to unix sockets inside the node's state directory, and nothing else. It
offers no terminals. SIGUSR1 drops all connections; the listener and running commands continue.
"""

import argparse
import asyncio
import json
import os
import signal
from dataclasses import asdict, dataclass
from pathlib import Path

import asyncssh
from typing_extensions import override

from controller.localcluster.cluster_errors import ServerError
from controller.localcluster.interpreter import module_argv, module_environment
from controller.localcluster.local_node import LocalNode, ServerKind
from controller.localcluster.ssh.credentials import write_private
from controller.localcluster.ssh.remote_command import COMMAND_PATH, Shell, run_command
from controller.localcluster.ssh.ssh_server import (
    Credentials,
    SshServer,
    log_path,
    session_environment,
)
from controller.localcluster.warden_orders import CutMethod, ServerCommand


@dataclass(frozen=True, slots=True)
class Settings:
    """The configuration file, as JSON."""

    host: str
    port: int
    host_key_path: str
    authorized_keys_path: str
    state_dir: str
    user: str
    working_directory: str
    shell: str
    environment: dict[str, str]


class AsyncSsh(SshServer):
    """asyncssh's server, as a kind of SSH server."""

    @property
    @override
    def kind(self) -> ServerKind:
        return ServerKind.ASYNCSSH

    @property
    @override
    def title(self) -> str:
        return "asyncssh's server"

    @override
    def configure(self, node: LocalNode, credentials: Credentials) -> ServerCommand:
        account = credentials.account
        if not os.access(account.shell, os.X_OK):
            raise ServerError(f"the shell of user {account.name} is missing: {account.shell}")
        settings = Settings(
            host=node.host,
            port=node.port,
            host_key_path=str(credentials.host_key_path),
            authorized_keys_path=str(credentials.authorized_keys_path),
            state_dir=str(node.state_dir),
            user=account.name,
            working_directory=account.home if Path(account.home).is_dir() else "/",
            shell=account.shell,
            environment=session_environment(node),
        )
        config = credentials.directory / "asyncssh.json"
        config.unlink(missing_ok=True)
        write_private(config, json.dumps(asdict(settings)).encode())
        return ServerCommand(
            argv=[
                *module_argv("controller.localcluster.ssh.asyncssh_server"),
                "--config",
                str(config),
            ],
            env={"HOME": account.home, "PATH": COMMAND_PATH, **module_environment()},
            log_path=str(log_path(node)),
            cut_method=CutMethod.SIGNAL_SERVER,
        )


class _Connection(asyncssh.SSHServer):
    """One client's connection."""

    def __init__(
        self, settings: Settings, open_connections: set[asyncssh.SSHServerConnection]
    ) -> None:
        self._settings = settings
        self._all = open_connections
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        """Remember the connection, so that SIGUSR1 can drop it."""
        self._connection = conn
        self._all.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncssh's signature
        """Forget the connection."""
        if self._connection is not None:
            self._all.discard(self._connection)

    def begin_auth(self, username: str) -> bool:
        """Demand a key. Only the demo's own user has one."""
        if self._connection is not None and username == self._settings.user:
            self._connection.set_authorized_keys(self._settings.authorized_keys_path)
        return True

    def unix_connection_requested(self, dest_path: str) -> bool:
        """Return whether to forward: only to sockets of this node."""
        return Path(dest_path).resolve().is_relative_to(Path(self._settings.state_dir).resolve())


async def _serve(settings: Settings) -> None:
    connections: set[asyncssh.SSHServerConnection] = set()
    shell = Shell(
        user=settings.user,
        working_directory=settings.working_directory,
        program=settings.shell,
        environment=settings.environment,
    )

    def cut_all() -> None:
        for connection in list(connections):
            connection.abort()

    server = await asyncssh.create_server(
        lambda: _Connection(settings, connections),
        settings.host,
        settings.port,
        server_host_keys=[settings.host_key_path],
        process_factory=lambda process: run_command(process, shell),
        encoding=None,
        allow_pty=False,
        agent_forwarding=False,
        password_auth=False,
        kbdint_auth=False,
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, cut_all)
    async with server:
        await server.wait_closed()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    settings = Settings(**json.loads(parser.parse_args().config.read_bytes()))
    asyncio.run(_serve(settings))


if __name__ == "__main__":
    main()
