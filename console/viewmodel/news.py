"""What has changed between two states, in words: for plain output, and to call for attention."""

from typing import Final, Literal

from console.viewmodel.console_state import LinkPhase, State
from console.viewmodel.drawing.numbers import clock, plural, share
from console.viewmodel.drawing.text import clean
from console.viewmodel.panels.alerts_panel import alerts_of
from console.viewmodel.words import LEVEL_WORDS
from controller.alerts.alert import Alert
from controller.api.views import LogLine, NodeCondition, TaskPhase

Attention = Literal["none", "bell", "osc9", "osc777"]
MOST_OLD_LINES: Final = 10
"""Events from before the connection that are printed, the newest."""


def new_alerts(before: State, after: State) -> list[Alert]:
    """Return the alerts that were not there, the most urgent first. Those at first are no news."""
    if before.view is None or before.view is after.view or after.playback is not None:
        return []
    known = {alert.key for alert in alerts_of(before)}
    return [alert for alert in alerts_of(after) if alert.key not in known]


def plain_news(before: State, after: State) -> list[str]:
    """Return what has changed as lines of text, oldest first."""
    lines = [*_link(before, after), *_events(before, after)]
    if after.view is not None and before.view is None:
        lines.append(summary(after))
        lines += [_alert(alert) for alert in alerts_of(after)]
    elif after.view is not before.view:
        lines += [_alert(alert) for alert in new_alerts(before, after)]
        still = {alert.key for alert in alerts_of(after)}
        lines += [f"over: {alert.title}" for alert in alerts_of(before) if alert.key not in still]
        if _waf(before) != _waf(after):
            lines.append(summary(after))
    return [clean(line) for line in lines]


def summary(state: State) -> str:
    """Return the state of the cluster in one line."""
    view = state.view
    if view is None:
        return "no view yet"
    healthy = sum(node.condition is NodeCondition.HEALTHY for node in view.nodes)
    running = sum(task.phase is TaskPhase.RUNNING for task in view.tasks)
    return (
        f"{clock(view.started_wall_s + view.now)} {view.cluster}:"
        f" {healthy} of {plural(len(view.nodes), 'node')} healthy,"
        f" {running} of {plural(len(view.tasks), 'task')} running, WAF {_waf(state)} of full"
    )


def _waf(state: State) -> str:
    """Return the WAF in steps of ten per cent: less is no news."""
    view = state.view
    if view is None or view.waf_full <= 0:
        return "none"
    return share(round(view.waf / view.waf_full, 1), 1.0, "none")


def _link(before: State, after: State) -> list[str]:
    link = after.link
    if link.phase is before.link.phase:
        return []
    if link.phase is LinkPhase.LIVE:
        return ["connected"]
    return [f"{link.phase.value}: {link.reason}"] if link.reason else []


def _events(before: State, after: State) -> list[str]:
    view, lines = after.view, after.log.lines
    if view is None or lines is before.log.lines:
        return []
    newest = before.log.lines[-1].seq if before.log.lines else None
    if newest is None:
        fresh = lines[-MOST_OLD_LINES:]
    else:
        fresh = tuple(line for line in lines if line.seq > newest)
    return [_event(line, view.started_wall_s) for line in fresh]


def _event(line: LogLine, started_wall_s: float) -> str:
    return (
        f"{clock(started_wall_s + line.at)} {LEVEL_WORDS[line.level][1]} {line.source}: {line.text}"
    )


def _alert(alert: Alert) -> str:
    command = f" In a shell: {alert.commands[0]}" if alert.commands else ""
    return f"ALERT {alert.severity}: {alert.title}.{command}"


def attention_sequence(how: Attention, text: str) -> str:
    """Return what makes a terminal ring, or show a message: BEL, OSC 9 (iTerm2) or OSC 777 (rxvt).

    The text is of nodes and ranks, so no control character of it is left.
    """
    plain = clean(text).replace(";", ",")
    match how:
        case "none":
            return ""
        case "bell":
            return "\a"
        case "osc9":
            return f"\x1b]9;Unicron: {plain}\a"
        case "osc777":
            return f"\x1b]777;notify;Unicron;{plain}\a"
