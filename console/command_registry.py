"""The registry of all operator commands.

Bindings, key bar, help, palette and the table in ``docs/console.md`` are made from ``COMMANDS``.
``enabled`` says whether a command can run in a state, or gives the reason why not. ``run`` calls
the app through the ``Operator`` protocol. Nothing here imports Textual.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, Protocol

from console.viewmodel.console_state import State, why_not_current
from console.viewmodel.details.detail import DetailSubject
from console.viewmodel.panels.key_bar import KeyHint
from console.viewmodel.verbs import VERB_BY_ID, VERBS

Enabled = Literal[True] | str
"""True, or the reason why not."""


class Danger(StrEnum):
    """Effect on the cluster: none, a change on request (low), or a possible outage (high)."""

    NONE = "none"
    LOW = "low"
    HIGH = "high"


class Operator(Protocol):
    """The calls that commands make."""

    def approve(self) -> None:
        """Ask for the approval of the waiting plan."""

    def reject(self) -> None:
        """Ask for the reason to reject the waiting plan."""

    def declare_lost(self) -> None:
        """Ask whether an unreachable node is lost."""

    def wait(self) -> None:
        """Answer that an unreachable node is not lost."""

    def propose(self) -> None:
        """Request a plan for the present state."""

    def order(self, verb_id: str) -> None:
        """Ask whether to carry out a verb on what is selected."""

    def drill(self) -> None:
        """Open the drill menu. It proposes the node or task that is selected on the overview."""

    def toggle_mode(self) -> None:
        """Switch between view mode and armed."""

    def move_playback(self, move: Mapping[str, object]) -> None:
        """Show another instant of the past: the fields of ``MovePlayback``."""

    def toggle_playback(self) -> None:
        """Let time pass, or stop it."""

    def change_speed(self, *, is_faster: bool) -> None:
        """Let time pass faster or slower."""

    def ask_moment(self) -> None:
        """Ask for an instant, and go there."""

    def compare_instants(self) -> None:
        """Mark this instant, or show what has changed since the marked one."""

    def swap_plan(self) -> None:
        """Swap plan and incidents in a small terminal."""

    def show_transition(self) -> None:
        """Show the transition steps of the selected task, or of every task."""

    def open_selected(self) -> None:
        """Open a screen about the selected row, or about the plan that waits."""

    def open_incident(self) -> None:
        """Open the newest incident that is not cured, else the newest."""

    def open_logs(self) -> None:
        """Show the logs of the selected task, or of the ranks on the selected node."""

    def filter_rows(self) -> None:
        """Type a filter for the focused list."""

    def ask_what_if(self) -> None:
        """Ask the planner what it would do if something were different."""

    def sort_rows(self, delta: int) -> None:
        """Sort the focused list by the next column, or the one before."""

    def reverse_rows(self) -> None:
        """Sort the focused list from the other end."""

    def go_to(self) -> None:
        """Go to something by its name, or order something for it."""

    def export_incident(self) -> None:
        """Write the post-mortem of an incident into a new file."""

    def show_activities(self) -> None:
        """Show the orders of the operator, each with its outcome."""

    def show_help(self) -> None:
        """Show all commands."""

    def show_palette(self) -> None:
        """Search the commands by name."""

    def suspend(self) -> None:
        """Give the terminal back to the shell until ``fg``."""

    def leave(self) -> None:
        """Quit, after a question if a demo ends with the console."""

    def focus_panel(self, delta: int) -> None:
        """Go to another panel."""

    def move(self, delta: int) -> None:
        """Move in the focused panel by rows."""

    def page(self, delta: int) -> None:
        """Move in the focused panel by pages."""

    def jump(self, *, to_end: bool) -> None:
        """Go to the first or the last row of the focused panel."""


@dataclass(frozen=True, slots=True)
class OperatorCommand:
    """One thing an operator can do.

    Attributes:
        id: Stable name, also the name of its key in a keymap.
        title: Description for help and palette.
        label: One or two words for the key bar. A command without a label is not on the bar.
        key: Keys that run the command, separated by commas, as Textual names them.
        scope: Heading in the help.
        danger: Effect on the cluster.
        enabled: Returns True, or the reason why the command cannot run in a state.
        run: Runs the command.
    """

    id: str
    title: str
    label: str
    key: str
    scope: str
    danger: Danger
    enabled: Callable[[State], Enabled]
    run: Callable[[Operator], None]


_VIEW_ONLY: Final = "this console is view only"


def always(_: State) -> Enabled:
    """Allow a command that changes nothing in the cluster."""
    return True


def can_act(state: State) -> Enabled:
    """Allow actions on current data in an armed console."""
    if state.is_view_only:
        return _VIEW_ONLY
    if reason := why_not_current(state):
        return reason
    return True if state.is_armed else "view mode, ctrl+t allows actions"


def can_decide(state: State) -> Enabled:
    """Allow decisions while a plan waits."""
    if state.pending is None:
        return "no plan waits"
    return can_act(state)


def can_decide_loss(state: State) -> Enabled:
    """Allow a decision while a node is unreachable."""
    if not state.out_of_contact:
        return "no node is unreachable"
    return can_act(state)


def can_propose(state: State) -> Enabled:
    """Allow a request for a plan while none waits."""
    if state.pending is not None:
        return f"{state.pending.id} already waits for a decision"
    return can_act(state)


def can_drill(state: State) -> Enabled:
    """Allow drills where the cluster offers any."""
    if state.view is not None and not state.view.drills:
        return "this cluster offers no drills"
    return can_act(state)


def can_switch_mode(state: State) -> Enabled:
    """Allow armed mode on current data, and view mode always."""
    if state.is_view_only:
        return _VIEW_ONLY
    return True if state.is_armed else why_not_current(state) or True


def can_suspend(state: State) -> Enabled:
    """Allow to give the terminal back, where there is one."""
    return "there is no shell in a browser" if state.is_in_browser else True


def can_ask_planner(state: State) -> Enabled:
    """Allow questions about a cluster as it is, or as it was at the instant of a playback."""
    if state.playback is not None:
        return True if state.is_live else "the playback does not answer"
    return why_not_current(state) or True


def is_past(state: State) -> Enabled:
    """Allow what moves a playback."""
    if state.playback is None:
        return "this is no playback"
    return True if state.is_live else "the playback does not answer"


def has_pending(state: State) -> Enabled:
    """Allow a command that needs a waiting plan."""
    return True if state.pending is not None else "no plan waits"


def has_incident(state: State) -> Enabled:
    """Allow to open an incident if there is one."""
    return True if state.view is not None and state.view.incidents else "there is no incident"


def can_export(state: State) -> Enabled:
    """Allow to write about an incident where the console has a disk of the operator's."""
    if state.is_in_browser:
        return "a console in a browser writes no files"
    if not state.is_live:
        return why_not_current(state)
    return has_incident(state)


