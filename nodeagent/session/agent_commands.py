"""The controller's commands, carried out: start, halt, stop, inspect, probe, break, read.

A command outlives the session that brought it; its result goes to whichever controller is attached
then. A ``command_id`` that comes again is not carried out again: while it runs nothing happens,
afterwards its result is repeated, for the newest ``NUM_REMEMBERED`` commands. After the agent was
replaced the ids are forgotten, and the marks of the outbox keep a repeated start from starting
anything twice.

New ranks of one task start one command after another; a start that waits (for old ranks to end, for
the template) is abandoned when a newer generation or a stop has come meanwhile. Parked processes
that become ranks of the new generation, or wait beside it, get their orders at once, before any of
that: the recovery waits for the former, they need nothing that a left-out rank still holds, and no
message of an older generation reaches theirs.
"""

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, assert_never

from nodeagent.outbox.outbox_file import OutboxFile
from nodeagent.outbox.outbox_records import MarkScope
from nodeagent.probes.peer import probe_ssh
from nodeagent.protocol.ids import TaskId
from nodeagent.protocol.messages import (
    CommandDone,
    InjectFault,
    LogPart,
    OrderRanksCommand,
    ProbePeerCommand,
    ReadLog,
    StartRanksCommand,
)
from nodeagent.protocol.orders import HaltOrder, InspectOrder, RankOrder, StopOrder
from nodeagent.protocol.rank_faults import RankFault
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.ranks.rank_connections import RankConnections
from nodeagent.ranks.rank_files import log_part
from nodeagent.ranks.rank_process import RankProcess
from nodeagent.ranks.rank_processes import RankProcesses, Spawn
from nodeagent.ranks.rank_starter import RankStarter, StartError
from nodeagent.ranks.supervisor import (
    RankKey,
    StartPlan,
    halt_refusal,
    key_of,
    plan_halt,
    plan_start,
    plan_stop,
    refusal,
)
from nodeagent.ranks.template_client import TemplateClient
from nodeagent.workdir import workdir_of

_LOG = logging.getLogger(__name__)

NUM_REMEMBERED: Final = 512
OLD_RANKS_LIMIT_S: Final = 30.0
END_LIMIT_S: Final = 5.0

AgentCommand = StartRanksCommand | OrderRanksCommand | ProbePeerCommand | InjectFault | ReadLog
_RememberedCommand = StartRanksCommand | OrderRanksCommand | ProbePeerCommand | InjectFault
InspectProcesses = Callable[[Sequence[RankProcess], float, float], Awaitable[None]]
"""Looks where ranks stand, with the limits of ``InspectOrder``."""


class CommandError(Exception):
    """A command can't be carried out; the text says why."""


