"""The agent's side of ``template.sock``: keeps a template alive and asks it to fork.

The template listens and outlives agents, so an agent first looks for one that answers and starts a
process only where none does. A template that dies is started again, with growing pauses. After
``MAX_FAILURES`` times in a row ranks start cold, and it is tried every ten minutes. A template of
other code than the agent's is retired: both ends of the local protocol must come from one
directory. It lives on until its ranks have ended, since nobody else can say how they end.

Whether a rank may be forked is the template's to say (``ForkRefused``); what follows from that is
decided in ``commands``.
"""

import asyncio
import logging
import os
import select
import signal
import subprocess
from collections.abc import Callable
from typing import Final

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from nodeagent.probes.process_stats import is_running, read_stat
from nodeagent.process_tools.json_streams import LineChannel, MessageChannel, connect
from nodeagent.process_tools.node_clock import NodeClock
from nodeagent.process_tools.pidfd import kill, open_pidfd, send, wait_ended
from nodeagent.process_tools.socket_places import sockets_dir
from nodeagent.protocol.codec import ProtocolError
from nodeagent.protocol.local import (
    ForkRank,
    ForkRefused,
    FromTemplate,
    RankForked,
    TemplateHello,
)
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.ranks.launcher import Launcher, code_dir
from nodeagent.ranks.rank_files import tail_of
from nodeagent.ranks.supervisor import RankKey, key_of

_LOG = logging.getLogger(__name__)

MAX_FAILURES: Final = 5
FIRST_BACKOFF_S: Final = 0.5
HEALTHY_AFTER_S: Final = 30.0
AGAIN_AFTER_S: Final = 600.0
"""After this, a template that was given up is tried again: what was in its way may be gone."""
"""A template that was ready for so long had no trouble starting: failures count anew."""
READY_LIMIT_S: Final = 120.0
FORK_LIMIT_S: Final = 30.0
END_LIMIT_S: Final = 5.0
_POLL_S: Final = 0.05

_FROM_TEMPLATE: Final[TypeAdapter[FromTemplate]] = TypeAdapter(FromTemplate)


class TemplateError(Exception):
    """The template can't do it now; the text says why."""


class _TemplateRecord(BaseModel):
    """Content of ``template.json``: the template that an agent started."""

    model_config = ConfigDict(frozen=True)

    pid: int
    start_ticks: int
    code_dir: str


