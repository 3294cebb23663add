"""Progress of the demo on standard error.

On a terminal: announcements, and below them one bar per task. Elsewhere: announcements and every
fifth iteration, so that a log stays readable.
"""

from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress as Bars, TaskID, TextColumn
from rich.text import Text
from typing_extensions import override

from controller.core.instructions import Announce
from controller.server.announcements import AnnouncementObserver

_STYLES: Final = {"good": "green", "warning": "yellow", "error": "bold red", "drill": "magenta"}
_EVERY: Final = 5


class ProgressBars(AnnouncementObserver):
    """Prints announcements, and bars on a terminal. Of the traces only iterations are shown.

    ``close`` ends the bars.
    """

    def __init__(self, tasks: list[str], num_iterations: int | None) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        self._bars: Bars | None = None
        self._bar_by_task: dict[str, TaskID] = {}
        self._num_iterations = num_iterations
        if self._console.is_terminal and num_iterations:
            self._bars = Bars(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[loss]}", markup=False),
                console=self._console,
                transient=True,
            )
            for name in tasks:
                self._bar_by_task[name] = self._bars.add_task(name, total=num_iterations, loss="")
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
            self._line(at, announcement.source, announcement.text, "")

    def show(self, at: float, source: str, text: str) -> None:
        """Print a line that is not from the core."""
        self._line(at, source, text, "dim")

    def _line(self, at: float, source: str, text: str, style: str) -> None:
        self._console.print(Text(f"[{at:7.2f}s] {source:<6} {text}", style=style))

    def close(self) -> None:
        """End the bars."""
        if self._bars:
            self._bars.stop()
