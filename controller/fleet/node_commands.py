"""Commands on a node over SSH: run one, understand its answer, copy files with one.

Files travel through a command as well. So a node needs no SFTP, and a login shell that prints
something of its own does no harm.
"""

import asyncio
import io
import json
import shlex
import tarfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from importlib import resources
from typing import Any, Final, TypeVar

import asyncssh

from controller.fleet.address import NodeAddress
from controller.fleet.errors import PermanentLinkError, TemporaryLinkError, translated
from nodeagent.protocol.ids import NodeId
from profiles.records import on_one_line

LIMIT_S: Final = 60.0
LONG_LIMIT_S: Final = 300.0
"""For commands that carry files."""
_SESSION_PAUSES_S: Final = (0.02, 0.1, 0.5)
_HOME_MARK: Final = "unicron-home:"
_MISSING: Final = 66
_IF_THERE: Final = f'test -e "$1" || exit {_MISSING}; shift; exec "$@"'
_NO_PLACE: Final = (
    "Permission denied",
    "Read-only file system",
    "No space left",
    "Not a directory",
)
_WHERE: Final = "in [ssh] or [[nodes]]"
NO_PROGRAM: Final = {126, 127}
"""Exit statuses of a shell that finds no program, or may not run it."""
_T = TypeVar("_T")


def shell_line(arguments: Sequence[str]) -> str:
    """Return ``arguments`` as the one string that SSH carries. Nothing else quotes."""
    return shlex.join(arguments)


async def in_free_session(begin: Callable[[], Awaitable[_T]]) -> _T:
    """Begin a command. With ``MaxSessions 1`` the one before has to be gone.

    A server counts a session until it has reaped its process, soon after the client saw the end.

    Raises:
        asyncssh.Error: It can't be begun.
    """
    for pause_s in _SESSION_PAUSES_S:
        try:
            return await begin()
        except asyncssh.ChannelOpenError:
            await asyncio.sleep(pause_s)
    return await begin()


class Done:
    """A command that has ended.

    Attributes:
        status: Its exit status; -1 if a signal ended it.
        text: What it printed. A login shell may have printed before it.
    """

    def __init__(self, result: asyncssh.SSHCompletedProcess) -> None:
        self.status = -1 if result.exit_status is None else result.exit_status
        self.text = _decoded(result.stdout)
        self._errors = _decoded(result.stderr)

    @property
    def last_words(self) -> str:
        """The last line on its standard error, or its exit status."""
        lines = self._errors.strip().splitlines()
        return on_one_line(lines[-1]) if lines else f"exit status {self.status}"

    def answer(self, key: str) -> dict[str, Any]:
        """Return the JSON object that it printed, whose first key is ``key``.

        Raises:
            ValueError: It printed none.
        """
        begin = self.text.index(f'{{"{key}"')
        found, _ = json.JSONDecoder().raw_decode(self.text, begin)
        return dict(found)


def _decoded(text: str | bytes | None) -> str:
    return text.decode(errors="replace") if isinstance(text, bytes) else (text or "")


async def run_words(
    connection: asyncssh.SSHClientConnection,
    doing: str,
    words: Sequence[str],
    *,
    limit_s: float = LIMIT_S,
    data: bytes = b"",
) -> Done:
    """Run a command, with ``data`` as its standard input. ``doing`` begins the text of errors.

    Raises:
        LinkError: The connection broke, or the command did not end in time.
    """
    line = shell_line(words)
    with translated(doing):
        async with asyncio.timeout(limit_s):
            process = await in_free_session(lambda: connection.create_process(line, encoding=None))
            # A command may end before it has read everything: what it says then is the reason.
            with suppress(BrokenPipeError):
                process.stdin.write(data)
                process.stdin.write_eof()
            return Done(await process.wait())


async def home_of(connection: asyncssh.SSHClientConnection, node: NodeId) -> str:
    """Return the absolute path of the home that a login on ``node`` begins in.

    Raises:
        TemporaryLinkError: The connection broke.
        PermanentLinkError: The user has no home there.
    """
    doing = f"looking up the home directory on {node}"
    words = ["sh", "-c", f'cd && printf "\\n{_HOME_MARK}%s\\n" "$(pwd -P)"']
    done = await run_words(connection, doing, words)
    _, _, home = done.text.partition(_HOME_MARK)
    if done.status != 0 or not home.startswith("/"):
        raise PermanentLinkError(f"{doing}: {done.last_words}")
    return home.partition("\n")[0]


async def run_if_there(
    connection: asyncssh.SSHClientConnection,
    doing: str,
    path: str,
    words: Sequence[str],
    *,
    limit_s: float = LIMIT_S,
) -> Done | None:
    """Run a command if ``path`` is there; return None if it is not.

    Raises:
        LinkError: The connection broke, or the command did not end in time.
    """
    line = ["sh", "-c", _IF_THERE, "sh", path, *words]
    done = await run_words(connection, doing, line, limit_s=limit_s)
    return None if done.status == _MISSING else done


async def copy_files(
    connection: asyncssh.SSHClientConnection,
    address: NodeAddress,
    what: str,
    files: Mapping[str, bytes],
    directory: str,
) -> None:
    """Copy files, by their paths below ``directory``, which is there afterwards with all of them.

    Raises:
        TemporaryLinkError: The connection broke.
        PermanentLinkError: The interpreter is missing, or something can't be written. The text says
            what to do.
    """
    doing = f"copying {what} to {directory} on {address.node}"
    words = [address.python, "-I", "-c", _receiver(), directory]
    data = await asyncio.to_thread(archive_of, files)
    done = await run_words(connection, doing, words, limit_s=LONG_LIMIT_S, data=data)
    if done.status == 0:
        return
    if done.status == -1:
        raise TemporaryLinkError(f"{doing}: a signal ended it")
    raise PermanentLinkError(f"{doing}: {why_failed(done, address)}")


def why_failed(done: Done, address: NodeAddress) -> str:
    """Return why a command of the node's interpreter failed, and what to do, in one line."""
    if done.status in NO_PROGRAM:
        return f"there is no interpreter {address.python}: name another one as python, {_WHERE}"
    if any(reason in done.last_words for reason in _NO_PLACE):
        return f"{done.last_words}; name another place as state_dir, {_WHERE}"
    return done.last_words


def _receiver() -> str:
    return resources.files("nodeagent").joinpath("receive.py").read_text(encoding="utf-8")


def archive_of(files: Mapping[str, bytes]) -> bytes:
    """Return files, by their paths, as a compressed tar archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for path in sorted(files):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(files[path]), 0o644
            archive.addfile(entry, io.BytesIO(files[path]))
    return packed.getvalue()
