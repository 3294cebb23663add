"""Progress of a demo or a service on standard error.

On a terminal: announcements, and below them one bar per task, if every task has an end. Elsewhere:
announcements and some of the iterations, so that a log stays readable.
"""

import math
from collections.abc import Callable, Mapping
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress as Bars, TaskID, TextColumn
from rich.text import Text
from typing_extensions import override

from controller.core.instructions import Announce
from controller.server.announcements import AnnouncementObserver

_STYLES: Final = {"good": "green", "warning": "yellow", "error": "bold red", "drill": "magenta"}
_EVERY: Final = 5


def since_start(at: float) -> str:
    """Return a time as seconds since the start of the run."""
    return f"{at:7.2f}s"


class ProgressBars(AnnouncementObserver):
    """Prints announcements, and bars on a terminal. Of the traces only iterations are shown.

    ``close`` ends the bars.

    Args:
        totals: Iterations of each task; None for a task without an end.
        stamp: Returns how a time is shown, given seconds since the start of the run.
        iteration_pause_s: Shortest time between two lines about a task's iterations, seconds.
    """

    def __init__(
        self,
        totals: Mapping[str, int | None],
        stamp: Callable[[float], str] = since_start,
        iteration_pause_s: float = 0.0,
    ) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        self._bars: Bars | None = None
        self._bar_by_task: dict[str, TaskID] = {}
        self._stamp = stamp
        self._iteration_pause_s = iteration_pause_s
        self._shown_at: dict[str, float] = {}
        if self._console.is_terminal and all(totals.values()):
            self._bars = Bars(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[loss]}", markup=False),
                console=self._console,
                transient=True,
            )
            for name, total in totals.items():
                self._bar_by_task[name] = self._bars.add_task(name, total=total, loss="")
            self._bars.start()

    @override
    def observe(self, at: float, announcement: Announce) -> None:
        if announcement.kind == "iteration":
            self._show_iteration(at, announcement)
        elif announcement.level != "trace":
            style = _STYLES.get(announcement.level, "")
            self._line(at, announcement.source, announcement.text, style)

    def _show_iteration(self, at: float, announcement: Announce) -> None:
        facts = dict(announcement.facts)
        iteration, loss = facts["iteration"], facts["loss"]
        if self._bars and isinstance(iteration, int):
            bar = self._bar_by_task[announcement.source]
            self._bars.update(bar, completed=iteration, loss=f"loss {loss:.4f}")
        elif isinstance(iteration, int) and iteration % _EVERY == 0:
            if at - self._shown_at.get(announcement.source, -math.inf) < self._iteration_pause_s:
                return
            self._shown_at[announcement.source] = at
            self._line(at, announcement.source, announcement.text, "")

    def show(self, at: float, source: str, text: str) -> None:
        """Print a line that is not from the core."""
        self._line(at, source, text, "dim")

    def _line(self, at: float, source: str, text: str, style: str) -> None:
        self._console.print(Text(f"[{self._stamp(at)}] {source:<6} {text}", style=style))

    def close(self) -> None:
        """End the bars."""
        if self._bars:
            self._bars.stop()
