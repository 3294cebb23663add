"""Plans for events that may come next, and explanations of plans, computed in the background.

Neither delays a decision. The table of next plans is built in a thread, once the cluster has been
quiet for a moment. The core gets the whole table at once. A plan is published first and explained a
moment later.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from controller.api.views import PreparedView
from controller.background import Failure, LoopPauses, in_background
from controller.core.machine import Machine
from controller.core.rules.planner.explanation import Explanation, explain
from controller.core.rules.planner.lookup import Outlook, look_ahead
from controller.core.state.plan import Plan

_LOG: Final = logging.getLogger(__name__)
_QUIET_S: Final = 1.0
_LARGEST_SHARE: Final = 0.01
"""Share of the time that the comparison may take."""
_MAX_EXPLAINED: Final = 4
"""Newest plans that have an explanation. Consoles show no older ones."""


class PrecomputedPlans:
    """Computes plans for one machine. ``run`` serves until cancelled.

    Args:
        machine: Read whenever ``news`` is set.
        news: Set when the machine has handled an event.
        note: Called with a line when a computation fails.
        quiet_s: Plans are computed once the outlook has stayed the same for this long, seconds.

    Attributes:
        explanations: Explanations of the newest plans, by name and revision; None if there is none.
    """

    def __init__(
        self,
        machine: Machine,
        news: asyncio.Event,
        note: Callable[[str], None],
        quiet_s: float = _QUIET_S,
    ) -> None:
        self.explanations: dict[tuple[str, int], Explanation | None] = {}
        self._machine = machine
        self._news = news
        self._note = note
        self._quiet_s = quiet_s
        self._has_plans = asyncio.Event()
        self._has_changed = asyncio.Event()
        self._planned: Outlook | None = None
        self._tried: Outlook | None = None
        self._seen: Outlook | None = None
        self._took_s = 0.0

    @property
    def prepared(self) -> PreparedView:
        """The state of the table, as consoles show it."""
        table = self._machine.table
        return PreparedView(
            num_events=len(table.divisions),
            took_s=self._took_s,
            is_current=self._planned is not None and self._planned == self._seen,
            num_found=table.num_found,
            num_missed=table.num_missed,
        )

    async def run(self, changed: Callable[[], None]) -> None:
        """Serve until cancelled. ``changed`` is called after a change of plans or explanations."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._explain_plans(changed))
            group.create_task(self._keep_table(changed))
            while True:
                await self._news.wait()
                self._news.clear()
                self._has_plans.set()
                self._has_changed.set()

    async def _explain_plans(self, changed: Callable[[], None]) -> None:
        while True:
            await self._has_plans.wait()
            self._has_plans.clear()
            newest = self._machine.state.plans.all[-_MAX_EXPLAINED:]
            for plan in newest:
                if (plan.name, plan.revision) not in self.explanations:
                    await self._explain(plan)
                    changed()
            keys = {(plan.name, plan.revision) for plan in newest}
            self.explanations = {k: v for k, v in self.explanations.items() if k in keys}

    async def _explain(self, plan: Plan) -> None:
        assignments = {name: change.workers_after for name, change in plan.changes.items()}
        problem, key = plan.problem, (plan.name, plan.revision)
        outcome = await in_background(lambda: explain(problem, assignments, LoopPauses()))
        self.explanations[key] = None if isinstance(outcome, Failure) else outcome
        if isinstance(outcome, Failure):
            self._note(f"{plan.name} can't be explained, which is a bug in Unicron: {outcome.text}")

    async def _keep_table(self, changed: Callable[[], None]) -> None:
        while True:
            await self._has_changed.wait()
            self._has_changed.clear()
            begin_s = time.perf_counter()
            outlook = self._machine.outlook()
            took_s = time.perf_counter() - begin_s
            if outlook != self._seen:
                self._seen = outlook
                self._has_changed.set()  # compare again after the pause
                changed()
            elif outlook != self._tried:
                await self._look_ahead(outlook)
                changed()
            # The loop stands still meanwhile, for longer the larger the cluster is.
            await asyncio.sleep(max(self._quiet_s, took_s / _LARGEST_SHARE))

    async def _look_ahead(self, outlook: Outlook) -> None:
        begin_s = time.perf_counter()
        self._tried = outlook
        table = await in_background(lambda: look_ahead(outlook, LoopPauses()))
        if isinstance(table, Failure):
            self._note(
                f"plans for next events can't be computed, which is a bug in Unicron: {table.text}"
            )
            return
        self._took_s = time.perf_counter() - begin_s
        before = self._machine.table
        table.num_found, table.num_missed = before.num_found, before.num_missed
        self._machine.table = table
        self._planned = outlook
        num, took_s = len(table.divisions), self._took_s
        _LOG.debug("plans for next events computed: divisions=%d duration_s=%.3f", num, took_s)
