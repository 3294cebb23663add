"""Dialogs that decide on a plan. Each is bound to the plan's id and revision at its opening.

If the plan changes or is decided in the meantime, the dialog freezes and says so. It never shows
another plan under the same keys.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from textual import events

from console.dialogs.frame import Dialog, QuestionDialog
from console.viewmodel.console_state import State, why_not_current
from console.viewmodel.dialog_frame import DialogContent, TextField, choice_line
from console.viewmodel.drawing.text import Line, Tone, span, wrap
from console.viewmodel.panels.plan_panel import change_lines, plan_lines
from console.widgets.appearance import Appearance
from controller.api.views import PlanState, PlanView

_AFTER_REJECTION: Final = (
    "The tasks stay as they are until the cluster changes, or you ask for a plan (P)."
)


def why_changed(state: State, plan: PlanView) -> str:
    """Return how ``plan`` has changed since the dialog opened, or an empty string."""
    now = next((one for one in state.view.plans if one.id == plan.id), None) if state.view else None
    if now is None:
        return f"{plan.id} no longer exists"
    if now.state is not PlanState.PENDING:
        by = f" by {now.approved_by}" if now.approved_by else ""
        return f"{plan.id} was {now.state}{by}"
    if now.revision != plan.revision:
        return f"{plan.id} r{now.revision} has replaced r{plan.revision}"
    return ""


class ApproveDialog(QuestionDialog[bool]):
    """Shows the effects of a plan and asks for ``y``, Enter. True: approve."""

    def __init__(
        self, appearance: Appearance, clock: Callable[[], float], state: State, plan: PlanView
    ) -> None:
        super().__init__(appearance, clock, state)
        self._plan = plan

    def why_frozen(self) -> str:
        """Freeze when the plan changed or the data is old."""
        return why_changed(self.state, self._plan) or why_not_current(self.state)

    def accept(self) -> None:
        """Approve."""
        self.finish(True)

    def content(self) -> DialogContent:
        """Return the plan's effects and the question."""
        plan, frozen = self._plan, self.why_frozen()
        cluster = self.state.view.cluster if self.state.view else ""
        paused = sum(1 for change in plan.changes if change.moves or change.is_faulted)
        foot = choice_line(
            (("Cancel", not self.is_yes), ("Approve", self.is_yes)),
            "esc closes"
            if frozen
            else "y, then Enter approves"
            if not self.is_yes
            else "Enter approves",
            self.glyphs,
        )
        summary = f"{plan.id} revision {plan.revision} stops and starts {paused} of "
        return DialogContent(
            title=f"Approve plan {plan.id} r{plan.revision} on {cluster}?",
            body=[
                Line((span(f"  {summary}{len(plan.changes)} tasks", Tone.STRONG),)),
                *plan_lines(self.state, plan, self.text_width, self.glyphs),
            ],
            foot=[foot],
            banner=f"{frozen}: close and review" if frozen else "",
        )


class Rejection(NamedTuple):
    """What an operator wants in place of a plan.

    Attributes:
        reason: Why it is rejected; may be empty.
        opens_what_if: Whether the operator then looks for another division.
    """

    reason: str
    opens_what_if: bool


class RejectDialog(Dialog[Rejection]):
    """Asks why a plan is rejected, and what comes next."""

    def __init__(
        self, appearance: Appearance, clock: Callable[[], float], state: State, plan: PlanView
    ) -> None:
        super().__init__(appearance, clock, state)
        self._plan = plan
        self._reason = TextField()
        self._opens_what_if = False

    def why_frozen(self) -> str:
        """Freeze when the plan changed or the data is old."""
        return why_changed(self.state, self._plan) or why_not_current(self.state)

    def content(self) -> DialogContent:
        """Return the changes of the plan and the field for the reason."""
        plan, view, frozen = self._plan, self.state.view, self.why_frozen()
        changes = change_lines(view, plan, self.text_width, self.glyphs) if view else []
        hint = (
            "esc closes"
            if frozen
            else "Enter rejects, tab changes what is next, esc keeps it waiting"
        )
        following = "ask the planner what if" if self._opens_what_if else "nothing"
        text = f"{_AFTER_REJECTION} Why do you reject the plan? (may be empty)"
        question = [
            Line((span(f"  {each}"),))
            for each in wrap(text, self.text_width - 4, 4, self.glyphs.ellipsis)
        ]
        return DialogContent(
            title=f"Reject plan {plan.id} r{plan.revision}",
            body=[
                *changes,
                Line(),
                *question,
                Line(),
                self._reason.line("  reason", self.text_width),
                Line((span("  next   ", Tone.DIM), span(following))),
            ],
            foot=[Line((span(f"  {hint}", Tone.DIM),))],
            banner=f"{frozen}: close and review" if frozen else "",
            cursor=len(changes) + len(question) + 2,
        )

    def pressed(self, key: str, character: str | None) -> None:
        """Edit the reason or reject."""
        if key == "enter":
            rejection = Rejection(self._reason.text.strip(), self._opens_what_if)
            self.finish(None if self.why_frozen() else rejection)
        elif key == "tab":
            self._opens_what_if = not self._opens_what_if
        else:
            self._reason = self._reason.pressed(key, character)

    def on_paste(self, event: events.Paste) -> None:
        """Take a pasted reason; it can't contain an Enter."""
        event.stop()
        self._reason = self._reason.typed(event.text)
        self.redraw()
