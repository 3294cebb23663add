"""Finds out how a rank's process ended, and stores its exit.

The exit comes from the ``.exit`` file, since the agent is not the parent. ``kill_causes`` finds the
sender of a SIGKILL. The exit is stored together with a mark, which keeps the next agent from
reporting it again if this one dies before it has removed the rank's files.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from nodeagent.outbox.outbox_file import OutboxFile
from nodeagent.outbox.outbox_records import Mark, MarkScope
from nodeagent.process_tools.node_clock import NodeClock
from nodeagent.process_tools.pidfd import wait_ended
from nodeagent.process_tools.process_files import ExitRecord
from nodeagent.protocol.observations import AnyObservation, LaunchFailed, RankExited
from nodeagent.ranks.command_ranks import CommandRanks
from nodeagent.ranks.kill_causes import KillCauses
from nodeagent.ranks.rank_files import RankFiles
from nodeagent.ranks.rank_process import RankProcess
from nodeagent.ranks.supervisor import is_exit_expected

_LOG = logging.getLogger(__name__)

_POLL_S: Final = 0.02
_NUM_LOOKS: Final = 100
"""For an exit file, in 2 s. Time alone says nothing: a machine that stands still writes no file."""
_STORE_RETRY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class ExitSources:
    """Who else knows of the end of a process.

    Attributes:
        drained: Waits until what the process ``pid`` had sent to the agent is read, so that its
            exit is not stored before its last words.
        causes: Separates kills for memory from others.
        commands: Reports for the ranks that are commands.
    """

    drained: Callable[[int], Awaitable[None]]
    causes: KillCauses
    commands: CommandRanks


class RankExits:
    """Takes down the ends of ranks.

    Args:
        files: The ranks' directory.
        outbox: Where exits are stored.
        clock: The node's clock.
        sources: Other sources of information about an exit.
    """

    def __init__(
        self, files: RankFiles, outbox: OutboxFile, clock: NodeClock, sources: ExitSources
    ) -> None:
        self._files = files
        self._outbox = outbox
        self._clock = clock
        self._drained, self._causes = sources.drained, sources.causes
        self._commands = sources.commands

    async def store(self, rank: RankProcess) -> None:
        """Wait for the end of a process, and store how it came once that is known."""
        if rank.pidfd is not None:
            await wait_ended(rank.pidfd)
        ended = await self._exit_record(rank)
        await self._drained(rank.pid)
        is_out_of_memory = await self._is_out_of_memory(rank, ended)
        self._causes.forget(rank.pid)
        await self._store_exit(rank, ended, is_out_of_memory=is_out_of_memory)

    async def _exit_record(self, rank: RankProcess) -> ExitRecord | None:
        """Wait until its parent wrote how the rank ended; the parent may itself be dead."""
        for _ in range(_NUM_LOOKS):
            if (ended := self._files.exit(rank.first_key, rank.pid)) is not None:
                return ended
            await asyncio.sleep(_POLL_S)
        _LOG.warning("no exit record, exit status unknown: rank=%s", rank.name)
        return None

    async def _is_out_of_memory(self, rank: RankProcess, ended: ExitRecord | None) -> bool:
        if ended is None or ended.signal != signal.SIGKILL or rank.is_killed_here:
            return False
        return await self._causes.is_out_of_memory(rank.pid)

    def _describe_exit(
        self, rank: RankProcess, ended: ExitRecord | None, *, is_out_of_memory: bool
    ) -> AnyObservation:
        key, marks = rank.key, self._outbox.outbox
        tail = self._files.tail(rank.first_key, rank.record.log_begin)
        log = str(self._files.log(rank.first_key))
        if rank.is_cold and not rank.is_foreign and not marks.mark(MarkScope.START, key.stem):
            return LaunchFailed(
                task=key.task,
                generation=key.generation,
                global_rank=key.global_rank,
                reason=f"cold start ended with {_in_words(ended)} before its first word",
                stderr_tail=tail,
                log=log,
            )
        return RankExited(
            task=key.task,
            generation=key.generation,
            global_rank=key.global_rank,
            pid=rank.pid,
            exit_code=ended.exit_code if ended else None,
            signal=ended.signal if ended else None,
            is_expected=is_exit_expected(key, is_foreign=rank.is_foreign, marks=marks),
            is_core_dumped=ended is not None and ended.is_core_dumped,
            is_out_of_memory=is_out_of_memory,
            tail_line=self._files.line_of(rank.first_key, tail),
            stderr_tail=tail,
            log=log,
        )

    async def _store_exit(
        self, rank: RankProcess, ended: ExitRecord | None, *, is_out_of_memory: bool
    ) -> None:
        """Store an exit, and retry until it is stored: no rank repeats this report."""
        mark = Mark(scope=MarkScope.EXIT, name=rank.name)
        while True:
            try:
                if rank.is_command and not rank.is_foreign:
                    await self._commands.take_end(rank, ended)
                # Described anew each time: it may have been given another name meanwhile.
                exit_ = self._describe_exit(rank, ended, is_out_of_memory=is_out_of_memory)
                self._outbox.store(exit_, self._clock.wall_s(), mark)
            except OSError as error:
                _LOG.error("cannot store an exit, will retry: rank=%s reason=%s", rank.name, error)
                await asyncio.sleep(_STORE_RETRY_S)
            else:
                return


def _in_words(ended: ExitRecord | None) -> str:
    if ended is None:
        return "an unknown status"
    if ended.signal is not None:
        return f"signal {ended.signal}"
    return f"exit code {ended.exit_code}"
