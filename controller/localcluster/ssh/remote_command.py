"""Runs one command for a client of asyncssh's server, like sshd.

The user's shell runs the command with a clean environment, in its own session. As with sshd, the
channel stays open while any process holds the command's output open. A command outlives its
connection until it uses the closed pipes.

This module copies the bytes itself, since asyncssh's ``redirect`` lost the end of a large output.
"""

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import asyncssh

COMMAND_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CHUNK_BYTES: Final = 65536
_CANNOT_START: Final = 127
"""A shell's exit status for a command that can't be started."""


@dataclass(frozen=True, slots=True)
class Shell:
    """The user, directory, shell and additional variables of all commands."""

    user: str
    working_directory: str
    program: str
    environment: dict[str, str]


async def run_command(process: "asyncssh.SSHServerProcess[bytes]", shell: Shell) -> None:
    """Run the client's command and report its exit status; never raises for a lost connection."""
    if process.command is None:
        process.stderr.write(b"this server has no terminals: give a command\n")
        process.exit(1)
        return
    (stdin, to_stdin), (from_stdout, stdout), (from_stderr, stderr) = (os.pipe() for _ in range(3))
    try:
        child = await _start(process.command, shell, (stdin, stdout, stderr))
    except OSError as error:
        _close(to_stdin, from_stdout, from_stderr)
        process.stderr.write(f"{shell.program}: {error.strerror}\n".encode())
        process.exit(_CANNOT_START)
        return
    finally:
        _close(stdin, stdout, stderr)
    async with asyncio.TaskGroup() as group:
        feeding = group.create_task(_carry_in(process.stdin, to_stdin))
        async with asyncio.TaskGroup() as outputs:
            outputs.create_task(_carry_out(from_stdout, process.stdout))
            outputs.create_task(_carry_out(from_stderr, process.stderr))
            exit_code = await child.wait()
        feeding.cancel()
    if exit_code < 0:
        process.exit_with_signal(signal.Signals(-exit_code).name.removeprefix("SIG"))
    else:
        process.exit(exit_code)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


async def _start(
    command: str, shell: Shell, descriptors: tuple[int, int, int]
) -> asyncio.subprocess.Process:
    stdin, stdout, stderr = descriptors
    return await asyncio.create_subprocess_exec(
        shell.program,
        "-c",
        command,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=shell.working_directory,
        env={
            "LOGNAME": shell.user,
            "PATH": COMMAND_PATH,
            "SHELL": shell.program,
            "USER": shell.user,
            **shell.environment,
        },
        start_new_session=True,
    )


async def _carry_in(source: "asyncssh.SSHReader[bytes]", descriptor: int) -> None:
    """Copy the client's input to the command until either end closes."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()),
        os.fdopen(descriptor, "wb", buffering=0),
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    try:
        with suppress(asyncssh.Error, OSError):
            while data := await source.read(_CHUNK_BYTES):
                writer.write(data)
                await writer.drain()
    finally:
        writer.close()


async def _carry_out(descriptor: int, target: "asyncssh.SSHWriter[bytes]") -> None:
    """Copy the command's output to the client; close the pipe when the client disconnects."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
    )
    try:
        with suppress(asyncssh.Error, OSError):
            while data := await reader.read(_CHUNK_BYTES):
                target.write(data)
                await target.drain()
    finally:
        transport.close()
