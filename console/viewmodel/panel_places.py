"""Where the overview's panels go in a terminal of a given size.

Wide terminals put incidents and plan beside the event stream; narrow terminals stack them. In a low
terminal a waiting plan takes the place of the incidents. The console needs at least ``LEAST_WIDTH``
by ``LEAST_HEIGHT``.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

LEAST_WIDTH: Final = 60
LEAST_HEIGHT: Final = 16
WIDE: Final = 190
CHARTED: Final = (150, 36)
"""Least columns and rows of a terminal with charts beside nodes and tasks."""
_LEAST_CHARTS: Final = 9
_LEAST_SHARED: Final = 9
"""Rows that alerts and events need at least to stand together."""
ROOMY: Final = 32
"""From this height on, panels are set apart by a blank row."""


class PanelBox(NamedTuple):
    """A place on the terminal; a height of 0 hides the panel."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Need:
    """What there is to show, in rows without headings."""

    nodes: int
    tasks: int
    incidents: int
    plan: int
    """0 while no plan waits."""
    alerts: int = 0
    is_plan_first: bool = True
    """Which of plan and incidents is shown where only one of them fits."""
    is_activity_fresh: bool = False
    is_playback: bool = False


def is_too_small(width: int, height: int) -> bool:
    """Whether a terminal can't hold the overview."""
    return width < LEAST_WIDTH or height < LEAST_HEIGHT


def arrange(width: int, height: int, need: Need) -> dict[str, PanelBox]:
    """Return a box for each panel. Boxes never overlap and lie inside the terminal."""
    boxes = {"status": PanelBox(0, 0, width, 1), "keys": PanelBox(0, height - 1, width, 1)}
    bottom = height - 1
    for name in _footer(height, need):
        bottom -= 1
        boxes[name] = PanelBox(0, bottom, width, 1)
    gap = 1 if height >= ROOMY else 0
    top = 1
    body = bottom - top
    tasks = min(1 + need.tasks, max(2, body // 4))
    nodes = min(1 + need.nodes, max(2, body * 2 // 5))
    is_charted = width >= CHARTED[0] and height >= CHARTED[1] and need.nodes > 0
    charts = width * 2 // 5 if is_charted else 0
    if is_charted:
        boxes |= _charts(PanelBox(width - charts, top, charts, nodes + gap + tasks))
    for name, rows in (("nodes", nodes), ("tasks", tasks)):
        boxes[name] = PanelBox(0, top, width - charts - is_charted, rows)
        top += rows + gap
    if is_charted:
        top = max(top, 1 + _LEAST_CHARTS + gap)
    lower = PanelBox(0, top, width, bottom - top)
    split = _beside if width >= WIDE else _stacked
    boxes |= split(lower, need, gap)
    return {name: boxes.get(name, PanelBox(0, 0, 0, 0)) for name in _PANELS}


def _charts(box: PanelBox) -> dict[str, PanelBox]:
    """The WAF's chart above the map of the fleet; the map gets what a tall chart does not need."""
    x, y, width, height = box
    height = max(height, _LEAST_CHARTS)
    trend = max(5, min(8, height // 2))
    return {
        "trend": PanelBox(x, y, width, trend),
        "fleet": PanelBox(x, y + trend, width, height - trend),
    }


_PANELS: Final = (
    "status",
    "nodes",
    "tasks",
    "trend",
    "fleet",
    "plan",
    "incidents",
    "alerts",
    "events",
    "decision",
    "activity",
    "keys",
)


def _footer(height: int, need: Need) -> tuple[str, ...]:
    if height >= 20:
        return ("activity", "decision")
    is_decision_first = need.is_playback or need.plan > 0
    return ("decision",) if is_decision_first and not need.is_activity_fresh else ("activity",)


def shares_space(width: int, height: int, need: Need) -> bool:
    """Whether plan and incidents take turns at this size."""
    boxes = arrange(width, height, need)
    return need.plan > 0 and 0 in (boxes["plan"].height, boxes["incidents"].height)


def _beside(box: PanelBox, need: Need, gap: int) -> dict[str, PanelBox]:
    left = box.width * 56 // 100
    column = PanelBox(box.x, box.y, left, box.height)
    boxes = _plan_and_incidents(column, need, gap)
    right = PanelBox(box.x + left + 1, box.y, box.width - left - 1, box.height)
    boxes |= _alerts_and_events(right, need, gap)
    if not need.plan:
        boxes["incidents"] = column
    return boxes


def _stacked(box: PanelBox, need: Need, gap: int) -> dict[str, PanelBox]:
    """Events keep at least a third of the rows, except where that leaves a plan unreadable."""
    if need.plan and need.is_plan_first and box.height < 6:
        return _plan_and_incidents(box, need, gap)
    most = box.height * 2 // 3 if need.plan else box.height // 2
    upper = PanelBox(box.x, box.y, box.width, most)
    boxes = _plan_and_incidents(upper, need, gap)
    used = max((part.y + part.height for part in boxes.values() if part.height), default=box.y)
    top = used + gap
    rest = PanelBox(box.x, top, box.width, box.y + box.height - top)
    return boxes | _alerts_and_events(rest, need, gap)


def _alerts_and_events(box: PanelBox, need: Need, gap: int) -> dict[str, PanelBox]:
    """Alerts stand above the events where both have room, and take at most half of it."""
    rows = min(1 + need.alerts, box.height // 2)
    if not need.alerts or rows < 2 or box.height < _LEAST_SHARED:
        return {"events": box}
    x, y, width, height = box
    below = rows + gap
    return {
        "alerts": PanelBox(x, y, width, rows),
        "events": PanelBox(x, y + below, width, height - below),
    }


def _plan_and_incidents(box: PanelBox, need: Need, gap: int) -> dict[str, PanelBox]:
    x, y, width, height = box
    incidents = 1 + max(1, need.incidents)
    if not need.plan:
        return {"incidents": PanelBox(x, y, width, min(incidents, height))}
    plan = min(1 + need.plan, height)
    left = height - plan - gap
    if left >= 3:
        below = PanelBox(x, y + plan + gap, width, min(incidents, left))
        return {"plan": PanelBox(x, y, width, plan), "incidents": below}
    if height >= 13:
        # Both, at the price of the plan's last lines.
        plan = height - gap - 4
        return {
            "plan": PanelBox(x, y, width, plan),
            "incidents": PanelBox(x, y + plan + gap, width, 4),
        }
    if need.is_plan_first:
        return {"plan": PanelBox(x, y, width, plan)}
    return {"incidents": PanelBox(x, y, width, min(incidents, height))}
