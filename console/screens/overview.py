"""The main screen: nodes, tasks, incidents, events, and the plan that waits for the operator.

The screen owns no data. It gives every panel the state, and places the panels by
``viewmodel.panel_places.arrange``. Their sizes follow from the terminal and the number of rows.
"""

from collections.abc import Callable, Sequence

from textual.app import ComposeResult
from textual.widget import Widget
from typing_extensions import override

from console.screens.console_screen import ConsoleScreen
from console.viewmodel.console_state import State
from console.viewmodel.details.detail import DetailKind, DetailSubject, subject_of_alert
from console.viewmodel.panel_places import WIDE, Need, PanelBox, arrange, is_too_small, shares_space
from console.viewmodel.panels.alerts_panel import alert_table, alerts_of
from console.viewmodel.panels.fleet_panel import fleet_lines
from console.viewmodel.panels.incidents_panel import incident_table
from console.viewmodel.panels.key_bar import KeyHint, with_keys
from console.viewmodel.panels.nodes_panel import node_table
from console.viewmodel.panels.plan_panel import decision_line, plan_lines
from console.viewmodel.panels.status_bar import activity_line, status_line
from console.viewmodel.panels.tasks_panel import task_table
from console.viewmodel.panels.trend_panel import trend_lines
from console.widgets.appearance import Appearance
from console.widgets.bars import KeyBar, Picture, StateBar
from console.widgets.painted import Panel
from console.widgets.shows_state import ShowsState
from console.widgets.table_panels import TablePanel
from console.widgets.text_panels import EventPanel, PlanPanel

SelectionHints = Callable[[State, DetailSubject | None], Sequence[KeyHint]]

FRESH_S = 8.0
"""An action this recent is shown in preference to the decision line where only one fits."""


class Overview(ConsoleScreen):
    """Status, nodes, tasks, incidents, plan, events, and what can be done."""

    DEFAULT_CSS = """
    Overview { layers: base; }
    Overview > Painted { position: absolute; }
    """

    def __init__(self, appearance: Appearance, hints: SelectionHints) -> None:
        super().__init__()
        self._appearance = appearance
        self._hints_of = hints
        self._state = State()
        self._is_plan_first = True
        self._boxes: dict[str, PanelBox] = {}

    @override
    def allows(self, command_id: str) -> bool:
        return True

    @override
    def compose(self) -> ComposeResult:
        appearance = self._appearance
        yield StateBar(status_line, appearance, id="status")
        yield TablePanel(node_table, appearance, id="nodes")
        yield TablePanel(task_table, appearance, id="tasks")
        yield Picture(trend_lines, appearance, id="trend")
        yield Picture(fleet_lines, appearance, id="fleet")
        yield PlanPanel(appearance, id="plan")
        yield TablePanel(incident_table, appearance, id="incidents")
        yield TablePanel(alert_table, appearance, id="alerts")
        yield EventPanel(appearance, id="events")
        yield StateBar(decision_line, appearance, id="decision")
        yield StateBar(activity_line, appearance, id="activity")
        yield KeyBar(self._key_hints, appearance, id="keys")

    @override
    def show(self, state: State) -> None:
        self._state = state
        if not self.is_mounted or is_too_small(self.size.width, self.size.height):
            return
        self._place(arrange(self.size.width, self.size.height, self._need()))
        for widget in self.children:
            if isinstance(widget, ShowsState):
                widget.show(state)

    def swap_plan(self) -> None:
        """Swap plan and incidents in a small terminal."""
        if shares_space(self.size.width, self.size.height, self._need()):
            self._is_plan_first = not self._is_plan_first
            self.show(self._state)

    def _key_hints(self, state: State) -> Sequence[KeyHint]:
        return with_keys(self._hints_of(state, self.subject), self._appearance.keys)

    @property
    def subject(self) -> DetailSubject | None:
        """What the focus is on: a row, or the plan that waits."""
        panel, pending = self.panel, self._state.pending
        if panel is not None and panel.id == "plan":
            return DetailSubject("plan", pending.id) if pending else None
        chosen = panel.selected if isinstance(panel, TablePanel) else None
        if panel is None or chosen is None:
            return None
        return subject_of_alert(chosen) if panel.id == "alerts" else _subject(panel.id, chosen)

    @property
    def panel(self) -> Panel | None:
        """The panel that has the focus."""
        return self.focused if isinstance(self.focused, Panel) else None

    def on_mount(self) -> None:
        """Begin with the focus on the nodes."""
        self.query_one("#nodes").focus()

    def on_resize(self) -> None:
        """Place the panels anew."""
        self.show(self._state)

    def _need(self) -> Need:
        view, plan, activity = self._state.view, self._state.pending, self._state.activity
        # Its length depends on its width, which depends on the arrangement: half is near enough.
        width = self.size.width if self.size.width < WIDE else self.size.width * 56 // 100
        lines = plan_lines(self._state, plan, width, self._appearance.glyphs) if plan else []
        return Need(
            nodes=len(view.nodes) if view else 0,
            tasks=len(view.tasks) if view else 0,
            incidents=len(view.incidents) if view else 0,
            plan=len(lines),
            alerts=len(alerts_of(self._state)),
            is_plan_first=self._is_plan_first,
            is_playback=self._state.playback is not None,
            is_activity_fresh=activity is not None
            and self._state.now - activity.changed_at < FRESH_S,
        )

    def _place(self, boxes: dict[str, PanelBox]) -> None:
        if boxes == self._boxes:
            return
        self._boxes = boxes
        for name, box in boxes.items():
            _put(self.query_one(f"#{name}"), box)
        if self.focused is not None and not self.focused.display:
            self.query_one("#nodes").focus()


def _subject(panel: str | None, name: str) -> DetailSubject | None:
    kinds: dict[str | None, DetailKind] = {
        "nodes": "node", "tasks": "task", "incidents": "incident",
    }  # fmt: skip
    kind = kinds.get(panel)
    return DetailSubject(kind, name) if kind else None


def _put(widget: Widget, box: PanelBox) -> None:
    widget.display = box.height > 0 and box.width > 0
    widget.styles.offset = (box.x, box.y)
    widget.styles.width = max(1, box.width)
    widget.styles.height = max(1, box.height)
