"""A controller server in a process of its own, so that it can be killed without its nodes.

Standard input is one line of JSON, a ``Remit``. Announcements go to the event log, and notes to
standard error. The process ends when its task has ended, or when it is killed.
"""

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter
from typing_extensions import override

from controller.clock import SystemClock
from controller.core.instructions import Announce
from controller.core.rules.policy import Policy
from controller.core.specs import TaskSpec
from controller.core.state.phases import TaskPhase
from controller.fleet.address import NodeAddress
from controller.server.announcements import AnnouncementObserver
from controller.server.controller_config import ControllerConfig
from controller.server.controller_server import ControllerServer, ServerPlaces
from controller.server.rank_launches import TaskProgram
from controller.server.server_hooks import ServerHooks
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


class _Notes(AnnouncementObserver):
    """Prints lines that do not come from the core."""

    @override
    def observe(self, at: float, announcement: Announce) -> None:
        if announcement.kind == "note":
            sys.stderr.write(f"{announcement.source}: {announcement.text}\n")


async def _run(remit: Remit) -> None:
    programs: dict[TaskId, TaskProgram] = {remit.task.task: remit.training}
    # Nobody hangs here: what a busy machine puts aside for a while is no incident.
    policy = Policy(is_auto_heal=True, hang_floor_s=10.0)
    config = ControllerConfig(remit.addresses, [remit.task], programs, policy)
    # A socket of its own: that of a killed controller is still there.
    socket = remit.journal.parent / f"{os.getpid()}.sock"
    places = ServerPlaces(remit.journal.parent, socket, remit.event_log)
    hooks = ServerHooks(observers=[_Notes()])
    server = ControllerServer("lone", config, places, SystemClock(), hooks)
    async with asyncio.TaskGroup() as group:
        service = group.create_task(server.run())
        while server.state.tasks[remit.task.task].lifecycle.phase is not TaskPhase.FINISHED:
            await server.next_change()
        service.cancel()


if __name__ == "__main__":
    asyncio.run(_run(REMIT.validate_json(sys.stdin.buffer.readline())))
