"""The question before a verb is carried out: its victims, its consequence, and its text.

First the text, if there is one; then the confirmation. A verb of low danger is confirmed by ``y``
and Enter, one of high danger by the typed name of its subject. The dialog is bound to the subject
as it was when it opened.
"""

from collections.abc import Callable
from typing import Any

from textual import events
from typing_extensions import override

from console.dialogs.frame import Dialog
from console.dialogs.what_if import AskPlanner
from console.viewmodel.console_state import State, why_not_current
from console.viewmodel.details.detail import DetailSubject
from console.viewmodel.dialog_frame import DialogContent, TextField, choice_line
from console.viewmodel.drawing.text import Line, Tone, crop, span, wrap
from console.viewmodel.supposed_changes import SupposedCase, answered, division_lines
from console.viewmodel.verbs import Verb, subject_state
from console.widgets.appearance import Appearance

_MOST_CHARACTERS = 1000
_ROOM_TO_TYPE = 30
"""Cells of a line that the words around a name take, and what is typed beside it."""


class OrderDialog(Dialog[str]):
    """The result is the text that the verb takes, empty if it takes none."""

    def __init__(
        self,
        appearance: Appearance,
        clock: Callable[[], float],
        state: State,
        verb: Verb,
        subject: DetailSubject | None,
        ask: AskPlanner,
    ) -> None:
        super().__init__(appearance, clock, state)
        self._verb, self._subject = verb, subject
        self._target = subject.name if subject else ""
        self._bound = self._seen()
        self._text = TextField(verb.text.default if verb.text else "", _MOST_CHARACTERS)
        self._typed = TextField()
        self._is_confirming = verb.text is None
        self._is_yes = False
        self._note = ""
        self._ask = ask
        self._supposed: dict[str, Any] = {}
        self._scenario: SupposedCase | None = None

    @override
    def on_mount(self) -> None:
        super().on_mount()
        if self._is_confirming:
            self._ask_planner()

    def _ask_planner(self) -> None:
        """Ask what the planner does once the order is carried out."""
        supposes = self._verb.supposes
        if supposes is not None:
            self._scenario = SupposedCase("")
            self._supposed = supposes(self._target, self._text.text.strip())
            self.run_worker(self._take_answer())

    async def _take_answer(self) -> None:
        self._scenario = answered("", await self._ask(self._supposed))
        self.redraw()

    def _seen(self) -> str:
        view = self.state.view
        return subject_state(view, self._subject) if view and self._subject else ""

    def why_frozen(self) -> str:
        """Freeze when the subject changed, or the data is old."""
        if reason := why_not_current(self.state):
            return reason
        now = self._seen()
        return "" if now == self._bound else f"{self._target} has changed: {now}"

    @property
    def _is_named(self) -> bool:
        return self._typed.text.strip() == self._target

    @override
    def content(self) -> DialogContent:
        verb, frozen, view = self._verb, self.why_frozen(), self.state.view
        cluster = view.cluster if view else ""
        hits = verb.hits(view, self._target) if view else []
        body = [Line((span(f"  {each}"),)) for each in self._wrapped(verb.effect)]
        if hits:
            body += [Line(), Line((span("  This hits", Tone.DIM),))]
            body += [
                Line((span(f"    {each}", Tone.STRONG),))
                for hit in hits
                for each in self._wrapped(hit)
            ]
        body += self._division()
        body += self._fields()
        return DialogContent(
            title=f"{verb.title.format(name=self._target)} ({cluster})",
            body=body,
            foot=[self._foot(frozen)],
            banner=f"{frozen}: close and review" if frozen else "",
            cursor=len(body) - 1,
        )

    def _division(self) -> list[Line]:
        """Return how the planner would divide the workers then, or why it does not say so."""
        scenario, view = self._scenario, self.state.view
        if scenario is None or view is None:
            return []
        lines = [Line(), Line((span("  The planner divides the workers then", Tone.DIM),))]
        if scenario.answer is None:
            words = self._wrapped(scenario.refusal or "asked")
            return [*lines, *(Line((span(f"    {each}", Tone.DIM),)) for each in words)]
        found = division_lines(
            view, scenario.answer, self.text_width - 2, self.glyphs,
            is_reweighed="weights" in self._supposed,
        )  # fmt: skip
        return [*lines, *(Line((span("  "), *line.spans)) for line in found)]

    def _wrapped(self, text: str) -> list[str]:
        return wrap(text, self.text_width - 4, 6, self.glyphs.ellipsis)

    def _fields(self) -> list[Line]:
        lines: list[Line] = []
        if self._verb.text is not None:
            label = f"  {self._verb.text.label}:"
            is_open = not self._is_confirming
            field = self._text.line(label, self.text_width)
            lines += [Line(), field if is_open else Line(field.spans[:-1])]
        if self._is_confirming and self._verb.is_high:
            name = crop(self._target, self.text_width - _ROOM_TO_TYPE, self.glyphs.ellipsis)
            label = f"  type {name} to confirm:"
            lines += [Line(), self._typed.line(label, self.text_width)]
        if self._note:
            lines.append(Line((span(f"  {self._note}", Tone.BAD),)))
        return lines

    def _foot(self, frozen: str) -> Line:
        button = self._verb.button
        if frozen:
            return Line((span("  esc closes", Tone.DIM),))
        if not self._is_confirming:
            return Line((span("  Enter continues, esc closes", Tone.DIM),))
        if self._verb.is_high:
            hint = f"Enter: {button.lower()} {self._target}" if self._is_named else "esc closes"
            return choice_line(
                (("Cancel", not self._is_named), (button, self._is_named)), hint, self.glyphs
            )
        hint = "Enter does it" if self._is_yes else "y, then Enter does it"
        return choice_line(
            (("Cancel", not self._is_yes), (button, self._is_yes)), hint, self.glyphs
        )

    @override
    def pressed(self, key: str, character: str | None) -> None:
        self._note = ""
        if self.why_frozen():
            self._is_yes = False
            if key == "enter":
                self.finish(None)
        elif not self._is_confirming:
            self._edit_text(key, character)
        elif self._verb.is_high:
            self._confirm_by_name(key, character)
        else:
            self._confirm(key)

    def _edit_text(self, key: str, character: str | None) -> None:
        if key != "enter":
            self._text = self._text.pressed(key, character)
            return
        asked = self._verb.text
        self._note = asked.mistake(self._text.text.strip()) if asked else ""
        self._is_confirming = not self._note
        if self._is_confirming:
            self._ask_planner()

    def _confirm_by_name(self, key: str, character: str | None) -> None:
        if key != "enter":
            self._typed = self._typed.pressed(key, character)
        elif self._is_named:
            self.finish(self._text.text.strip())
        elif self._typed.text:
            self._note = f"the name is {self._target}"
        else:
            self.finish(None)

    def _confirm(self, key: str) -> None:
        if key == "enter":
            self.finish(self._text.text.strip() if self._is_yes else None)
        elif key == "n":
            self.finish(None)
        else:
            self._is_yes = key == "y"

    def on_paste(self, event: events.Paste) -> None:
        """Take a pasted text; it never confirms."""
        event.stop()
        if not self._is_confirming and not self.why_frozen():
            self._text = self._text.typed(event.text)
            self.redraw()
