"""Makes the pictures of the console, and a recording, from a cluster that runs for this.

    make pictures

It starts four SSH nodes and the controller of their cluster file, and attaches the real console to
it. It takes a picture of each screen, loses a node, approves the plan, and looks at what was
healed, also in a playback of the journal. From the loss to the cure the overview is recorded: as an
asciicast (``asciinema play``) and as an SVG that a browser plays. It takes two minutes or so.
"""

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable
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
from tests.fakes.playgrounds import Playground, playground, unicron
from tests.fakes.polling import wait_until
from tools.moving_picture import Frame, asciicast, moving_svg, rows_of, without_pauses

_TARGET: Final = Path("docs/pictures")
_SIZE: Final = (120, 34)
_CALM_ITERATION: Final = 40
_MORE_ITERATIONS: Final = 10
_LIMIT_S: Final = 120.0
_LOOK_S: Final = 0.2
_FRAME_S: Final = 0.4
_LONGEST_S: Final = 1.2
"""A frame of the recording is shown for so long at most."""
_GUARD_S: Final = 0.6
"""A dialog takes no keys before."""
_TITLE: Final = "unicron-console: a node is lost, a plan is approved, both tasks train again"


def main() -> int:
    """Make all pictures; return 0."""
    _TARGET.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ut-", dir="/tmp") as name:
        directory = Path(name)
        (directory / "t").mkdir()
        with playground(directory / "t", directory / "play") as nodes:
            with controller_of(nodes.path):
                asyncio.run(_of_cluster(nodes))
            _of_playback(nodes.path.parent / "run", directory / "p.sock")
    return 0


class _Studio:
    """A console, and the hands that press its keys."""

    def __init__(self, app: ConsoleApp, pilot: Pilot[int]) -> None:
        self.app, self.pilot = app, pilot
        self.frames: list[Frame] = []
        self._clock = SystemClock()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause(_GUARD_S)

    async def until(self, is_reached: Callable[[State], bool]) -> None:
        async with asyncio.timeout(_LIMIT_S):
            while not is_reached(self.app.state):
                await self.pilot.pause(_LOOK_S)

    def save(self, name: str) -> None:
        _write(f"{name}.svg", self.app.export_screenshot(title="unicron-console"))

    async def screen(self, name: str, *keys: str) -> None:
        """Open a screen, save its picture, and leave it."""
        await self.press(*keys)
        self.save(name)
        await self.press("escape")

    @contextlib.asynccontextmanager
    async def recording(self) -> AsyncIterator[None]:
        """Take frames while the block runs."""
        taking = asyncio.create_task(self._take_frames())  # noqa: TID251 (ends with the block)
        try:
            yield
        finally:
            taking.cancel()
            await asyncio.wait([taking])

    async def _take_frames(self) -> None:
        while True:
            strips = self.app.screen._compositor.render_strips()  # noqa: SLF001 - no public one
            self.frames.append(Frame(self._clock.now(), rows_of(strips)))
            await asyncio.sleep(_FRAME_S)


@contextlib.asynccontextmanager
async def _console(socket: Path) -> AsyncIterator[_Studio]:
    clock = SystemClock().now
    session = OperatorSession("operator", owns_demo=False, starts_armed=False)
    app = ConsoleApp(ApiLink(socket, clock), session, clock, lambda: uuid.uuid4().hex)
    async with app.run_test(size=_SIZE) as pilot:
        yield _Studio(app, pilot)


async def _of_cluster(nodes: Playground) -> None:
    async with _console(nodes.path.parent / "run" / "api.sock") as studio:
        await studio.until(_trains_until(_CALM_ITERATION))
        await studio.pilot.pause(1.0)
        studio.save("console-calm")
        await studio.screen("console-node", "down", "enter")
        await studio.screen("console-task", "tab", "down", "enter")
        await studio.screen("console-help", "question_mark")
        await studio.press("shift+tab")
        async with studio.recording():
            await studio.pilot.pause(1.5)
            nodes.lose("n1")
            await studio.until(_is_waiting)
            await studio.pilot.pause(2.0)
        studio.save("console-plan")
        await studio.screen("console-plan-screen", "tab", "tab", "enter")
        async with studio.recording():
            await studio.press("ctrl+t")
            await studio.press("A")
            await studio.pilot.pause(1.0)
            studio.save("console-approve")
            await studio.press("y")
            await studio.press("enter")
            await studio.until(_is_healed)
            newest = _newest_iterations(studio.app.state)
            await studio.until(
                lambda state: all(
                    now >= before + _MORE_ITERATIONS
                    for now, before in zip(_newest_iterations(state), newest, strict=True)
                )
            )
        await studio.screen("console-incident", "i")
        await studio.screen("console-logs", "i", "l")
    frames = without_pauses(studio.frames, _LONGEST_S)
    _write("heal.cast", "".join(f"{line}\n" for line in asciicast(frames, _SIZE, _TITLE)))
    ground = studio.app.appearance.palette.background
    _write("heal.svg", moving_svg(frames, _SIZE, _TITLE, ground))


def _of_playback(run_dir: Path, socket: Path) -> None:
    words = unicron("playback", str(run_dir), "--at", "I-1", "--serve", str(socket))
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as playback:
        try:
            assert wait_until(socket.exists, limit_s=_LIMIT_S)
            asyncio.run(_at_incident(socket))
        finally:
            playback.terminate()


async def _at_incident(socket: Path) -> None:
    async with _console(socket) as studio:
        await studio.until(lambda state: state.view is not None)
        await studio.press("full_stop", "full_stop", "full_stop")
        studio.save("console-playback")


def _trains_until(iteration: int) -> Callable[[State], bool]:
    return lambda state: bool(state.view) and min(_newest_iterations(state)) >= iteration


def _newest_iterations(state: State) -> list[int]:
    return [task.iteration for task in state.view.tasks] if state.view else [0]


def _is_waiting(state: State) -> bool:
    view = state.view
    return view is not None and any(plan.state is PlanState.PENDING for plan in view.plans)


def _is_healed(state: State) -> bool:
    view = state.view
    return view is not None and all(each.resolved_at is not None for each in view.incidents)


def _write(name: str, text: str) -> None:
    path = _TARGET / name
    path.write_text(text)
    sys.stdout.write(f"wrote {path}\n")


if __name__ == "__main__":
    raise SystemExit(main())