def can_defer(state: State) -> Enabled:
    """Allow to hold a plan that counts down."""
    if state.pending is None or state.pending.apply_at is None:
        return "no plan counts down"
    return can_act(state)


def can_resume(state: State) -> Enabled:
    """Allow to end a storm."""
    if state.view is None or not state.view.automation_stopped:
        return "policy applies plans already"
    return can_act(state)


_DECIDE, _RUN, _PAST, _MOVE, _APP = "Decide", "Act", "Playback", "Move", "Console"
_MINUTE_S: Final = 60.0
_NONE, _LOW, _HIGH = Danger.NONE, Danger.LOW, Danger.HIGH


def _verb(
    verb_id: str, title: str, label: str, key: str, enabled: Callable[[State], Enabled] = can_act
) -> OperatorCommand:
    danger = Danger.HIGH if VERB_BY_ID[verb_id].is_high else Danger.LOW
    return OperatorCommand(
        verb_id, title, label, key, _RUN, danger, enabled, lambda operator: operator.order(verb_id)
    )


COMMANDS: Final = (
    OperatorCommand(
        "plan.approve", "Approve the waiting plan", "approve",
        "A", _DECIDE, _HIGH, can_decide, lambda operator: operator.approve(),
    ),
    OperatorCommand(
        "plan.reject", "Reject the waiting plan", "reject",
        "X", _DECIDE, _LOW, can_decide, lambda operator: operator.reject(),
    ),
    OperatorCommand(
        "node.lost", "Declare the asked-about or selected node lost", "lost",
        "L", _DECIDE, _HIGH, can_decide_loss, lambda operator: operator.declare_lost(),
    ),
    OperatorCommand(
        "node.wait", "Wait for that node, do not declare it lost", "wait",
        "W", _DECIDE, _LOW, can_decide_loss, lambda operator: operator.wait(),
    ),
    _verb("plan.defer", "Hold the plan that counts down for some minutes", "hold", "H", can_defer),
    OperatorCommand(
        "plan.propose", "Request a plan for the present state", "plan",
        "P", _RUN, _LOW, can_propose, lambda operator: operator.propose(),
    ),
    _verb("node.cordon", "Cordon the selected node: nothing new is placed there", "cordon", "C"),
    _verb("node.drain", "Drain the selected node: a plan moves its tasks elsewhere", "drain", "D"),
    _verb("node.isolate", "Isolate the selected node: its ranks are ended at once", "isolate", "Z"),
    _verb("node.repair", "Put the selected node under repair", "repair", "R"),
    _verb("node.return", "Return the selected node to service", "return", "U"),
    _verb("task.stop", "Stop the selected task with a checkpoint", "stop", "S"),
    _verb("task.start", "Start the selected task again, or try a held one again", "start", "B"),
    _verb("task.weight", "Give the selected task another weight", "weight", "E"),
    _verb("cluster.submit", "Submit a file of tasks", "", "N"),
    _verb(
        "cluster.automation", "Let policy apply plans again after a storm", "resume", "O", can_resume
    ),
    OperatorCommand(
        "drill.menu", "Run a drill: inject a fault on purpose", "drill",
        "I", _RUN, _HIGH, can_drill, lambda operator: operator.drill(),
    ),
    OperatorCommand(
        "app.mode", "Allow actions for ten minutes (armed), or go back to view mode", "arm",
        "ctrl+t", _RUN, _NONE, can_switch_mode, lambda operator: operator.toggle_mode(),
    ),
    OperatorCommand(
        "playback.toggle", "Let the time of a playback pass, or stop it", "play",
        "p", _PAST, _NONE, is_past, lambda operator: operator.toggle_playback(),
    ),
    OperatorCommand(
        "playback.previous_incident", "Previous incident of a playback", "",
        "left_curly_bracket", _PAST, _NONE, is_past,
        lambda operator: operator.move_playback({"step": "incident", "is_back": True}),
    ),
    OperatorCommand(
        "playback.next_incident", "Next incident of a playback", "next",
        "right_curly_bracket", _PAST, _NONE, is_past,
        lambda operator: operator.move_playback({"step": "incident"}),
    ),
    OperatorCommand(
        "playback.previous_line", "Previous line of the events of a playback", "",
        "comma", _PAST, _NONE, is_past,
        lambda operator: operator.move_playback({"step": "line", "is_back": True}),
    ),
    OperatorCommand(
        "playback.next_line", "Next line of the events of a playback", "event",
        "full_stop", _PAST, _NONE, is_past, lambda operator: operator.move_playback({"step": "line"}),
    ),
    OperatorCommand(
        "playback.earlier", "A minute back in a playback", "",
        "left", _PAST, _NONE, is_past, lambda operator: operator.move_playback({"by_s": -_MINUTE_S}),
    ),
    OperatorCommand(
        "playback.later", "A minute on in a playback", "",
        "right", _PAST, _NONE, is_past, lambda operator: operator.move_playback({"by_s": _MINUTE_S}),
    ),
    OperatorCommand(
        "playback.slower", "Let the time of a playback pass slower", "",
        "left_parenthesis", _PAST, _NONE, is_past,
        lambda operator: operator.change_speed(is_faster=False),
    ),
    OperatorCommand(
        "playback.faster", "Let the time of a playback pass faster", "faster",
        "right_parenthesis", _PAST, _NONE, is_past,
        lambda operator: operator.change_speed(is_faster=True),
    ),
    OperatorCommand(
        "playback.moment", "Go to an incident or a time of a playback", "go to",
        "at", _PAST, _NONE, is_past, lambda operator: operator.ask_moment(),
    ),
    OperatorCommand(
        "playback.compare", "Mark this instant of a playback; again: what has changed since", "compare",
        "equals_sign", _PAST, _NONE, is_past, lambda operator: operator.compare_instants(),
    ),
    OperatorCommand(
        "plan.swap", "Swap plan and incidents in a small terminal", "incidents",
        "v", _MOVE, _NONE, has_pending, lambda operator: operator.swap_plan(),
    ),
    OperatorCommand(
        "task.transition", "Show the transition steps of the selected task, or of all tasks", "steps",
        "t", _MOVE, _NONE, always, lambda operator: operator.show_transition(),
    ),
    OperatorCommand(
        "panel.open", "Open the selected node, task or incident, or the waiting plan", "open",
        "enter", _MOVE, _NONE, always, lambda operator: operator.open_selected(),
    ),
    OperatorCommand(
        "incident.newest", "Open the newest incident that is not cured, or else the newest", "incident",
        "i", _MOVE, _NONE, has_incident, lambda operator: operator.open_incident(),
    ),
    OperatorCommand(
        "incident.export", "Write the post-mortem of the selected or newest incident into a file", "export",
        "e", _MOVE, _NONE, can_export, lambda operator: operator.export_incident(),
    ),
    OperatorCommand(
        "panel.logs", "Logs of the selected task, node or incident, by time; F there: first faults", "logs",
        "l", _MOVE, _NONE, always, lambda operator: operator.open_logs(),
    ),
    OperatorCommand(
        "plan.what_if", "What the planner would do if the selected node were lost, or anything else", "",
        "w", _MOVE, _NONE, can_ask_planner, lambda operator: operator.ask_what_if(),
    ),
    OperatorCommand(
        "panel.filter", "Filter the list: words that a row has, or has not (!word); esc clears", "filter",
        "slash", _MOVE, _NONE, always, lambda operator: operator.filter_rows(),
    ),
    OperatorCommand(
        "panel.sort", "Sort the list by the next column", "",
        "greater_than_sign", _MOVE, _NONE, always, lambda operator: operator.sort_rows(1),
    ),
    OperatorCommand(
        "panel.sort_before", "Sort the list by the column before", "",
        "less_than_sign", _MOVE, _NONE, always, lambda operator: operator.sort_rows(-1),
    ),
    OperatorCommand(
        "panel.reverse", "Sort the list from the other end", "",
        "r", _MOVE, _NONE, always, lambda operator: operator.reverse_rows(),
    ),
    OperatorCommand(
        "panel.next", "Next panel", "panel",
        "tab", _MOVE, _NONE, always, lambda operator: operator.focus_panel(1),
    ),
    OperatorCommand(
        "panel.previous", "Previous panel", "",
        "shift+tab", _MOVE, _NONE, always, lambda operator: operator.focus_panel(-1),
    ),
    OperatorCommand(
        "panel.up", "One row up", "",
        "up,k", _MOVE, _NONE, always, lambda operator: operator.move(-1),
    ),
    OperatorCommand(
        "panel.down", "One row down", "",
        "down,j", _MOVE, _NONE, always, lambda operator: operator.move(1),
    ),
    OperatorCommand(
        "panel.page_up", "One page up", "",
        "pageup", _MOVE, _NONE, always, lambda operator: operator.page(-1),
    ),
    OperatorCommand(
        "panel.page_down", "One page down", "",
        "pagedown", _MOVE, _NONE, always, lambda operator: operator.page(1),
    ),
    OperatorCommand(
        "panel.home", "First row", "",
        "home,g", _MOVE, _NONE, always, lambda operator: operator.jump(to_end=False),
    ),
    OperatorCommand(
        "panel.end", "Last row; the event list follows new events again", "",
        "end,G", _MOVE, _NONE, always, lambda operator: operator.jump(to_end=True),
    ),
    OperatorCommand(
        "app.go_to", "Go to a node, task, incident or plan by its name, or order something for it", "",
        "colon", _APP, _NONE, always, lambda operator: operator.go_to(),
    ),
    OperatorCommand(
        "app.palette", "Search the commands by name", "",
        "ctrl+p", _APP, _NONE, always, lambda operator: operator.show_palette(),
    ),
    OperatorCommand(
        "app.activities", "Your orders since this console began, and what became of each", "",
        "a", _APP, _NONE, always, lambda operator: operator.show_activities(),
    ),
    OperatorCommand(
        "app.help", "Help: all keys and signs", "help",
        "question_mark", _APP, _NONE, always, lambda operator: operator.show_help(),
    ),
    OperatorCommand(
        "app.suspend", "Back to the shell; its fg returns here", "",
        "ctrl+z", _APP, _NONE, can_suspend, lambda operator: operator.suspend(),
    ),
    OperatorCommand(
        "app.quit", "Quit", "quit",
        "q,ctrl+q,ctrl+c", _APP, _NONE, always, lambda operator: operator.leave(),
    ),
)  # fmt: skip

