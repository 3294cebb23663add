"""The output of ranks, read from their nodes for a client. The core knows nothing of it."""

import asyncio
from typing import Final

from pydantic import JsonValue

from controller.api.wire import LogPosition, ReadLogs, Reply
from controller.core.state.cluster import ClusterState
from controller.fleet.node_links import LogPlace, SshFleet
from nodeagent.protocol.ids import NodeId, TaskId

_MOST_RANKS: Final = 64
_LIMIT_S: Final = 10.0
_NOWHERE: Final = LogPosition(name="", end=0)


async def read_logs(question: ReadLogs, state: ClusterState, fleet: SshFleet) -> Reply:
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
            async with asyncio.timeout(_LIMIT_S):
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