class TemplateClient:
    """Keeps one template per node and forks ranks from it."""

    def __init__(self, launcher: Launcher, clock: NodeClock, on_ready: Callable[[], None]) -> None:
        """Take what is needed.

        Args:
            launcher: Starts the process.
            clock: The node's clock.
            on_ready: Called after every connect, before anything is forked: all that the template
                forked for a former agent is on disk by then.
        """
        self._launcher = launcher
        self._clock = clock
        self._on_ready = on_ready
        self._socket = sockets_dir(launcher.state_dir) / "template.sock"
        self._record_path = launcher.state_dir / "template.json"
        self._child: subprocess.Popen[bytes] | None = None
        self._channel: LineChannel | None = None
        self._pid = 0
        self._settled = asyncio.Event()
        self._given_up = ""
        self._answers: dict[RankKey, asyncio.Future[RankForked | ForkRefused]] = {}
        self._ending = asyncio.Event()

    @property
    def is_known(self) -> bool:
        """Whether an agent of this node has started a template, which may live."""
        return self._record_path.exists()

    @property
    def is_ready(self) -> bool:
        """Whether a fork would be carried out now."""
        return self._channel is not None

    async def settled(self) -> str:
        """Wait until the template is ready or given up; return why it is given up, else nothing."""
        await self._settled.wait()
        return self._given_up

    def give_up(self, reason: str) -> None:
        """Let ranks start cold from now on."""
        self._given_up = reason
        self._settled.set()

    async def run(self) -> None:
        """Keep a template ready. While it is given up, ranks start cold."""
        num_failures = 0
        while not self._ending.is_set():
            began = None
            try:
                channel = await self._connect()
                began = self._clock.monotonic_s()
                await self._serve(channel)
                reason = "the template closed its connection"
            except (TemplateError, OSError, ProtocolError) as error:
                reason = str(error)
            if self._ending.is_set():
                return
            if began is not None and self._clock.monotonic_s() - began > HEALTHY_AFTER_S:
                num_failures = 0
            num_failures += 1
            _LOG.warning(
                "template start failed: attempt=%d of=%d reason=%s",
                num_failures,
                MAX_FAILURES,
                reason,
            )
            if num_failures < MAX_FAILURES:
                await asyncio.sleep(FIRST_BACKOFF_S * 2 ** (num_failures - 1))
                continue
            self.give_up(f"the template failed {num_failures} times: {reason}")
            await asyncio.sleep(AGAIN_AFTER_S)

    async def fork(self, launch: RankLaunch) -> RankForked | ForkRefused:
        """Ask the template for one rank.

        Raises:
            TemplateError: It is not ready, died meanwhile, or did not answer in time. The
                rank's record then shows whether it was forked.
        """
        if self._channel is None:
            raise TemplateError("the template is not ready")
        key = key_of(launch)
        answer: asyncio.Future[RankForked | ForkRefused] = (
            asyncio.get_running_loop().create_future()
        )
        self._answers[key] = answer
        self._channel.send(ForkRank(launch=launch))
        try:
            async with asyncio.timeout(FORK_LIMIT_S):
                return await answer
        except TimeoutError as error:
            raise TemplateError(f"no answer from the template in {FORK_LIMIT_S:.0f} s") from error
        finally:
            self._answers.pop(key, None)

    async def end(self) -> None:
        """Kill the template and wait for its end; no other is started."""
        self._ending.set()
        self.give_up("the agent is ending")
        record = self._read_record()
        pids = {self._pid} if self._channel is not None else set()
        if record is not None and is_running(record.pid, record.start_ticks):
            pids.add(record.pid)
        for pid in pids:
            await _end_process(pid)
        self._reap()
        self._socket.unlink(missing_ok=True)
        self._record_path.unlink(missing_ok=True)

    # --- one template ----------------------------------------------------------------------

    async def _connect(self) -> LineChannel:
        """Return a connection to a template that is ready to fork; start one where none lives."""
        record = self._read_record()
        if record is not None and record.code_dir != str(code_dir()):
            _LOG.info("retiring the template of another code version: path=%s", record.code_dir)
            if is_running(record.pid, record.start_ticks):
                await self._retire(record.pid)
            self._record_path.unlink(missing_ok=True)
            record = None
        channel = await self._try_connect()
        if channel is None:
            if record is None or not is_running(record.pid, record.start_ticks):
                record = self._start()
            channel = await self._wait_for_socket(record)
        return channel

    async def _retire(self, pid: int) -> None:
        """Have a template give way, and wait for it. One that does not is killed.

        A template of code that knows no retirement ends by the signal.
        """
        pidfd = open_pidfd(pid)
        if pidfd is None:
            return
        try:
            send(pidfd, signal.SIGUSR1)
            deadline = self._clock.monotonic_s() + END_LIMIT_S
            while self._socket.exists() and not _has_ended(pidfd):
                if self._clock.monotonic_s() > deadline:
                    await _end_process(pid)
                    return
                await asyncio.sleep(_POLL_S)
        finally:
            os.close(pidfd)

    def _start(self) -> _TemplateRecord:
        self._child = self._launcher.start_template()
        stat = read_stat(self._child.pid)
        record = _TemplateRecord(
            pid=self._child.pid,
            start_ticks=stat.start_ticks if stat else 0,
            code_dir=str(code_dir()),
        )
        self._record_path.write_text(record.model_dump_json())
        return record

    async def _wait_for_socket(self, record: _TemplateRecord) -> LineChannel:
        deadline = self._clock.monotonic_s() + READY_LIMIT_S
        while True:
            channel = await self._try_connect()
            if channel is not None:
                return channel
            if not is_running(record.pid, record.start_ticks):
                self._reap()
                raise TemplateError(f"the template ended: {self._last_words()}")
            if self._clock.monotonic_s() > deadline:
                await _end_process(record.pid)
                raise TemplateError(f"the template was not ready after {READY_LIMIT_S:.0f} s")
            await asyncio.sleep(_POLL_S)

    async def _try_connect(self) -> LineChannel | None:
        try:
            return await connect(self._socket)
        except OSError:
            return None

    async def _serve(self, channel: LineChannel) -> None:
        """Take what the template says until its connection ends."""
        self._pid = channel.peer_pid
        deaf = asyncio.timeout(READY_LIMIT_S)
        try:
            async with deaf:
                async for message in MessageChannel(channel, _FROM_TEMPLATE).messages():
                    match message:
                        case TemplateHello():
                            deaf.reschedule(None)
                            self._begin(channel, message)
                        case RankForked() | ForkRefused():
                            self._answer(message)
        except TimeoutError as error:
            await _end_process(self._pid)
            raise TemplateError("the template connected and said nothing") from error
        finally:
            channel.close()
            self._lose()

    def _begin(self, channel: LineChannel, hello: TemplateHello) -> None:
        _LOG.info("template ready: pid=%d import_s=%.2f", hello.pid, hello.import_s)
        self._on_ready()
        self._channel = channel
        self._given_up = ""
        self._settled.set()

    def _answer(self, message: RankForked | ForkRefused) -> None:
        key = RankKey(message.task, message.generation, message.global_rank)
        answer = self._answers.get(key)
        if answer is not None and not answer.done():
            answer.set_result(message)

    def _lose(self) -> None:
        self._channel = None
        self._reap()
        if not self._given_up:
            self._settled.clear()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(TemplateError("the template is gone"))

    def _reap(self) -> None:
        if self._child is not None and self._child.poll() is not None:
            self._child = None

    def _read_record(self) -> _TemplateRecord | None:
        try:
            return _TemplateRecord.model_validate_json(self._record_path.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def _last_words(self) -> str:
        lines = tail_of(self._launcher.template_log).strip().splitlines()
        return lines[-1] if lines else "it said nothing"


def _has_ended(pidfd: int) -> bool:
    """Return whether a process has ended; a zombie has."""
    return bool(select.select([pidfd], [], [], 0)[0])


async def _end_process(pid: int) -> None:
    """Kill a process and wait for its end, a little."""
    pidfd = open_pidfd(pid)
    if pidfd is None:
        return
    try:
        kill(pidfd)
        async with asyncio.timeout(END_LIMIT_S):
            await wait_ended(pidfd)
    except TimeoutError:
        _LOG.warning("process survived SIGKILL: pid=%d", pid)
    finally:
        os.close(pidfd)
