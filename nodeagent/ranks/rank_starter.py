"""Gives one rank a process: a parked one, or one forked from the template, or else a cold one.

While the template still imports, the start waits. If the template dies during the fork, the rank's
record shows whether the rank was forked. If the template fails or refuses, the rank starts cold. A
start is abandoned if a stop or a newer generation came meanwhile. A parked process becomes the rank
without any wait. If that process is gone, no other is started in its place: the rank's state was in
its memory.

Which ranks start at all is decided in ``supervisor``.
"""

import asyncio
import logging
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from nodeagent.outbox.outbox_file import OutboxFile
from nodeagent.outbox.outbox_records import Mark, MarkScope
from nodeagent.process_tools.node_clock import NodeClock
from nodeagent.protocol.local import RankForked
from nodeagent.protocol.observations import LaunchFailed
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.ranks.launcher import Launcher
from nodeagent.ranks.rank_files import RankFiles
from nodeagent.ranks.rank_process import RankProcess
from nodeagent.ranks.rank_processes import RankProcesses
from nodeagent.ranks.supervisor import RankKey, continued_key, key_of, refusal
from nodeagent.ranks.template_client import TemplateClient, TemplateError

_LOG = logging.getLogger(__name__)

COLD_RECORD_LIMIT_S: Final = 30.0
_POLL_S: Final = 0.02
_FORK_ATTEMPTS: Final = 3

_Start = Callable[[RankFiles, RankKey, Path], subprocess.Popen[bytes]]
"""``Launcher.start_cold`` or ``start_command``."""


class StartError(Exception):
    """A rank was not started; the text says why.

    Attributes:
        tail: Last lines of the log of a start that ended.
    """

    def __init__(self, reason: str, tail: str = "") -> None:
        super().__init__(reason)
        self.tail = tail


class RankStarter:
    """Gives single ranks their processes."""

    def __init__(
        self,
        processes: RankProcesses,
        files: RankFiles,
        template: TemplateClient,
        launcher: Launcher,
        outbox: OutboxFile,
        clock: NodeClock,
    ) -> None:
        self._processes = processes
        self._files = files
        self._template = template
        self._launcher = launcher
        self._outbox = outbox
        self._clock = clock
        self._children: list[subprocess.Popen[bytes]] = []

    def reap(self) -> None:
        """Collect the cold starts that have ended, so that they do not stay as zombies."""
        self._children = [child for child in self._children if child.poll() is None]

    async def start(self, launch: RankLaunch, run_id: str | None) -> None:
        """Start one rank for the controller's run ``run_id``, unless it is there already.

        Raises:
            StartError: It was not started, or is not wanted any more. If it could not be
                started, a ``LaunchFailed`` is stored too.
            OSError: Its start can't be stored.
        """
        key = key_of(launch)
        self._processes.expect(key)
        if launch.command is not None:
            await self._start_process(launch, self._launcher.start_command)
        elif reason := await self._fork(launch, run_id):
            _LOG.warning("cold start: rank=%s reason=%s", key.stem, reason)
            await self._start_process(launch, self._launcher.start_cold)
        if (unwanted := self._why_unwanted(launch, run_id)) is not None:
            # It may be running already; under another run it is a foreign rank.
            for rank in self._processes.living():
                if rank.key == key and (rank.is_foreign or self._outbox.outbox.run_id == run_id):
                    rank.kill()
            raise StartError(unwanted)

    def take_over(self, launch: RankLaunch) -> RankProcess:
        """Let the process that ``launch`` continues be its rank from now on; return it.

        Raises:
            StartError: It is not there any more; a ``LaunchFailed`` is stored too, once.
            OSError: That can't be stored. The process has its old name.
        """
        continued = continued_key(launch)
        rank = None if continued is None else self._processes.find(continued)
        if continued is None or rank is None:
            reason = "it continues no rank" if continued is None else _lost(continued)
            mark = Mark(scope=MarkScope.START, name=key_of(launch).stem)
            self._fail(launch, reason, mark)
            raise StartError(f"{key_of(launch).stem}: {reason}")
        self._processes.rename(rank, launch)
        return rank

    def _fail(
        self, launch: RankLaunch, reason: str, mark: Mark | None = None, tail: str = ""
    ) -> None:
        failed = LaunchFailed(
            task=launch.task,
            generation=launch.generation,
            global_rank=launch.global_rank,
            reason=reason,
            stderr_tail=tail,
            log=str(self._files.log(key_of(launch))),
        )
        self._outbox.store(failed, self._clock.wall_s(), mark)

    def _why_unwanted(self, launch: RankLaunch, run_id: str | None) -> str | None:
        """Return why the rank is not wanted any more, or None."""
        if self._outbox.outbox.run_id != run_id:
            return "another run of the controller took over"
        return refusal([launch], self._outbox.outbox)

    async def _fork(self, launch: RankLaunch, run_id: str | None) -> str:
        """Fork one rank; return why it has to start cold, or nothing."""
        key, reason = key_of(launch), ""
        for _ in range(_FORK_ATTEMPTS):
            if reason := await self._template.settled():
                return reason
            if (unwanted := self._why_unwanted(launch, run_id)) is not None:
                raise StartError(unwanted)
            if (record := self._files.record(key)) is not None:
                self._processes.adopt(record)  # forked, and the template died before it said so
                return ""
            try:
                answer = await self._template.fork(launch)
            except TemplateError as error:
                reason = str(error)
                continue
            if isinstance(answer, RankForked):
                if self._outbox.outbox.run_id != run_id:
                    self._outbox.advance(MarkScope.FOREIGN, key.process(answer.pid))
                self._processes.adopt_forked(key, answer.pid)
                return ""
            return answer.reason
        return reason

    async def _start_process(self, launch: RankLaunch, start: _Start) -> None:
        key = key_of(launch)
        try:
            path = self._files.write_launch(launch)
            child = start(self._files, key, path)
            self._children.append(child)
            await self._adopt_started(key, child)
        except (StartError, OSError) as error:
            self._fail(launch, str(error), tail=getattr(error, "tail", ""))
            raise StartError(f"{key.stem}: {error}") from error

    async def _adopt_started(self, key: RankKey, child: subprocess.Popen[bytes]) -> None:
        """Wait for the record that the rank's parent writes, as soon as the rank is forked."""
        deadline = self._clock.monotonic_s() + COLD_RECORD_LIMIT_S
        status = child.poll()
        while (record := self._files.record(key)) is None:
            # It had ended before that look, and had written all that it ever will.
            if status is not None:
                tail = self._files.tail(key)
                raise StartError(f"the start ended with {status}: {tail.strip()}", tail)
            if self._clock.monotonic_s() > deadline:
                child.kill()
                raise StartError(f"the start did nothing in {COLD_RECORD_LIMIT_S:.0f} s")
            await asyncio.sleep(_POLL_S)
            status = child.poll()
        self._processes.adopt(record)


def _lost(continued: RankKey) -> str:
    return (
        f"the process of {continued.stem}, which was to become this rank, is not on this node:"
        " it has exited, or has become another rank"
    )
