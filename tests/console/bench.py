"""A console under test: frozen clock, scripted source, and its screen as text."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest
import textual.app
import textual.pilot
from textual.pilot import Pilot

from console.app import ConsoleApp
from console.client.source import Inbox, NoReplyError
from console.operator_actions import OperatorSession
from console.screens.waiting import WaitingScreen
from console.themes.colours import Palette
from console.viewmodel.console_state import Link, LinkPhase
from console.viewmodel.drawing.glyphs import UNICODE, Glyphs
from console.viewmodel.news import Attention
from console.viewmodel.reducer import LinkChanged, Received
from console.widgets.appearance import Appearance
from controller.api.views import ClusterView, LogLine
from controller.api.wire import (
    AskWhatIf,
    Command,
    LogLines,
    ReadEvidence,
    ReadLogs,
    Reply,
    Snapshot,
)


class FakeSource:
    """A source that stays silent; tests put events into the app's inbox themselves."""

    def __init__(self) -> None:
        self.socket_path = Path("none.sock")
        self.sent: list[Command] = []
        self.asked: list[Command] = []
        """Questions for evidence and logs, and to the planner."""
        self.answer: Callable[[Command], Reply | None] = lambda command: Reply(
            request_id=command.request_id, is_ok=True
        )

    async def run(self, inbox: Inbox) -> None:
        """Do nothing: there is no connection to keep."""

    async def send(self, command: Command) -> Reply:
        """Remember ``command`` and answer as scripted; no answer means a time-out."""
        is_question = isinstance(command, AskWhatIf | ReadEvidence | ReadLogs)
        (self.asked if is_question else self.sent).append(command)
        if reply := self.answer(command):
            return reply
        raise NoReplyError("no reply within 10 s")


class Bench:
    """A running console and the hands on it."""

    def __init__(self, app: ConsoleApp, pilot: Pilot[int], source: FakeSource) -> None:
        self.app = app
        self.pilot = pilot
        self.source = source
        self.now = 1_000.0

    async def show(self, view: ClusterView, *lines: LogLine) -> None:
        """Let ``view`` and ``lines`` arrive."""
        self.receive(view)
        if lines:
            self.app.inbox.put(Received(self.now, LogLines(lines=list(lines))))
        await self.settle()

    def receive(self, view: ClusterView) -> None:
        """Put ``view`` into the inbox: it is shown with the next tick."""
        self.app.inbox.put(Received(self.now, Snapshot(view=view)))

    async def link(self, phase: LinkPhase, reason: str = "") -> None:
        """Let the connection change."""
        self.change_link(phase, reason)
        await self.settle()

    def change_link(self, phase: LinkPhase, reason: str = "") -> None:
        """Put a change of the connection into the inbox."""
        self.app.inbox.put(LinkChanged(Link(phase, self.now, reason)))

    async def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        await self.settle()

    async def press(self, *keys: str, opens_dialog: bool = False) -> None:
        """Press keys; a dialog that they open gets past its guard."""
        await self.pilot.press(*keys)
        await self.pilot.pause()
        if opens_dialog:
            await self.wait(0.5)

    async def settle(self) -> None:
        """Let everything that is under way be painted."""
        await self.pilot.pause()
        self.app.tick(is_forced=True)
        # Textual lays screens out in its own time.
        await self.until(self._is_laid_out)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for what Textual does in its own time."""
        for _ in range(1000):
            await self.pilot.pause(0.01)
            if is_so():
                return
        raise AssertionError(f"still not so:\n{self.screen}")

    def _is_laid_out(self) -> bool:
        is_waiting = any(isinstance(screen, WaitingScreen) for screen in self.app.screen_stack)
        if self.app.state.view is None or is_waiting or self.app.overview.size != self.app.size:
            return self.app.state.view is None
        boxes = self.app.overview._boxes
        return all(
            widget.size == (box.width, box.height)
            for name, box in boxes.items()
            if (widget := self.app.overview.query_one(f"#{name}")).display
        )

    @property
    def screen(self) -> str:
        """What the terminal shows."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in strips)

    @property
    def last_line(self) -> str:
        """The activity line, above the key bar."""
        return self.screen.splitlines()[-2].strip()


async def wait_for_idle(_min_sleep: float = 0.0, _max_sleep: float = 0.0) -> None:
    """Wait until every task of this loop waits for a timer, or for something outside it.

    This stands for Textual's ``wait_for_idle``, which sleeps 20 ms again and again until a process
    takes less than 1 ms of them: most of what these tests took, and no proof that all is done.
    """
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    num_idle = 0
    while num_idle < 3:
        await asyncio.sleep(0)
        num_idle = 0 if ready else num_idle + 1


@asynccontextmanager
async def console(
    view: ClusterView | None,
    *lines: LogLine,
    size: tuple[int, int] = (80, 24),
    is_armed: bool = False,
    owns_demo: bool = False,
    is_view_only: bool = False,
    glyphs: Glyphs = UNICODE,
    theme: str = "dark",
    keys: Mapping[str, str] | None = None,
    attention: Attention = "none",
) -> AsyncIterator[Bench]:
    """Run a console of ``size``, connected and showing ``view`` unless that is None."""
    source = FakeSource()
    numbers = count(1)
    holder: list[Bench] = []
    app = ConsoleApp(
        source,
        OperatorSession(
            "alex", owns_demo=owns_demo, starts_armed=is_armed, is_view_only=is_view_only
        ),
        lambda: holder[0].now if holder else 1_000.0,
        lambda: f"r{next(numbers)}",
        appearance=Appearance(Palette(theme), glyphs, keys or {}, attention),
    )
    with pytest.MonkeyPatch.context() as patch:
        for module in (textual.app, textual.pilot):
            patch.setattr(module, "wait_for_idle", wait_for_idle)
        async with app.run_test(size=size) as pilot:
            holder.append(Bench(app, pilot, source))
            bench = holder[0]
            await bench.settle()
            if view is not None:
                await bench.link(LinkPhase.LIVE)
                await bench.show(view, *lines)
            yield bench
