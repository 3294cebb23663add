"""A controller API server that plays what a test tells it, over a real unix socket.

``FakeApiServer`` speaks the wire protocol of ``controller.api.wire``: it greets, sends the present
view and the log, and answers every command through ``answer``. Run as a program it plays the story
of ``cluster_views`` by itself, for looking at the console in a real terminal::

    python -m tests.fakes.api_server /tmp/fake.sock
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import BaseModel, TypeAdapter

from controller.api.server import ApiServer
from controller.api.views import ClusterView, IncidentState, LogLevel, LogLine, PlanState
from controller.api.wire import (
    API_VERSION,
    ApprovePlan,
    CancelMeasurement,
    Command,
    DecideLoss,
    FollowChanges,
    FromClient,
    Greeting,
    LogLines,
    MeasureTask,
    RejectPlan,
    Reply,
    RequestPlan,
    RunDrill,
    Shutdown,
    Snapshot,
    UncordonNode,
)
from tests.fakes import cluster_views

_FROM_CLIENT: TypeAdapter[FromClient] = TypeAdapter(FromClient)


@asynccontextmanager
async def running_server(server: ApiServer, path: Path) -> AsyncIterator[None]:
    """Run the real API server for the length of the block, once clients can connect."""
    async with asyncio.TaskGroup() as group:
        service = group.create_task(server.run(path))
        while not path.exists():  # noqa: ASYNC110, ASYNC240 - it appears at the task's first step
            await asyncio.sleep(0)
        yield
        service.cancel()


class FakeApiServer:
    """A server whose view, log and answers are scripted."""

    def __init__(self, path: Path, view: ClusterView) -> None:
        self.path = path
        self.view = view
        self.log: list[LogLine] = []
        self.version = API_VERSION
        self.received: list[Command] = []
        self.answer: Callable[[Command], Reply | None] = lambda command: Reply(
            request_id=command.request_id, is_ok=True
        )
        self._writers: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["FakeApiServer"]:
        """Listen while the context is open; afterwards the socket is gone."""
        server = await asyncio.start_unix_server(self._serve, self.path)
        try:
            yield self
        finally:
            server.close()
            self.drop_clients()
            self.path.unlink(missing_ok=True)

    def publish(self, view: ClusterView) -> None:
        """Make ``view`` the present one and send it to everybody."""
        self.view = view
        self._send_all(Snapshot(view=view))

    def write(self, *lines: LogLine) -> None:
        """Append lines to the event stream."""
        self.log.extend(lines)
        self._send_all(LogLines(lines=list(lines)))

    def send_raw(self, line: bytes) -> None:
        """Send bytes that need not be a message."""
        for writer in self._writers:
            writer.write(line)

    def drop_clients(self) -> None:
        """Close all connections."""
        for writer in list(self._writers):
            writer.close()

    def _send_all(self, message: BaseModel) -> None:
        self.send_raw(message.model_dump_json().encode() + b"\n")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        hello = (
            Greeting(version=self.version, cluster=self.view.cluster),
            Snapshot(view=self.view),
            LogLines(lines=self.log),
        )
        try:
            for message in hello:
                writer.write(message.model_dump_json().encode() + b"\n")
            while line := await reader.readline():
                command = _FROM_CLIENT.validate_json(line)
                if isinstance(command, FollowChanges):
                    continue  # as a controller of an older version does
                self.received.append(command)
                if reply := self.answer(command):
                    writer.write(reply.model_dump_json().encode() + b"\n")
        except ConnectionError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()


class Story:
    """The main job, played against the clock: a drill or a plan changes what comes next."""

    def __init__(self, server: FakeApiServer) -> None:
        self._server = server
        self._started_s = asyncio.get_running_loop().time() - 100.0
        self._seq = len(server.log)
        self.is_over = False
        server.answer = self.answer

    @property
    def now(self) -> float:
        """The fake controller's time."""
        return asyncio.get_running_loop().time() - self._started_s

    def say(self, level: LogLevel, source: str, text: str) -> None:
        """Write one event."""
        self._seq += 1
        line = LogLine(seq=self._seq, at=self.now, level=level, source=source, text=text)
        self._server.write(line)

    def tick(self) -> None:
        """Publish the next instant of the present scene."""
        view, now = self._server.view, self.now
        nodes = cluster_views.nodes(now, lost="n4" if view.plans else None)
        tasks = [
            task
            if task.tokens_per_s is None
            else cluster_views.task(
                task.name,
                100 + int(now * 1.5) % 200,
                workers=task.workers,
                layout=task.layout,
                generation=task.generation,
            )
            for task in view.tasks
        ]
        self._server.publish(view.model_copy(update={"now": now, "nodes": nodes, "tasks": tasks}))

    def answer(self, command: Command) -> Reply:
        """Play the part of the controller."""
        code, message = "ok", ""
        match command:
            case RunDrill(drill="lose-node"):
                scene = cluster_views.waiting(self.now)
                plan = cluster_views.plan(created_at=self.now)
                incident = scene.incidents[1].model_copy(
                    update={"fault_at": self.now - 0.2, "detected_at": self.now}
                )
                self._server.view = scene.model_copy(
                    update={"plans": [plan], "incidents": [scene.incidents[0], incident]}
                )
                self.say(LogLevel.DRILL, "n4", "drill lose-node")
                self.say(LogLevel.ERROR, "INC-2", "n4 is lost")
            case RunDrill():
                self.say(LogLevel.DRILL, command.task or command.node or "?", command.drill)
            case ApprovePlan() | RejectPlan() if not self._server.view.plans:
                code, message = "unknown", f"there is no plan {command.plan}"
            case ApprovePlan():
                self._decide(PlanState.APPLIED, command.actor)
            case RejectPlan():
                self._decide(PlanState.REJECTED, command.actor)
            case RequestPlan():
                code, message = "nothing", "no plan would change anything"
            case UncordonNode():
                code, message = "nothing", f"{command.node} is not isolated"
            case DecideLoss():
                code, message = "nothing", f"{command.node} is healthy, not out of contact"
            case MeasureTask() | CancelMeasurement():
                code, message = "nothing", "no size fits on idle workers"
            case Shutdown():
                self.is_over = True
            case _:
                code, message = "impossible", "no console asks this"
        return Reply(request_id=command.request_id, is_ok=code == "ok", code=code, message=message)

    def _decide(self, state: PlanState, actor: str) -> None:
        now = self.now
        changes = {"state": state, "approved_by": actor, "decided_at": now}
        plan = self._server.view.plans[0].model_copy(update=changes)
        if state is PlanState.APPLIED:
            scene = cluster_views.healed(now)
            incident = self._server.view.incidents[1].model_copy(
                update={"state": IncidentState.RESOLVED, "resolved_at": now}
            )
            self._server.view = scene.model_copy(
                update={"plans": [plan], "incidents": [scene.incidents[0], incident]}
            )
        else:
            self._server.view = self._server.view.model_copy(update={"plans": [plan]})
        self.say(LogLevel.GOOD, plan.id, f"{state} by {actor}")


async def play(path: Path) -> None:
    """Serve the story at ``path`` until a console sends ``Shutdown`` or Ctrl-C comes."""
    server = FakeApiServer(path, cluster_views.calm())
    server.log = cluster_views.log(8)
    async with server.serving():
        story = Story(server)
        while not story.is_over:
            story.tick()
            await asyncio.sleep(0.3)
        await asyncio.sleep(0.3)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(play(Path(sys.argv[1])))
