"""What the controller works out beside its work: plans for what may come next, and why a plan is this one.

Neither delays a decision. The table of next plans is built once the cluster has been quiet for a moment, in a
thread, and put in the core's hands whole; a plan is there before it is explained.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from controller.api.views import PreparedView
from controller.core.explanation import Explanation, explain
from controller.core.lookup import Outlook, look_ahead
from controller.core.machine import Machine
from controller.core.state import Plan

_QUIET_S: Final = 1.0
"""How long the outlook must have stayed the same before plans for it are sought."""
_MAX_EXPLAINED: Final = 4
"""Plans whose explanations are kept: what consoles show."""

T = TypeVar("T")


class Foresight:
    """Works beside one machine. ``run`` serves until cancelled.

    Attributes:
        explanations: Those of the newest plans, by name and revision.
    """

    def __init__(self, machine: Machine, news: asyncio.Event) -> None:
        """Look at ``machine`` whenever ``news`` is set."""
        self.explanations: dict[tuple[str, int], Explanation] = {}
        self._machine = machine
        self._news = news
        self._planned: Outlook | None = None
        self._seen: Outlook | None = None
        self._took_s = 0.0

    @property
    def prepared(self) -> PreparedView:
        """What there is."""
        table = self._machine.table
        return PreparedView(
            num_events=len(table.divisions),
            took_s=self._took_s,
            is_current=self._planned is not None and self._planned == self._seen,
            num_found=table.num_found,
            num_missed=table.num_missed,
        )

    async def run(self, changed: Callable[[], None]) -> None:
        """Serve until cancelled; ``changed`` is called when there is something new to see."""
        while True:
            await self._news.wait()
            self._news.clear()
            for plan in self._unexplained():
                await self._explain(plan)
                changed()
            await asyncio.sleep(_QUIET_S)
            if self._unexplained():
                continue
            outlook = self._machine.outlook()
            if outlook != self._seen:
                self._seen = outlook
                self._news.set()  # look once more
            elif outlook != self._planned:
                await self._look_ahead(outlook)
                changed()

    def _unexplained(self) -> list[Plan]:
        newest = self._machine.state.plans[-_MAX_EXPLAINED:]
        return [plan for plan in newest if (plan.name, plan.revision) not in self.explanations]

    async def _explain(self, plan: Plan) -> None:
        assignments = {name: change.workers_after for name, change in plan.changes.items()}
        problem, key = plan.problem, (plan.name, plan.revision)
        self.explanations[key] = await _beside(lambda: explain(problem, assignments))
        while len(self.explanations) > _MAX_EXPLAINED:
            del self.explanations[next(iter(self.explanations))]

    async def _look_ahead(self, outlook: Outlook) -> None:
        begin_s = time.perf_counter()
        table = await _beside(lambda: look_ahead(outlook))
        self._took_s = time.perf_counter() - begin_s
        before = self._machine.table
        table.num_found, table.num_missed = before.num_found, before.num_missed
        self._machine.table = table
        self._planned = outlook


async def _beside(work: Callable[[], T]) -> T:
    """Return what ``work`` does, done in a thread that nobody waits for at the end."""
    result: Future[T] = Future()

    def run() -> None:
        result.set_running_or_notify_cancel()
        try:
            result.set_result(work())
        except Exception as error:  # noqa: BLE001 - it is raised where it is awaited
            result.set_exception(error)

    threading.Thread(target=run, name="foresight", daemon=True).start()
    return await asyncio.wrap_future(result)
