"""Makes the README's two pictures of the console, from a cluster that runs for this.

    make pictures

It starts four SSH nodes and the controller of their cluster file, and attaches the real console to
it. One picture is of a calm cluster. For the other one a node is lost, and the plan waits for an
approval. It takes one or two minutes.
"""

import asyncio
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from textual.pilot import Pilot

from console.app import ConsoleApp
from console.client.controller_link import ApiLink
from console.operator_actions import OperatorSession
from console.viewmodel.console_state import State
from controller.clock import SystemClock
from controller.core.state.phases import PlanState
from tests.fakes.cluster_runs import controller_of
from tests.fakes.playgrounds import Playground, playground

_TARGET: Final = Path("docs/pictures")
_SIZE: Final = (120, 34)
_CALM_ITERATION: Final = 40
_LIMIT_S: Final = 120.0
_LOOK_S: Final = 0.2


def main() -> int:
    """Make both pictures; return 0."""
    with tempfile.TemporaryDirectory(prefix="ut-", dir="/tmp") as name:
        directory = Path(name)
        (directory / "t").mkdir()
        with (
            playground(directory / "t", directory / "play") as nodes,
            controller_of(nodes.path),
        ):
            asyncio.run(_make(nodes))
    return 0


async def _make(nodes: Playground) -> None:
    socket = nodes.path.parent / "run" / "api.sock"
    clock = SystemClock().now
    session = OperatorSession("operator", owns_demo=False, starts_armed=False)
    app = ConsoleApp(ApiLink(socket, clock), session, clock, lambda: uuid.uuid4().hex)
    async with app.run_test(size=_SIZE) as pilot:
        await _reached(app, pilot, _is_calm)
        await pilot.pause(1.0)
        _save(app, "console-calm")
        nodes.lose("n1")
        await _reached(app, pilot, _is_waiting)
        await pilot.pause(2.0)
        _save(app, "console-plan")


async def _reached(app: ConsoleApp, pilot: Pilot[int], is_reached: Callable[[State], bool]) -> None:
    async with asyncio.timeout(_LIMIT_S):
        while not is_reached(app.state):
            await pilot.pause(_LOOK_S)


def _is_calm(state: State) -> bool:
    view = state.view
    return view is not None and all(task.iteration >= _CALM_ITERATION for task in view.tasks)


def _is_waiting(state: State) -> bool:
    view = state.view
    return view is not None and any(plan.state is PlanState.PENDING for plan in view.plans)


def _save(app: ConsoleApp, name: str) -> None:
    _TARGET.mkdir(exist_ok=True)
    path = _TARGET / f"{name}.svg"
    path.write_text(app.export_screenshot(title="unicron-console"))
    sys.stdout.write(f"wrote {path}\n")


if __name__ == "__main__":
    raise SystemExit(main())
