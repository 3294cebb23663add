"""Looks where ranks stand that make no progress, and reports it. Nothing is woken or ended by it.

The kernel is asked first: a process that is stopped can answer nobody. Then the rank itself, over
its control connection. Who does not answer may hold the interpreter's lock for ever, or live in the
kernel: Python's fault handler, which needs no lock, is asked for the stacks by a signal; ``py-spy``
reads them from outside where it is installed and permitted. All ranks are looked at together, and
what is not known when the time is over stays unknown.
"""

import asyncio
import contextlib
import logging
import shutil
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from nodeagent.detect.stacks import parse_dump, parse_py_spy, standing_of
from nodeagent.outbox.outbox_file import OutboxFile
from nodeagent.probes.process_stats import catches, core_wait_s, read_stat
from nodeagent.process_tools.node_clock import NodeClock
from nodeagent.process_tools.pidfd import send
from nodeagent.protocol.observations import RankInspected
from nodeagent.protocol.standing import Standing, Where
from nodeagent.ranks.rank_connections import RankConnections
from nodeagent.ranks.rank_files import RankFiles
from nodeagent.ranks.rank_process import RankProcess

_LOG = logging.getLogger(__name__)

DUMP_SIGNAL: Final = signal.SIGUSR2
"""What ranks let their fault handler listen to (``nodeagent.rank.agent_link.training_stacks``)."""

_POLL_S: Final = 0.01
_STARVED_SHARE: Final = 0.5
"""A rank that waited for a core for this share of an inspection can't answer."""
_DUMP_LIMIT_S: Final = 0.3
_MAX_DUMP_BYTES: Final = 64 * 1024
_STOPPED: Final = frozenset("Tt")
_BLOCKED: Final = "D"


class RankInspector:
    """Looks at ranks of the node. Each look is stored in the outbox as ``RankInspected``."""

    def __init__(
        self, hub: RankConnections, files: RankFiles, outbox: OutboxFile, clock: NodeClock
    ) -> None:
        self._hub = hub
        self._files = files
        self._outbox = outbox
        self._clock = clock
        self._py_spy = shutil.which("py-spy")

    async def inspect(
        self, ranks: Iterable[RankProcess], answer_limit_s: float, limit_s: float
    ) -> None:
        """Look at all of ``ranks``, and report each as soon as it is known.

        Args:
            ranks: Living ranks; one that ends meanwhile is passed over, since its exit is reported.
            answer_limit_s: How long a rank may take to answer for itself.
            limit_s: Seconds for everything.
        """
        async with asyncio.TaskGroup() as group:
            for rank in ranks:
                group.create_task(self._inspect(rank, answer_limit_s, limit_s))

    async def _inspect(self, rank: RankProcess, answer_limit_s: float, limit_s: float) -> None:
        key, begin_s, wait_s = rank.key, self._clock.monotonic_s(), core_wait_s(rank.pid)
        standing = await self._ask(rank, answer_limit_s)
        if standing is None:
            standing = await self._look(rank, limit_s - answer_limit_s)
        if standing is not None and standing.where == "no answer" and wait_s is not None:
            starved_s = (core_wait_s(rank.pid) or 0.0) - wait_s
            if starved_s >= _STARVED_SHARE * (self._clock.monotonic_s() - begin_s):
                # A rank without a core can't answer: that is no sign of a hang.
                _LOG.warning(
                    "rank gave no answer, it had no core: rank=%s waited_s=%.2f",
                    rank.name,
                    starved_s,
                )
                return
        if standing is not None and standing.where == "no answer" and _is_opaque(rank):
            return  # it never says anything
        if standing is None or rank.key != key:
            return
        waited_s = rank.waited_s(self._clock.monotonic_s(), standing.idle_s or 0.0)
        inspected = RankInspected(
            task=key.task,
            generation=key.generation,
            global_rank=key.global_rank,
            pid=rank.pid,
            standing=standing.model_copy(update={"waited_s": waited_s}),
        )
        try:
            self._outbox.store(inspected, self._clock.wall_s())
        except OSError as error:
            _LOG.error("cannot store an inspection: rank=%s reason=%s", rank.name, error)

    async def _ask(self, rank: RankProcess, limit_s: float) -> Standing | None:
        """Return what the rank says, None if it says nothing; a stopped one is not asked."""
        stat = read_stat(rank.pid)
        if stat is None or stat.state in _STOPPED or _is_opaque(rank):
            return None
        return await self._hub.ask_standing(rank.pid, limit_s)

    async def _look(self, rank: RankProcess, limit_s: float) -> Standing | None:
        """Return what can be seen from outside; None where the process has ended."""
        stat = read_stat(rank.pid)
        if stat is None or not stat.is_alive:
            return None
        is_stopped = stat.state in _STOPPED
        seen: Standing | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                if not is_stopped:
                    seen = await self._dump(rank)
                seen = seen or await self._spy(rank.pid)
        if is_stopped:
            return _outside("stopped", seen)
        if seen is not None:
            return seen
        # Looked at last: what is in the kernel for a moment only is there at one of two looks.
        stat = read_stat(rank.pid)
        if stat is None or not stat.is_alive:
            return None
        return _outside("blocked" if stat.state == _BLOCKED else "no answer", None)

    async def _dump(self, rank: RankProcess) -> Standing | None:
        """Have the rank's fault handler write its stacks; None if none comes, or comes in time."""
        if rank.pidfd is None or _is_opaque(rank) or not catches(rank.pid, DUMP_SIGNAL):
            return None  # it would be ended by the signal, or means something else by it
        path = self._files.stack(rank.first_key)
        if not path.exists():
            return None  # the signal means something else to this program
        begin = _size(path)
        send(rank.pidfd, DUMP_SIGNAL)
        seen, num_bytes = None, begin
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DUMP_LIMIT_S):
                while seen is None or _size(path) > num_bytes:
                    num_bytes = _size(path)
                    threads = parse_dump(_read(path, begin))
                    seen = standing_of(threads, "faulthandler", _no_line) or seen
                    await asyncio.sleep(_POLL_S)
        return seen

    async def _spy(self, pid: int) -> Standing | None:
        if self._py_spy is None:
            return None
        process = await asyncio.create_subprocess_exec(
            *(self._py_spy, "dump", "--nonblocking", "--json", "--pid", str(pid)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            output, _ = await process.communicate()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        threads = parse_py_spy(output.decode("utf-8", "replace"))
        return standing_of(threads, "py-spy", _no_line)


def _no_line(_file: str, _line: int) -> str:
    """The source is not read here: it may lie on a file system that hangs, as the rank does."""
    return ""


def _is_opaque(rank: RankProcess) -> bool:
    """Whether its program is a command that has not attached: it knows nothing of all this."""
    return rank.is_command and not rank.is_attached


def _outside(where: Where, seen: Standing | None) -> Standing:
    if seen is None:
        return Standing(where=where, source="kernel")
    return seen.model_copy(update={"where": where, "collective": ""})


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _read(path: Path, begin: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(begin)
            return file.read(_MAX_DUMP_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
