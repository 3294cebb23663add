"""Commands of API clients: each becomes an event of the core, or is answered here.

Questions change nothing and are not journaled. They are answered one after the other.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from controller.api import wire
from controller.api.requests import event_of
from controller.clock import Clock
from controller.core.events import TaskSubmitted
from controller.core.specs import TaskSpec
from controller.plan.questions import answer
from controller.server.controller import Controller
from controller.server.rank_logs import read_logs
from controller.server.server_hooks import SubmissionError
from controller.store.history import HistoryError


class ApiCommands:
    """Takes the commands of all clients. ``run`` answers the questions among them.

    Args:
        controller: Returns the present controller.
        clock: The clock of the run.
        reply: Sends the answers that do not come from the core.
        shut_down: Ends the run; None if clients may not end it.
        has_drills: Whether drills can be carried out.
        read_tasks: See ``ServerHooks``.
    """

    def __init__(
        self,
        controller: Callable[[], Controller],
        clock: Clock,
        reply: Callable[[wire.Reply], None],
        *,
        shut_down: Callable[[], None] | None,
        has_drills: bool,
        read_tasks: Callable[[wire.SubmitTasks], Sequence[TaskSpec]] | None = None,
    ) -> None:
        self._controller = controller
        self._clock = clock
        self._reply = reply
        self._shut_down = shut_down
        self._has_drills = has_drills
        self._questions: asyncio.Queue[wire.Question | wire.ReadHistory] = asyncio.Queue()
        self._read_tasks = read_tasks
        self._slow: asyncio.Queue[wire.ReadLogs | wire.SubmitTasks] = asyncio.Queue()

    def take(self, command: wire.Command) -> None:
        """Take a command. Its answer follows later, under the same request id."""
        match command:
            case wire.Shutdown():
                self._take_shutdown(command)
            case wire.RunDrill() if not self._has_drills:
                self._answer(command.request_id, "unsupported", "this controller runs no drills")
            case wire.AskWhatIf() | wire.DescribeCluster() | wire.ReadHistory():
                self._questions.put_nowait(command)
            case wire.SubmitTasks() if self._read_tasks is None:
                text = "this controller takes no further tasks"
                self._answer(command.request_id, "unsupported", text)
            case wire.ReadLogs() | wire.SubmitTasks():
                self._slow.put_nowait(command)
            case _:
                self._controller().post(event_of(command))

    def _take_shutdown(self, command: wire.Shutdown) -> None:
        if self._shut_down is None:
            text = "this controller is not ended through its API: stop its process"
            self._answer(command.request_id, "unsupported", text)
        else:
            # Recorded by the core, but answered here: the run may end before the core has.
            self._controller().post(event_of(command))
            self._shut_down()
            self._answer(command.request_id, "ok", "ending")

    def _answer(self, request_id: str, code: str, text: str) -> None:
        is_ok = code == "ok"
        self._reply(wire.Reply(request_id=request_id, is_ok=is_ok, code=code, message=text))

    async def run(self) -> None:
        """Answer questions until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._answer_questions())
            while True:
                command = await self._slow.get()
                group.create_task(self._take_slow(command))

    async def _take_slow(self, command: wire.ReadLogs | wire.SubmitTasks) -> None:
        controller = self._controller()
        if isinstance(command, wire.ReadLogs):
            self._reply(await read_logs(command, controller.state, controller.fleet))
            return
        assert self._read_tasks is not None, "without it no file is taken"
        try:
            specs = await asyncio.to_thread(self._read_tasks, command)
        except SubmissionError as error:
            self._answer(command.request_id, "invalid", str(error))
            return
        body = TaskSubmitted(command.request_id, command.actor, tuple(specs))
        self._controller().post(body)

    async def _answer_questions(self) -> None:
        while True:
            question = await self._questions.get()
            controller = self._controller()
            if isinstance(question, wire.ReadHistory):
                self._reply(await _read(question, controller))
                continue
            now = self._clock.now()
            self._reply(await answer(question, controller.state, controller.policy, now))


async def _read(question: wire.ReadHistory, controller: Controller) -> wire.Reply:
    try:
        rows: Any = await controller.read_history(
            question.table, since=question.since, name=question.name, limit=question.limit
        )
    except HistoryError as error:
        return wire.Reply(
            request_id=question.request_id, is_ok=False, code="failed", message=str(error)
        )
    return wire.Reply(request_id=question.request_id, is_ok=True, data={"rows": rows})
