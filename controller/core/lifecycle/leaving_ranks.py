"""Processes that are being ended, and the workers that they still occupy.

The one writer of ``LeavingRanks``.
"""

from collections.abc import Callable, Collection, Mapping

from controller.core.rules.placement import Worker
from controller.core.state.task import TaskState
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.observations import RankObservation


def begin_leaving(task: TaskState, workers: Mapping[int, Worker]) -> None:
    """Processes of the present generation are ended: their workers are occupied until they are."""
    task.leaving.workers |= {
        (task.generation, number): worker for number, worker in workers.items()
    }


def note_end(task: TaskState, observation: RankObservation) -> None:
    """A process has ended, or was never launched: its worker is free."""
    task.leaving.workers.pop((observation.generation, observation.global_rank), None)


def forget_on(task: TaskState, takes: Callable[[Worker], bool]) -> None:
    """The workers that ``takes`` names are lost with their processes."""
    leaving = task.leaving
    leaving.workers = {key: worker for key, worker in leaving.workers.items() if not takes(worker)}


def forget_unlisted(
    task: TaskState, node: NodeId, listed: Collection[tuple[TaskId, Generation, int]]
) -> None:
    """A leaving process that its node does not list is gone."""
    for (generation, number), worker in list(task.leaving.workers.items()):
        if worker.node == node and (task.spec.task, generation, number) not in listed:
            del task.leaving.workers[generation, number]
