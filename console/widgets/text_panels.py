"""Panels that show running text: the event stream and the plan."""

from dataclasses import replace

from console.viewmodel.console_state import EventWindow
from console.viewmodel.drawing.text import Line
from console.viewmodel.filtering import filtered_log
from console.viewmodel.panels.event_stream import event_lines, moved_anchor
from console.viewmodel.panels.plan_panel import plan_heading, plan_lines
from console.widgets.appearance import Appearance
from console.widgets.painted import Panel


class EventPanel(Panel):
    """The event stream. It follows the newest line until the operator moves up."""

    def __init__(self, appearance: Appearance, *, id: str) -> None:  # noqa: A002 (Textual's name)
        super().__init__(appearance, id=id)
        self.anchor_seq: int | None = None

    @property
    def is_following(self) -> bool:
        """Whether new lines move the window."""
        return self.anchor_seq is None

    def draw(self) -> list[Line]:
        """Return the heading and the window on the stream."""
        heading, *rows = event_lines(
            replace(self.state, log=self._log()),
            self.anchor_seq,
            self.size.width,
            self.size.height,
            self.appearance.glyphs,
        )
        return [self.headed(heading), *rows]

    def _log(self) -> EventWindow:
        return filtered_log(self.state.log, self.filter.text)

    def move(self, delta: int) -> None:
        """Move by lines of the stream; at its end the panel follows again."""
        page = max(1, self.size.height - 1)
        self.anchor_seq = moved_anchor(self._log(), self.anchor_seq, delta, page)
        self.repaint()


class PlanPanel(Panel):
    """The plan that waits, scrolled by lines."""

    has_filter = False

    def __init__(self, appearance: Appearance, *, id: str) -> None:  # noqa: A002 (Textual's name)
        super().__init__(appearance, id=id)
        self._plan: tuple[str, int] | None = None
        self._top = 0

    def draw(self) -> list[Line]:
        """Return the heading and as much of the plan as fits."""
        plan = self.state.pending
        if plan is None:
            return []
        if self._plan != (plan.id, plan.revision):
            self._plan, self._top = (plan.id, plan.revision), 0
        lines = plan_lines(self.state, plan, self.size.width, self.appearance.glyphs)
        rows = self.size.height - 1
        self._top = min(max(0, self._top), max(0, len(lines) - rows))
        window = lines[self._top : self._top + rows]
        note = ""
        if len(lines) > rows:
            note = f"{self._top + 1}-{self._top + len(window)} of {len(lines)}"
        return [self.headed(plan_heading(self.state, plan, self.appearance.glyphs), note), *window]

    def move(self, delta: int) -> None:
        """Scroll."""
        self._top = max(0, self._top + delta)
        self.repaint()