_OF_PLAYBACK: Final = frozenset(each.id for each in COMMANDS if each.scope == _PAST)
_ON_DETAILS: Final = (
    frozenset(
        {
            "app.activities",
            "app.go_to",
            "app.mode",
            "app.help",
            "app.palette",
            "app.quit",
            "app.suspend",
            "panel.logs",
            "plan.what_if",
        }
    )
    | _OF_PLAYBACK
)
_ON_PLANS: Final = frozenset({"plan.approve", "plan.reject", "plan.defer"})
_ON_LOST: Final = frozenset({"node.lost", "node.wait"})
_ON_NODES: Final = frozenset(verb.id for verb in VERBS if verb.subject == "node")
_ON_TASKS: Final = frozenset(verb.id for verb in VERBS if verb.subject == "task")
_CHANGES: Final = (can_act, can_decide, can_propose, can_drill, can_switch_mode)
"""What allows to change a cluster. In a playback it never does."""
COMMAND_BY_ID: Final = {command.id: command for command in COMMANDS}


def hint(command: OperatorCommand, state: State) -> KeyHint:
    """Return ``command`` for key bar and help in ``state``."""
    enabled = command.enabled(state)
    label, title = command.label, command.title
    if command.id == "app.mode" and state.is_armed:
        label = "disarm"
    if command.id == "playback.toggle" and state.playback and state.playback.is_playing:
        label = "pause"
    if command.id == "playback.compare" and state.compared is None:
        label = "mark"
    if command.id == "app.quit" and state.owns_demo:
        title = "Quit; this ends the demo"
    reason = "" if enabled is True else enabled
    return KeyHint(command.id, command.key, label, title, command.scope, reason)


