"""A controller in a process of its own, so that it can be killed without its nodes.

Standard input is one line of JSON, a ``Remit``. Announcements go to the event log; nothing else is
printed. It ends when its tasks have, or when it is killed.
"""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from controller.clock import SystemClock
from controller.core.instructions import Announce, AnswerRequest, CarryOutDrill
from controller.core.rules.policy import Policy
from controller.core.state.phases import TaskPhase
from controller.core.state.task import TaskSpec
from controller.fleet.address import NodeAddress
from controller.server.controller import Controller, ControllerConfig
from controller.server.rank_launches import TaskProgram
from controller.store.event_log import EventLog
from nodeagent.protocol.ids import TaskId
from nodeagent.protocol.rank_launch import TrainingSpec


@dataclass(frozen=True)
class Remit:
    """What the process is told."""

    addresses: list[NodeAddress]
    task: TaskSpec
    training: TrainingSpec
    journal: Path
    event_log: Path


REMIT: TypeAdapter[Remit] = TypeAdapter(Remit)


class _Audience:
    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.changed = asyncio.Event()

    def hear(self, at: float, announcement: Announce) -> None:
        self._log.append(at, announcement)

    def answer(self, answer: AnswerRequest) -> None:
        pass

    def state_changed(self) -> None:
        self.changed.set()

    def carry_out(self, drill: CarryOutDrill) -> None:
        raise AssertionError(f"nobody asked for {drill}")


async def _run(remit: Remit) -> None:
    programs: dict[TaskId, TaskProgram] = {remit.task.task: remit.training}
    # Nobody hangs here: what a busy machine puts aside for a while is no incident.
    policy = Policy(is_auto_heal=True, hang_floor_s=10.0)
    config = ControllerConfig(remit.addresses, [remit.task], programs, policy)
    audience = _Audience(EventLog(remit.event_log))

    def note(source: str, text: str) -> None:
        sys.stderr.write(f"{source}: {text}\n")

    controller = Controller(config, remit.journal, SystemClock(), note)
    async with asyncio.TaskGroup() as group:
        service = group.create_task(controller.run(audience, audience))
        while controller.state.tasks[remit.task.task].lifecycle.phase is not TaskPhase.FINISHED:
            audience.changed.clear()
            await audience.changed.wait()
        service.cancel()


if __name__ == "__main__":
    asyncio.run(_run(REMIT.validate_json(sys.stdin.buffer.readline())))
