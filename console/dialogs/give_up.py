"""Asks before a node out of contact is given up: its ranks may well be training."""

from collections.abc import Callable

from console.dialogs.frame import Question
from console.viewmodel.console_state import State, why_not_current
from console.viewmodel.dialog_frame import DialogContent, choice_line
from console.viewmodel.drawing.text import Line, Tone, span, wrap
from console.viewmodel.panels.nodes import tasks_on
from console.widgets.appearance import Appearance
from controller.api.views import NodeView


class GiveUpDialog(Question[bool]):
    """Says what is known of the node and what its loss would mean. True: it is lost."""

    def __init__(
        self, appearance: Appearance, clock: Callable[[], float], state: State, node: NodeView
    ) -> None:
        super().__init__(appearance, clock, state)
        self._node = node

    def why_frozen(self) -> str:
        """Freeze when the node is not out of contact any more, or the data is old."""
        away = [node.node for node in self.state.out_of_contact]
        if self._node.node not in away and not why_not_current(self.state):
            return f"{self._node.node} is not out of contact any more"
        return why_not_current(self.state)

    def accept(self) -> None:
        """Give it up."""
        self.finish(True)

    def content(self) -> DialogContent:
        """Return what is known of the node now, and the question."""
        frozen, name = self.why_frozen(), self._node.node
        nodes = self.state.view.nodes if self.state.view else []
        node = next((one for one in nodes if one.node == name), self._node)
        hint = "esc closes" if frozen else "Enter" if self.is_yes else "y, then Enter gives it up"
        tasks = ", ".join(tasks_on(node)) or "no task"
        effect = (
            f"Its ranks of {tasks} count as gone: their tasks go on with what they have elsewhere, if"
            " need be from a checkpoint. If they train after all, they are ended once it is back."
        )
        return DialogContent(
            title=f"Give {name} up as lost?",
            body=[
                Line((span(line, Tone.STRONG if number == 0 else Tone.PLAIN),))
                for number, text in enumerate((node.note, effect))
                for line in wrap(text, self.text_width, 6, self.glyphs.ellipsis)
            ],
            foot=[
                choice_line(
                    (("Cancel", not self.is_yes), ("Give up", self.is_yes)), hint, self.glyphs
                )
            ],
            banner=f"{frozen}: close and review" if frozen else "",
        )