def bar_hints(state: State, subject: DetailSubject | None = None) -> list[KeyHint]:
    """Return the key bar's commands, without those for what is not there or not selected.

    Args:
        state: The state.
        subject: The selection. Its verbs are on the bar that can be ordered now.
    """
    pointless = [
        enabled
        for enabled, is_pointless in (
            (has_pending, state.pending is None),
            (can_decide_loss, not state.out_of_contact),
            (can_defer, state.pending is None or state.pending.apply_at is None),
            (can_resume, state.view is None or not state.view.automation_stopped),
            (is_past, state.playback is None),
            (has_incident, state.view is None or not state.view.incidents),
            *((each, state.playback is not None or state.is_view_only) for each in _CHANGES),
        )
        if is_pointless
    ]
    return [
        hint(command, state)
        for command in COMMANDS
        if command.label and command.enabled not in pointless and _is_of(command, state, subject)
    ]


def _is_of(command: OperatorCommand, state: State, subject: DetailSubject | None) -> bool:
    """Whether a command is no verb about a thing, or one that can be ordered for the selection."""
    verb = VERB_BY_ID.get(command.id)
    if command.id == "incident.export":
        return subject is not None and subject.kind == "incident"
    if verb is None or verb.subject not in ("node", "task"):
        return True
    if subject is None or subject.kind != verb.subject or state.view is None:
        return False
    return not verb.why_not(state.view, subject.name)


