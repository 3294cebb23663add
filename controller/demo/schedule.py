"""Runs drills when they are due, and knows when a headless run has come to rest."""

from collections.abc import Callable, Sequence

from controller.core.events import DrillRequested, EventBody
from controller.core.instructions import AnswerRequest
from controller.core.phases import IncidentState, NodeCondition, TaskPhase
from controller.core.state import ClusterState
from controller.demo.drills import ScheduledDrill

ACTOR = "schedule"
_PREFIX = "drill-"


class DrillSchedule:
    """Posts each drill once its task has committed its iteration.

    A drill that is refused because nothing runs at that moment is posted again when the state has
    changed.
    """

    def __init__(self, drills: Sequence[ScheduledDrill], post: Callable[[EventBody], None]) -> None:
        self._waiting = {f"{_PREFIX}{number}": drill for number, drill in enumerate(drills, 1)}
        self._asked: set[str] = set()
        self._post = post

    @property
    def is_done(self) -> bool:
        """Whether every drill has been carried out."""
        return not self._waiting

    def look(self, state: ClusterState) -> None:
        """Post what is due by now."""
        for name, drill in self._waiting.items():
            task = state.tasks[drill.task]
            is_due = task.iteration >= drill.iteration and task.phase is TaskPhase.RUNNING
            if is_due and name not in self._asked:
                self._asked.add(name)
                self._post(
                    DrillRequested(
                        request_id=name,
                        actor=ACTOR,
                        drill=drill.kind,
                        task=drill.task,
                        global_rank=drill.global_rank,
                        node=drill.node,
                    )
                )

    def take_answer(self, answer: AnswerRequest) -> None:
        """Note that a drill was carried out, or ask again later."""
        if answer.request_id in self._asked:
            self._asked.discard(answer.request_id)
            if answer.is_ok:
                del self._waiting[answer.request_id]


def has_settled(state: ClusterState) -> bool:
    """Return whether nothing is under way: every task finished, nothing undecided or unreachable."""
    return (
        all(task.phase is TaskPhase.FINISHED for task in state.tasks.values())
        and all(
            incident.state in {IncidentState.RESOLVED, IncidentState.HELD}
            for incident in state.incidents
        )
        and all(node.condition is not NodeCondition.UNREACHABLE for node in state.nodes.values())
    )
