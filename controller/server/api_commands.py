"""Commands of API clients: each becomes an event of the core, or is answered here.

Questions change nothing and are not journaled. They are answered one after the other. The output of
ranks is read from their nodes; the core knows nothing of it. A changed cluster file is taken in
while the controller runs: the client is shown what it will do first.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from pydantic import JsonValue

from controller.api import wire
from controller.api.projection import evidence_reply
from controller.api.requests import event_of
from controller.api.wire import LogPosition, ReadLogs, ReloadFile, Reply
from controller.clock import Clock
from controller.core.events import FileReloaded, TaskSubmitted
from controller.core.membership.change_words import lines_of
from controller.core.membership.file_changes import ImpossibleChangeError, changes
from controller.core.state.cluster import ClusterState
from controller.fleet.node_links import LogPlace, SshFleet
from controller.plan.questions import answer
from controller.server.controller import Controller
from controller.server.controller_config import ControllerConfig
from controller.server.server_hooks import ReadConfig, ServerHooks, SubmissionError, read_safely
from controller.store.history import HistoryError
from nodeagent.protocol.ids import NodeId, TaskId

_SlowCommand = wire.ReadLogs | wire.SubmitTasks | wire.ReloadFile
"""Commands that read files or nodes. Each is taken by itself."""

_MOST_RANKS: Final = 64
_LOG_LIMIT_S: Final = 10.0
_NOWHERE: Final = LogPosition(name="", end=0)


class ApiCommands:
    """Takes the commands of all clients. ``run`` answers the questions among them.

    Args:
        controller: Returns the present controller.
        clock: The clock of the run.
        reply: Sends the answers that do not come from the core.
        shut_down: Ends the run.
        hooks: What the owner of the server lets clients do.
        adopt: Called with a config that was read anew.
    """

    def __init__(
        self,
        controller: Callable[[], Controller],
        clock: Clock,
        reply: Callable[[wire.Reply], None],
        *,
        shut_down: Callable[[], None],
        hooks: ServerHooks,
        adopt: Callable[[ControllerConfig], None],
    ) -> None:
        self._controller = controller
        self._clock = clock
        self._reply = reply
        self._shut_down = shut_down
        self._hooks, self._adopt = hooks, adopt
        self._questions: asyncio.Queue[wire.Question | wire.ReadHistory] = asyncio.Queue()
        self._slow: asyncio.Queue[_SlowCommand] = asyncio.Queue()

    def take(self, command: wire.Command) -> None:
        """Take a command. Its answer follows later, under the same request id."""
        match command:
            case wire.Shutdown():
                self._take_shutdown(command)
            case wire.MovePlayback():
                self._answer(
                    command.request_id, "unsupported", "this controller plays nothing back"
                )
            case wire.RunDrill() if self._hooks.drills is None:
                self._answer(command.request_id, "unsupported", "this controller runs no drills")
            case wire.ReadEvidence():
                self._reply(evidence_reply(command, self._controller().state))
            case wire.AskWhatIf() | wire.DescribeCluster() | wire.ReadHistory():
                self._questions.put_nowait(command)
            case wire.SubmitTasks() if self._hooks.read_tasks is None:
                text = "this controller takes no further tasks"
                self._answer(command.request_id, "unsupported", text)
            case wire.ReloadFile() if self._hooks.read_config is None:
                text = "this controller has no cluster file"
                self._answer(command.request_id, "unsupported", text)
            case wire.ReadLogs() | wire.SubmitTasks() | wire.ReloadFile():
                self._slow.put_nowait(command)
            case _:
                self._controller().post(event_of(command))

    def _take_shutdown(self, command: wire.Shutdown) -> None:
        if not self._hooks.may_shut_down:
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

    async def _take_slow(self, command: _SlowCommand) -> None:
        match command:
            case wire.ReadLogs():
                controller = self._controller()
                self._reply(await _read_logs(command, controller.state, controller.fleet))
            case wire.SubmitTasks():
                await self._submit(command)
            case wire.ReloadFile():
                read_config = self._hooks.read_config
                assert read_config is not None, "without it no file is taken"
                reply = await _reload(command, read_config, self._controller, self._adopt)
                if reply is not None:
                    self._reply(reply)

    async def _submit(self, command: wire.SubmitTasks) -> None:
        read_tasks = self._hooks.read_tasks
        assert read_tasks is not None, "without it no file is taken"
        try:
            specs = await read_safely(lambda: read_tasks(command))
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
            question.table, since=question.since, until=question.until, name=question.name,
            limit=question.limit,
        )  # fmt: skip
    except HistoryError as error:
        return wire.Reply(
            request_id=question.request_id, is_ok=False, code="failed", message=str(error)
        )
    return wire.Reply(request_id=question.request_id, is_ok=True, data={"rows": rows})


async def _read_logs(question: ReadLogs, state: ClusterState, fleet: SshFleet) -> Reply:
    """Return the answer to a question for the output of ranks."""
    task = state.tasks.get(TaskId(question.task))
    if task is None:
        exist = ", ".join(state.tasks) or "none"
        return _refused(question, "unknown", f"there is no task {question.task}: {exist} exist")
    wanted = question.ranks or tuple(sorted(task.ranks))
    if missing := [number for number in wanted if number not in task.ranks]:
        has = f"it has {len(task.ranks)} ranks" if task.ranks else "it has never started"
        text = f"{question.task} has no rank {missing[0]}: {has}"
        return _refused(question, "unknown", text)
    asked = NodeId(question.node) if question.node else None
    if asked is not None and asked not in state.nodes:
        return _refused(question, "unknown", f"there is no node {asked}")
    if len(wanted) > _MOST_RANKS:
        text = f"{question.task} has {len(wanted)} ranks: name {_MOST_RANKS} of them at most"
        return _refused(question, "too_many", text)

    async def read(number: int) -> JsonValue:
        node = asked or task.ranks[number].worker.node
        after = question.after.get(number, _NOWHERE)
        place = LogPlace(after.name, after.end, question.max_bytes, question.is_previous)
        try:
            async with asyncio.timeout(_LOG_LIMIT_S):
                part = await fleet.read_log(node, task.spec.task, number, place)
        except TimeoutError:
            return {"rank": number, "node": node, "error": "its node does not answer"}
        return {"rank": number, "node": node, **part.model_dump(exclude={"kind", "command_id"})}

    async with asyncio.TaskGroup() as group:
        reading = [group.create_task(read(number)) for number in wanted]
    logs = [each.result() for each in reading]
    data: dict[str, JsonValue] = {"logs": logs, "is_previous": question.is_previous}
    return Reply(request_id=question.request_id, is_ok=True, data=data)


def _refused(question: ReadLogs, code: str, text: str) -> Reply:
    return Reply(request_id=question.request_id, is_ok=False, code=code, message=text)


async def _reload(
    command: ReloadFile,
    read_config: ReadConfig,
    controller: Callable[[], Controller],
    adopt: Callable[[ControllerConfig], None],
) -> Reply | None:
    """Return the answer; None if the core gives it, once it has taken the changes in.

    Args:
        command: The request.
        read_config: Reads the file.
        controller: Returns the present controller.
        adopt: Called with the new config, for the next controllers of the run.
    """
    request_id = command.request_id
    try:
        config = await read_safely(lambda: read_config(is_dry_run=command.is_dry_run))
        present = controller()
        found = list(changes(config.wanted(), present.state, present.policy))
    except (SubmissionError, ImpossibleChangeError) as error:
        code = "invalid" if isinstance(error, SubmissionError) else "impossible"
        return Reply(request_id=request_id, is_ok=False, code=code, message=str(error))
    lines = (*lines_of(found, present.state, present.policy), *config.further_changes)
    if command.is_dry_run:
        text = f"{len(lines)} changes" if lines else "nothing has changed"
        data = {"changes": list[object](lines)}
        return Reply.model_validate(
            {"request_id": request_id, "is_ok": True, "message": text, "data": data}
        )
    if command.expected is not None and command.expected != lines:
        text = "the file, or the cluster, has changed since you looked: look again"
        return Reply(request_id=request_id, is_ok=False, code="superseded", message=text)
    adopt(config)
    for change in found:
        present.post(change)
    present.post(FileReloaded(request_id, command.actor, lines))
    return None
