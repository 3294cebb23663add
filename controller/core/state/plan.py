"""The core's memory of a plan: a division of the workers, and its decision."""

from dataclasses import dataclass, field
from typing import Final

from controller.core.rules.placement import Placement
from controller.core.rules.planner.cost import Problem
from controller.core.state.phases import PLAN_CHANGES, PlanState, advance
from controller.core.state.task_records import Target
from nodeagent.protocol.ids import NodeId, TaskId

_MOST_KEPT: Final = 100
"""The history beside the journal has older ones."""
_OPEN: Final = frozenset({PlanState.PENDING, PlanState.APPROVED})


@dataclass(frozen=True, slots=True)
class TaskChange:
    """What a plan does to one task; ``target`` is None where it gets no workers."""

    task: TaskId
    workers_before: int
    workers_after: int
    waf_before: float
    waf_after: float
    is_faulted: bool
    moves: bool
    placement_before: Placement
    """Where its ranks are, or were until the fault; empty where it does not run."""
    target: Target | None
    transition_s: float
    """Expected seconds without training if it moves."""


@dataclass(slots=True)
class Plan:
    """A division of the workers over all tasks, proposed or decided."""

    name: str
    revision: int
    trigger: str
    seen: str
    why: str
    created_at: float
    waf_before: float
    waf_after: float
    changes: dict[TaskId, TaskChange]
    isolated_nodes: tuple[NodeId, ...]
    steps: tuple[str, ...]
    problem: Problem
    """What the planner was asked."""
    incidents: set[str] = field(default_factory=set)
    state: PlanState = PlanState.PENDING
    approved_by: str | None = None
    decided_at: float | None = None
    apply_at: float | None = None
    """When it is applied unless an operator decides before; None if it waits without an end."""

    def become(self, state: PlanState) -> None:
        """Change the state.

        Raises:
            InvariantViolationError: The table does not allow the change.
        """
        self.state = advance(PLAN_CHANGES, self.state, state, self.name)

    def count_down_to(self, at: float) -> None:
        """It is applied then, unless an operator decides before."""
        self.apply_at = at

    def note_decision(self, at: float, approved_by: str | None) -> None:
        """It was approved by somebody, or rejected if that is None."""
        self.approved_by, self.decided_at = approved_by, at


@dataclass(slots=True)
class PlanLog:
    """Plans of the run, oldest first: the open one, and the newest of the others."""

    all: list[Plan] = field(default_factory=list)
    num_named: int = 0
    num_over: int = 0
    """So many plans at the beginning are applied, rejected or superseded."""

    def pending(self) -> Plan | None:
        """Return the plan that waits for a decision; there is at most one."""
        return self._newest(PlanState.PENDING)

    def executing(self) -> Plan | None:
        """Return the plan that is being carried out; there is at most one."""
        return self._newest(PlanState.APPROVED)

    def keep(self, plan: Plan, revised: Plan | None) -> None:
        """Keep a new plan, or the next revision of ``revised``."""
        if revised is None:
            self.num_named += 1
            self.all.append(plan)
            if len(self.all) > _MOST_KEPT and self.num_over:
                del self.all[0]
                self.num_over -= 1
        else:
            self.all[self.all.index(revised)] = plan

    def become(self, plan: Plan, state: PlanState) -> None:
        """Change the state of a plan. Searches for open plans begin after those that are over.

        Raises:
            InvariantViolationError: The table does not allow the change.
        """
        plan.become(state)
        while self.num_over < len(self.all) and self.all[self.num_over].state not in _OPEN:
            self.num_over += 1

    def _newest(self, wanted: PlanState) -> Plan | None:
        newest = range(self.num_over, len(self.all))
        return next((self.all[i] for i in newest if self.all[i].state is wanted), None)