def detail_hints(state: State, subject: DetailSubject) -> list[KeyHint]:
    """Return the key bar of a screen about a task, node, incident or plan."""
    here = [
        KeyHint("", "escape", "back", "", ""),
        KeyHint("", "up", "", "", ""),
        KeyHint("", "down", "scroll", "", ""),
    ]
    hints = bar_hints(state, subject)
    allowed = [each for each in hints if is_allowed_on(state, subject, each.id)]
    return [*here, *allowed]


def is_allowed_on(state: State, subject: DetailSubject, command_id: str) -> bool:
    """Whether a command may run on the screen about a subject: only if it would be about that."""
    if command_id in _ON_DETAILS:
        return True
    pending = state.pending
    match subject.kind:
        case "plan" | "incident":
            if command_id == "incident.export":
                return subject.kind == "incident"
            shown = subject.name
            is_its_plan = pending is not None and shown in {pending.id, pending.trigger}
            return is_its_plan and command_id in _ON_PLANS
        case "node":
            is_away = any(node.node == subject.name for node in state.out_of_contact)
            return command_id in _ON_NODES or (is_away and command_id in _ON_LOST)
        case "task":
            return command_id in _ON_TASKS


def help_hints(state: State) -> list[KeyHint]:
    """Return all commands in the registry's order; those of a playback only in one."""
    return [
        hint(command, state)
        for command in COMMANDS
        if command.enabled is not is_past or state.playback is not None
    ]