class AgentCommands:
    """Takes commands, carries each out once, and reports the outcome."""

    def __init__(
        self,
        processes: RankProcesses,
        hub: RankConnections,
        template: TemplateClient,
        starter: RankStarter,
        outbox: OutboxFile,
        spawn: Spawn,
    ) -> None:
        self.state_dir = Path()
        self.on_inspect: InspectProcesses = _look_at_nobody
        self.on_done: Callable[[CommandDone | LogPart], None] = lambda _done: None
        self._processes = processes
        self._hub = hub
        self._template = template
        self._starter = starter
        self._outbox = outbox
        self._spawn = spawn
        self._running: set[str] = set()
        self._done: OrderedDict[str, CommandDone] = OrderedDict()
        self._start_locks: dict[TaskId, asyncio.Lock] = {}

    def forget(self) -> None:
        """Forget the commands so far: another run of the controller may use their ids again."""
        self._running.clear()
        self._done.clear()

    def submit(self, command: AgentCommand) -> None:
        """Carry out ``command`` in the background, unless it came before."""
        command_id = command.command_id
        if isinstance(command, ReadLog):
            self._spawn(self._read_log(command), f"{command.kind} {command_id}")
        elif command_id in self._done:
            self.on_done(self._done[command_id])
        elif command_id not in self._running:
            self._running.add(command_id)
            self._spawn(self._run(command), f"{command.kind} {command_id}")

    async def end_everything(self) -> None:
        """Kill all ranks and the template, and wait until they are gone."""
        ranks = self._processes.living()
        for rank in ranks:
            self._outbox.advance(MarkScope.STOP, rank.key.task, rank.key.generation)
        await self._processes.end([rank.key for rank in ranks], END_LIMIT_S)
        await self._template.end()

    async def _run(self, command: _RememberedCommand) -> None:
        run_id = self._outbox.outbox.run_id
        # Stands for a failure of our own: the blanket handler around this logs it.
        done = CommandDone(command_id=command.command_id, error="the agent failed; see agent.log")
        try:
            detail = await self._execute(command)
            done = CommandDone(command_id=command.command_id, detail=detail)
        except (CommandError, OSError) as error:
            done = CommandDone(command_id=command.command_id, error=str(error))
        finally:
            if self._outbox.outbox.run_id == run_id:
                self._report(done)

    def _report(self, done: CommandDone) -> None:
        self._running.discard(done.command_id)
        self._done[done.command_id] = done
        if len(self._done) > NUM_REMEMBERED:
            self._done.popitem(last=False)
        self.on_done(done)

    async def _execute(self, command: _RememberedCommand) -> str:
        """Carry out ``command``; return the detail of its result."""
        match command:
            case StartRanksCommand():
                await self._start(command)
            case OrderRanksCommand():
                await self._carry_out(command.order)
            case ProbePeerCommand():
                hosts = [command.host, *filter(None, [command.other_host])]
                return await probe_ssh(hosts, command.port, command.timeout_s)
            case InjectFault():
                self._inject(command)
            case _:
                assert_never(command)
        return ""

    async def _read_log(self, request: ReadLog) -> None:
        """Answer with a part of a rank's output. It changes nothing, and is not remembered."""
        processes, which = self._processes, "this rank"
        if request.is_previous:
            which = "a process before this one of the rank"
            log = processes.previous_log_of(request.task, request.global_rank)
        else:
            log = processes.log_of(request.task, request.global_rank)
        answer = LogPart(command_id=request.command_id, error=f"no output of {which} is kept")
        if log is not None:
            try:
                answer = await asyncio.to_thread(log_part, request, *log)
            except OSError as error:
                reason = f"{log[0]}: {error.strerror or error}"
                answer = LogPart(command_id=request.command_id, error=reason)
        self.on_done(answer)

    async def _start(self, command: StartRanksCommand) -> None:
        marks = self._outbox.outbox
        run_id = marks.run_id
        launches = [self._in_workdir(launch) for launch in command.whole_launches()]
        self._check(launches)
        for launch in launches:
            self._outbox.advance(MarkScope.FENCE, launch.task, launch.generation)
        plan = plan_start(launches, self._processes.living(), marks)
        self._processes.kill(plan.to_kill)
        errors = self._continue_all(plan.to_continue)
        async with AsyncExitStack() as stack:
            for task in sorted({launch.task for launch in launches}):
                lock = self._start_locks.setdefault(task, asyncio.Lock())
                await stack.enter_async_context(lock)
            # Anew: an older start may have brought ranks meanwhile, a repeated one all of them.
            plan = plan_start(launches, self._processes.living(), marks)
            errors |= await self._start_new(launches, plan, run_id)
        if errors:
            raise CommandError("; ".join(errors[global_rank] for global_rank in sorted(errors)))

    def _in_workdir(self, launch: RankLaunch) -> RankLaunch:
        """Return the launch with absolute paths. The controller has copied the folder before."""
        if not launch.workdir:
            return launch
        folder = workdir_of(self.state_dir, launch.workdir)
        if not folder.is_dir():
            raise CommandError(f"the working directory {folder} is not there")
        os.utime(folder)  # in use: it is not removed as old
        return launch.in_folder(str(folder))

    def _check(self, launches: Sequence[RankLaunch]) -> None:
        reason = refusal(launches, self._outbox.outbox)
        if reason is not None:
            raise CommandError(reason)

    def _continue_all(self, launches: tuple[RankLaunch, ...]) -> dict[int, str]:
        """Let parked processes be these ranks; return what went wrong, by rank.

        A failed spare is reported by itself: the generation lacks nothing.
        """
        errors: dict[int, str] = {}
        for launch in launches:
            try:
                rank = self._starter.take_over(launch)
            except (StartError, OSError) as error:
                if launch.prepares_for is None or isinstance(error, OSError):
                    errors[launch.global_rank] = str(error)
                else:
                    _LOG.warning(
                        "cannot keep process as spare: rank=%s reason=%s",
                        key_of(launch).stem,
                        error,
                    )
            else:
                self._hub.join(rank.pid, launch)
        return errors

    async def _start_new(
        self, launches: Sequence[RankLaunch], plan: StartPlan, run_id: str | None
    ) -> dict[int, str]:
        """Start the new ranks once the left-out ones are gone; return what went wrong, by rank."""
        remaining = await self._processes.end(plan.to_kill, OLD_RANKS_LIMIT_S)
        if remaining:
            raise CommandError(f"old ranks do not end: {', '.join(r.name for r in remaining)}")
        self._check(launches)
        return await self._start_all(plan.to_launch, run_id)

    async def _start_all(
        self, launches: tuple[RankLaunch, ...], run_id: str | None
    ) -> dict[int, str]:
        """Start all ranks at the same time; return what went wrong, by rank."""
        errors: dict[int, str] = {}

        async def start(launch: RankLaunch) -> None:
            try:
                await self._starter.start(launch, run_id)
            except (StartError, OSError) as error:
                errors[launch.global_rank] = str(error)

        async with asyncio.TaskGroup() as group:
            for launch in launches:
                group.create_task(start(launch))
        return errors

    async def _carry_out(self, order: RankOrder) -> None:
        match order:
            case HaltOrder():
                self._halt(order)
            case StopOrder():
                self._stop(order)
            case InspectOrder():
                await self._inspect(order)
            case _:
                assert_never(order)

    def _halt(self, order: HaltOrder) -> None:
        task, generation = order.task, order.generation
        if (reason := halt_refusal(task, generation, self._outbox.outbox)) is not None:
            raise CommandError(reason)
        whole = self._outbox.request_halt(order)
        to_halt = plan_halt(task, generation, self._processes.living())
        for rank in self._processes.living():
            if rank.key in to_halt and whole is not None:
                self._hub.halt(rank.pid, whole)
            if rank.key in to_halt and rank.is_command:
                self._processes.commands.halt(rank)

    def _stop(self, order: StopOrder) -> None:
        if order.only:
            for global_rank in order.only:
                rank = self._processes.find(RankKey(order.task, order.generation, global_rank))
                if rank is not None:
                    rank.kill()
            return
        self._outbox.advance(MarkScope.STOP, order.task, order.generation)
        if order.is_graceful:
            self._outbox.advance(MarkScope.GRACEFUL_STOP, order.task, order.generation)
        to_stop = plan_stop(order.task, order.generation, self._processes.living())
        for rank in self._processes.living():
            if rank.key in to_stop:
                if order.is_graceful and rank.is_command:
                    rank.terminate()
                elif order.is_graceful:
                    self._hub.stop_at_boundary(rank.pid)
                else:
                    rank.kill()

    async def _inspect(self, order: InspectOrder) -> None:
        wanted = plan_halt(order.task, order.generation, self._processes.living())
        ranks = [rank for rank in self._processes.living() if rank.key in wanted]
        await self.on_inspect(ranks, order.answer_limit_s, order.limit_s)

    def _inject(self, command: InjectFault) -> None:
        key = RankKey(command.task, command.generation, command.global_rank)
        rank = self._processes.find(key)
        if rank is None:
            raise CommandError(f"no living rank {key.stem} on this node")
        if command.fault.kind == "kill":
            rank.kill()
        elif command.fault.kind == "freeze":
            rank.stop()
        elif reason := _why_deaf(rank, command.fault):
            raise CommandError(f"rank {key.stem} {reason}")
        elif not self._hub.break_rank(rank.pid, command.fault):
            raise CommandError(f"rank {key.stem} is not connected")


def _why_deaf(rank: RankProcess, fault: RankFault) -> str:
    """Return why a rank that is a command can't break itself so, in words; empty if it can."""
    if not rank.is_command:
        return ""
    if not rank.is_attached:
        return "is a command that has not attached: it can be killed or stopped only"
    if fault.kind == "raise" and not fault.status:
        return ""
    return "is a command: it can be killed or stopped, or raise an exception of its own"


async def _look_at_nobody(_ranks: Sequence[RankProcess], _answer_s: float, _limit_s: float) -> None:
    """Stand for a looker until the agent has named one."""
