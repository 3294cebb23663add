"""The one registry of what an operator can do.

Bindings, key bar, help and palette are all made from ``COMMANDS``, and so will the command line and
the cheat sheet. A command says by ``enabled`` whether it is to be had in a state, and if not why;
``run`` calls the operator's side of the app, which is only known by its protocol. Nothing here
imports Textual.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, Protocol

from console.viewmodel.console_state import State, why_not_current
from console.viewmodel.panels.key_bar import KeyHint

Enabled = Literal[True] | str
"""True, or the reason why not."""


class Danger(StrEnum):
    """What a command can do to the cluster: ``none``, change it on request, or break something."""

    NONE = "none"
    LOW = "low"
    HIGH = "high"


class Operator(Protocol):
    """What commands do; the app implements it."""

    def approve(self) -> None:
        """Ask for the approval of the plan that waits."""

    def reject(self) -> None:
        """Ask for the reason to reject the plan that waits."""

    def declare_lost(self) -> None:
        """Ask whether a node out of contact is lost."""

    def wait(self) -> None:
        """Say that a node out of contact is not lost, or not yet."""

    def propose(self) -> None:
        """Request a plan for the present state."""

    def drill(self) -> None:
        """Open the drill menu."""

    def toggle_mode(self) -> None:
        """Arm or disarm the console."""

    def swap_plan(self) -> None:
        """Show incidents instead of the plan where only one fits, or back."""

    def show_transition(self) -> None:
        """Show how the selected task, or every task, goes from one generation to the next."""

    def show_help(self) -> None:
        """Show all commands."""

    def show_palette(self) -> None:
        """Search the commands by name."""

    def leave(self) -> None:
        """Quit, after a question if that ends a demo."""

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
        title: What it does, for help and palette.
        label: The same in one or two words, for the key bar; empty keeps it off the bar.
        key: Keys that run it, separated by commas, as Textual names them.
        scope: Heading it stands under in the help.
        danger: What it can do to the cluster.
        enabled: Whether it is to be had in a state.
        run: Does it.
    """

    id: str
    title: str
    label: str
    key: str
    scope: str
    danger: Danger
    enabled: Callable[[State], Enabled]
    run: Callable[[Operator], None]


def always(_: State) -> Enabled:
    """Allow a command that changes nothing in the cluster."""
    return True


def can_act(state: State) -> Enabled:
    """Allow verbs on current data in an armed console."""
    if reason := why_not_current(state):
        return reason
    return True if state.is_armed else "view mode, ctrl+t allows actions"


def can_decide(state: State) -> Enabled:
    """Allow decisions while a plan waits."""
    if state.pending is None:
        return "no plan waits"
    return can_act(state)


def can_decide_loss(state: State) -> Enabled:
    """Allow a verdict while a node is out of contact."""
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
    """Allow arming on current data; disarming always."""
    return True if state.is_armed else why_not_current(state) or True


def has_pending(state: State) -> Enabled:
    """Allow what only makes sense while a plan waits."""
    return True if state.pending is not None else "no plan waits"


_DECIDE, _RUN, _MOVE, _APP = "Decide", "Act", "Move", "Console"
_NONE, _LOW, _HIGH = Danger.NONE, Danger.LOW, Danger.HIGH

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
        "node.lost", "Declare a node lost: the node in question, else the selected node", "lost",
        "L", _DECIDE, _HIGH, can_decide_loss, lambda operator: operator.declare_lost(),
    ),
    OperatorCommand(
        "node.wait", "Wait for that node: do not declare it lost", "wait",
        "W", _DECIDE, _LOW, can_decide_loss, lambda operator: operator.wait(),
    ),
    OperatorCommand(
        "plan.propose", "Request a plan for the present state", "plan",
        "P", _RUN, _LOW, can_propose, lambda operator: operator.propose(),
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
        "plan.swap", "Swap plan and incidents in a small terminal", "incidents",
        "v", _MOVE, _NONE, has_pending, lambda operator: operator.swap_plan(),
    ),
    OperatorCommand(
        "task.transition", "Show the transition steps of the selected task, or of all tasks", "steps",
        "t,enter", _MOVE, _NONE, always, lambda operator: operator.show_transition(),
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
        "app.palette", "Search the commands by name", "",
        "ctrl+p", _APP, _NONE, always, lambda operator: operator.show_palette(),
    ),
    OperatorCommand(
        "app.help", "Help: all keys and signs", "help",
        "question_mark", _APP, _NONE, always, lambda operator: operator.show_help(),
    ),
    OperatorCommand(
        "app.quit", "Quit", "quit",
        "q,ctrl+q,ctrl+c", _APP, _NONE, always, lambda operator: operator.leave(),
    ),
)  # fmt: skip

COMMAND_BY_ID: Final = {command.id: command for command in COMMANDS}


def hint(command: OperatorCommand, state: State) -> KeyHint:
    """Return ``command`` as key bar and help show it in ``state``."""
    enabled = command.enabled(state)
    label, title = command.label, command.title
    if command.id == "app.mode" and state.is_armed:
        label = "disarm"
    if command.id == "app.quit" and state.owns_demo:
        title = "Quit; this ends the demo"
    reason = "" if enabled is True else enabled
    return KeyHint(command.id, command.key, label, title, command.scope, reason)


def bar_hints(state: State) -> list[KeyHint]:
    """Return the key bar's commands, without those that nothing on screen is about."""
    pointless = []
    if state.pending is None:
        pointless.append(has_pending)
    if not state.out_of_contact:
        pointless.append(can_decide_loss)
    return [
        hint(command, state)
        for command in COMMANDS
        if command.label and command.enabled not in pointless
    ]


def help_hints(state: State) -> list[KeyHint]:
    """Return all commands, in the registry's order."""
    return [hint(command, state) for command in COMMANDS]
