"""The rank processes of the node: watched by pidfd, adopted from a former agent, reported at exit.

Every rank has a pidfd, also those forked by the template or started by an agent before this one. A
pidfd names the process itself, so a signal can't reach a stranger that was given the same pid. An
exit is stored before the rank's files are removed.

A process may be ordered to become another rank. From that instant it has the new name here and on
disk, and its exit counts for the new rank. If the agent ends before the process has the order, the
next agent sends it again.

How a process ended is found out in ``rank_exits``. Which ranks to kill or start is decided in
``supervisor``.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from nodeagent.outbox.outbox_file import OutboxFile
from nodeagent.outbox.outbox_records import Mark, MarkScope
from nodeagent.process_tools.node_clock import NodeClock
from nodeagent.protocol.ids import TaskId
from nodeagent.protocol.local import RankHello, RankPulse
from nodeagent.protocol.observations import RankStarted
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.protocol.rank_status import RankStatus
from nodeagent.ranks.rank_connections import Ranks
from nodeagent.ranks.rank_exits import ExitSources, RankExits
from nodeagent.ranks.rank_files import RankFiles, RankRecord
from nodeagent.ranks.rank_process import RankProcess, open_running
from nodeagent.ranks.supervisor import Adoption, RankKey, judge_record, key_of

_LOG = logging.getLogger(__name__)

RECORD_WAIT_S: Final = 5.0
_POLL_S: Final = 0.02

Spawn = Callable[[Coroutine[Any, Any, None], str], None]
"""Runs a coroutine in the agent's task group; the text names it in the log if it fails."""


