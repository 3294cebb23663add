"""Help, transitions, and the question before a demo ends."""

from collections.abc import Callable, Sequence

from console.dialogs.frame import QuestionDialog, ReadingDialog
from console.viewmodel.console_state import State, why_not_current
from console.viewmodel.dialog_frame import DialogContent, choice_line
from console.viewmodel.drawing.numbers import plural
from console.viewmodel.drawing.text import Line, span
from console.viewmodel.panels.key_bar import KeyHint, help_lines, legend_lines, with_keys
from console.viewmodel.panels.status_bar import activity_lines
from console.viewmodel.panels.transition_steps import transition_lines
from console.widgets.appearance import Appearance


class HelpDialog(ReadingDialog):
    """All commands with their keys, and the meaning of the signs."""

    def __init__(
        self,
        appearance: Appearance,
        clock: Callable[[], float],
        state: State,
        hints: Callable[[State], Sequence[KeyHint]],
    ) -> None:
        super().__init__(appearance, clock, state)
        self._hints = hints

    def content(self) -> DialogContent:
        """Return commands and legend."""
        return DialogContent(
            title="Help",
            body=[
                *help_lines(
                    with_keys(self._hints(self.state), self.appearance.keys),
                    self.text_width,
                    self.glyphs,
                ),
                Line(),
                *legend_lines(self.glyphs),
            ],
            foot=[self.foot],
        )


class TransitionDialog(ReadingDialog):
    """The transition steps of a task, or of every task, updated while they run."""

    def __init__(
        self, appearance: Appearance, clock: Callable[[], float], state: State, task: str | None
    ) -> None:
        super().__init__(appearance, clock, state)
        self._task_name = task

    def content(self) -> DialogContent:
        """Return the steps as they are now."""
        return DialogContent(
            title=f"Transition of {self._task_name}" if self._task_name else "Transitions",
            body=transition_lines(self.state, self._task_name, self.text_width, self.glyphs),
            foot=[self.foot],
            banner=why_not_current(self.state),
        )


class ActivityDialog(ReadingDialog):
    """The orders of the operator, each with its outcome."""

    def content(self) -> DialogContent:
        """Return the orders as they are now."""
        return DialogContent(
            title="Your orders since this console began",
            body=activity_lines(self.state, self.text_width, self.glyphs),
            foot=[self.foot],
            banner=why_not_current(self.state),
        )


class QuitDialog(QuestionDialog[bool]):
    """Asks before a demo that this console owns is ended. True: quit."""

    def why_frozen(self) -> str:
        """Never freeze: leaving is always allowed."""
        return ""

    def accept(self) -> None:
        """Quit."""
        self.finish(True)

    def content(self) -> DialogContent:
        """Return the consequences and the question."""
        view = self.state.view
        tasks = plural(len(view.tasks), "task") if view else "all tasks"
        nodes = plural(len(view.nodes), "node") if view else "all nodes"
        hint = "Enter quits" if self.is_yes else "y, then Enter quits"
        return DialogContent(
            title="Quit ends the demo",
            body=[
                Line((span("This console started the demo. The demo ends with the console:"),)),
                Line((span(f"{tasks} and {nodes} stop, and nothing is kept."),)),
            ],
            foot=[
                choice_line((("Cancel", not self.is_yes), ("Quit", self.is_yes)), hint, self.glyphs)
            ],
        )

    def pressed(self, key: str, character: str | None) -> None:
        """Take a second ``q`` like ``y``: q, q, Enter leaves."""
        super().pressed("y" if key == "q" else key, character)
