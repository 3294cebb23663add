"""Asks before an unreachable node is declared lost: its ranks may still be training."""

from collections.abc import Callable

from console.dialogs.frame import QuestionDialog
from console.viewmodel.console_state import State, why_not_current
from console.viewmodel.dialog_frame import DialogContent, choice_line
from console.viewmodel.drawing.text import Line, Tone, span, wrap
from console.viewmodel.panels.nodes_panel import tasks_on
from console.widgets.appearance import Appearance
from controller.api.views import NodeView


class DeclareLostDialog(QuestionDialog[bool]):
    """Shows the node's note and the effect of its loss. True: the node is lost."""

    def __init__(
        self, appearance: Appearance, clock: Callable[[], float], state: State, node: NodeView
    ) -> None:
        super().__init__(appearance, clock, state)
        self._node = node

    def why_frozen(self) -> str:
        """Freeze when the node is no longer unreachable, or the data is old."""
        away = [node.node for node in self.state.out_of_contact]
        if self._node.node not in away and not why_not_current(self.state):
            return f"{self._node.node} is no longer unreachable"
        return why_not_current(self.state)

    def accept(self) -> None:
        """Declare the node lost."""
        self.finish(True)

    def content(self) -> DialogContent:
        """Return the node's present note, the effect, and the question."""
        frozen, name = self.why_frozen(), self._node.node
        nodes = self.state.view.nodes if self.state.view else []
        node = next((one for one in nodes if one.node == name), self._node)
        hint = (
            "esc closes"
            if frozen
            else "Enter declares it lost"
            if self.is_yes
            else "y, then Enter declares it lost"
        )
        tasks = ", ".join(tasks_on(node)) or "no task"
        effect = (
            f"Unicron counts its ranks of {tasks} as lost. Their tasks continue on other nodes, from a"
            " checkpoint if no replica is left. If the node comes back, Unicron ends these ranks."
        )
        return DialogContent(
            title=f"Declare {name} lost?",
            body=[
                Line((span(line, Tone.STRONG if number == 0 else Tone.PLAIN),))
                for number, text in enumerate((node.note, effect))
                for line in wrap(text, self.text_width, 6, self.glyphs.ellipsis)
            ],
            foot=[
                choice_line(
                    (("Cancel", not self.is_yes), ("Declare lost", self.is_yes)), hint, self.glyphs
                )
            ],
            banner=f"{frozen}: close and review" if frozen else "",
        )