class RankProcesses(Ranks):
    """All living ranks of the node."""

    def __init__(
        self,
        files: RankFiles,
        outbox: OutboxFile,
        clock: NodeClock,
        spawn: Spawn,
        sources: ExitSources,
    ) -> None:
        """Take what is needed to watch.

        Args:
            files: The ranks' directory.
            outbox: Where starts and exits are stored.
            clock: The node's clock.
            spawn: Starts the watching of one rank.
            sources: Other sources of information about an exit.
        """
        self._files = files
        self._outbox = outbox
        self._clock = clock
        self._spawn = spawn
        self._causes, self.commands = sources.causes, sources.commands
        self._exits = RankExits(files, outbox, clock, sources)
        self._by_pid: dict[int, RankProcess] = {}
        self._launched_at: dict[RankKey, float] = {}

    def living(self) -> list[RankProcess]:
        """Return the ranks whose exit is not stored yet."""
        return list(self._by_pid.values())

    def log_of(self, task: TaskId, global_rank: int) -> tuple[Path, int] | None:
        """Return the newest log of a rank, and where its own output begins there."""
        living = [each for each in self.living() if each.key[::2] == (task, global_rank)]
        if living:
            newest = max(living, key=lambda rank: rank.key.generation)
            return self._files.log(newest.first_key), newest.record.log_begin
        return next(((path, 0) for path in self._files.logs_of(task, global_rank)), None)

    def previous_log_of(self, task: TaskId, global_rank: int) -> tuple[Path, int] | None:
        """Return the log of the process before the newest one of a rank, and where it begins."""
        newest = self.log_of(task, global_rank)
        if newest is None:
            return None
        former = [path for path in self._files.logs_of(task, global_rank) if path != newest[0]]
        return next(((path, 0) for path in former), None)

    def find(self, key: RankKey) -> RankProcess | None:
        """Return the living rank of that name in this run of the controller, if there is one."""
        ranks = (rank for rank in self._by_pid.values() if rank.key == key and not rank.is_foreign)
        return next(ranks, None)

    @override
    def is_foreign(self, pid: int) -> bool:
        return pid in self._by_pid and self._by_pid[pid].is_foreign

    def disown(self) -> None:
        """Look again who is foreign, after another run of the controller took over."""
        for rank in self._by_pid.values():
            rank.is_foreign = bool(self._outbox.outbox.mark(MarkScope.FOREIGN, rank.name))

    def expect(self, key: RankKey) -> None:
        """Note that the rank's start is asked for now: its start is measured from here."""
        self._launched_at[key] = self._clock.monotonic_s()

    def adopt_all(self) -> None:
        """Watch every rank on disk that is not watched yet; report those that ended unseen.

        Raises:
            OSError: The start of one can't be stored.
        """
        known = {rank.first_key.stem for rank in self._by_pid.values()}
        for record in self._files.records(known):
            self.adopt(record)

    def adopt_forked(self, key: RankKey, pid: int) -> RankProcess | None:
        """Watch a rank that was just started; None where its exit is stored already.

        Raises:
            OSError: It has no record, or its start can't be stored.
        """
        record = self._files.record(key)
        if record is None or record.pid != pid:
            if pid in self._by_pid or self._outbox.outbox.mark(MarkScope.EXIT, key.process(pid)):
                return self._by_pid.get(pid)
            raise OSError(f"{key.stem} was started as {pid}, but its record is missing")
        return self.adopt(record)

    def adopt(self, record: RankRecord) -> RankProcess | None:
        """Watch the process of ``record`` and report its start, each once.

        A cold rank's start is reported with its first word.

        Returns:
            The rank, or None where its exit is stored already.

        Raises:
            OSError: The start can't be stored. The rank is watched nevertheless.
        """
        if record.pid in self._by_pid:
            return self._by_pid[record.pid]
        now = self._clock.monotonic_s()
        rank = RankProcess(record, launched_at=self._launched_at.pop(record.first_key, now))
        marks = self._outbox.outbox
        rank.is_foreign = bool(marks.mark(MarkScope.FOREIGN, rank.name))
        rank.is_attached = rank.is_command and self._files.is_attached(rank.first_key)
        rank.is_cold = not rank.is_command and self._files.is_cold(rank.first_key)
        rank.pidfd = open_running(record)
        verdict = judge_record(
            is_running=rank.pidfd is not None,
            is_exit_stored=bool(marks.mark(MarkScope.EXIT, rank.name)),
        )
        if verdict is Adoption.CLEAN_UP:
            self._forget(rank)
            return None
        self._by_pid[record.pid] = rank
        self._causes.watch(rank.pid)
        self._spawn(self._watch(rank), f"watch of {rank.name}")
        if rank.is_command:
            self._spawn(self.commands.follow(rank), f"log of {rank.name}")
        if not rank.is_cold:
            self._note_start(rank)
        return rank

    def rename(self, rank: RankProcess, launch: RankLaunch) -> None:
        """Let a living process be the rank of ``launch`` from now on.

        The record first: were it the mark, an agent that died in between would leave a rank that
        counts as started and has no process.

        Raises:
            OSError: That can't be stored. The process has its old name; it may be tried again.
        """
        record = self._files.rename(rank.record, launch)
        self._outbox.advance(MarkScope.START, key_of(launch).stem)
        _LOG.info("process became another rank: process=%s rank=%s", rank.name, record.key.stem)
        rank.record = record
        rank.busy_s.clear()  # it may get another share of the batch

    @override
    async def greet(self, hello: RankHello) -> RankProcess | None:
        """Take in a rank's hello: its start must be stored before its first report.

        A forked rank may connect before its parent has written its record, so wait for the record.
        For a command any process of its session may connect, since a script may start the program.

        Returns:
            The process; None if nothing on disk names it.

        Raises:
            OSError: Its start can't be stored.
        """
        key = RankKey(hello.task, hello.generation, hello.global_rank)
        deadline = self._clock.monotonic_s() + RECORD_WAIT_S
        while hello.pid not in self._by_pid:
            record = self._files.record(key)
            if record is not None and record.pid == hello.pid:
                self.adopt(record)
                break
            if (command := self._command_above(key, hello.pid)) is not None:
                command.is_attached = True
                return command
            if self._clock.monotonic_s() >= deadline:
                _LOG.warning("rank has no start record: rank=%s", key.process(hello.pid))
                return None
            await asyncio.sleep(_POLL_S)
        rank = self._by_pid.get(hello.pid)
        if rank is not None and rank.is_cold:
            self._note_start(rank)
        if rank is not None and rank.is_command:
            rank.is_attached = True
        return rank

    @override
    def pulse(self, pid: int, pulse: RankPulse) -> None:
        if (rank := self._by_pid.get(pid)) is not None:
            rank.take_pulse(pulse)

    def statuses(self) -> list[RankStatus]:
        """Return what lives now, for heartbeats and the inventory."""
        now_s = self._clock.monotonic_s()
        for rank in self._by_pid.values():
            rank.sample_wait(now_s)
        return [rank.status for rank in self._by_pid.values()]

    def kill(self, keys: Iterable[RankKey]) -> list[RankProcess]:
        """Send SIGKILL to the ranks; return those that it was sent to."""
        wanted = set(keys)
        ranks = [rank for rank in self._by_pid.values() if rank.key in wanted]
        for rank in ranks:
            rank.kill()
        return ranks

    async def end(self, keys: Iterable[RankKey], limit_s: float) -> list[RankProcess]:
        """Kill the ranks and wait until their exits are stored; return those that remain."""
        ranks = self.kill(keys)
        try:
            async with asyncio.timeout(limit_s):
                for rank in ranks:
                    await rank.exited.wait()
        except TimeoutError:
            for rank in ranks:
                if not rank.exited.is_set():
                    _LOG.warning("rank survived SIGKILL: rank=%s pid=%d", rank.key.stem, rank.pid)
        return [rank for rank in ranks if not rank.exited.is_set()]

    def _command_above(self, key: RankKey, pid: int) -> RankProcess | None:
        """Return the command ``key`` if the process ``pid`` is of its session."""
        rank = self.find(key)
        if rank is None or not rank.is_command:
            return None
        try:
            return rank if os.getsid(pid) == rank.pid else None
        except ProcessLookupError:
            return None

    def _note_start(self, rank: RankProcess) -> None:
        key = rank.key
        if rank.is_foreign:
            return
        if rank.became is not None:  # no start; but the former agent may have died before the mark
            self._outbox.advance(MarkScope.START, key.stem)
            return
        started = RankStarted(
            task=key.task,
            generation=key.generation,
            global_rank=key.global_rank,
            pid=rank.pid,
            warm=not (rank.is_cold or rank.is_command),
            start_s=round(max(0.0, self._clock.monotonic_s() - rank.launched_at), 6),
        )
        mark = Mark(scope=MarkScope.START, name=key.stem)
        self._outbox.store(started, self._clock.wall_s(), mark)

    async def _watch(self, rank: RankProcess) -> None:
        await self._exits.store(rank)
        del self._by_pid[rank.pid]
        self._forget(rank)

    def _forget(self, rank: RankProcess) -> None:
        self._files.retire(rank.first_key)
        rank.release()
