"""What the planner would do if something were different: typed, answered, compared."""

from collections.abc import Awaitable, Callable
from typing import Any

from textual import events
from typing_extensions import override

from console.dialogs.frame import Dialog
from console.viewmodel.console_state import State
from console.viewmodel.dialog_frame import DialogContent, TextField
from console.viewmodel.drawing.text import Line, Tone, span
from console.viewmodel.supposed_changes import (
    GRAMMAR,
    MOST_COMPARED,
    SupposedCase,
    SuppositionError,
    answered,
    scenario_lines,
    shell_commands,
    supposition,
)
from console.widgets.appearance import Appearance
from controller.api.wire import Reply

AskPlanner = Callable[[dict[str, Any]], Awaitable[Reply]]
"""Asks with the fields of ``AskWhatIf``."""


class WhatIfDialog(Dialog[None]):
    """Scenarios, the newest first. The cluster does not change."""

    def __init__(
        self,
        appearance: Appearance,
        clock: Callable[[], float],
        state: State,
        words: str,
        ask: AskPlanner,
    ) -> None:
        super().__init__(appearance, clock, state)
        self._text = TextField(words)
        self._ask = ask
        self._note = ""
        self._scenarios: list[SupposedCase] = []

    @override
    def content(self) -> DialogContent:
        cluster = self.state.view.cluster if self.state.view else ""
        body = [self._text.line("  what if", self.text_width)]
        body.append(
            Line((span(f"  {self._note or GRAMMAR}", Tone.BAD if self._note else Tone.DIM),))
        )
        for scenario in self._scenarios:
            body.append(Line())
            if self.state.view is not None:
                body += scenario_lines(self.state.view, scenario, self.text_width, self.glyphs)
        body += self._made_real()
        return DialogContent(
            title=f"WHAT-IF on {cluster}: nothing changes",
            body=body,
            foot=[Line((span("  Enter asks, pageup and pagedown scroll, esc closes", Tone.DIM),))],
        )

    def _made_real(self) -> list[Line]:
        """Return what to type to have the newest scenario; in the past nobody can have it."""
        if self.state.playback is not None:
            return []
        newest = next((each for each in self._scenarios if each.answer is not None), None)
        commands = shell_commands(supposition(newest.words)) if newest else []
        lines = [Line((span(f"  {each}", Tone.KEY),)) for each in commands]
        return [Line(), Line((span("  in a shell:", Tone.DIM),)), *lines] if lines else []

    @override
    def pressed(self, key: str, character: str | None) -> None:
        self._note = ""
        if key == "enter":
            self._ask_planner()
        elif key in {"up", "down"}:
            self.scroll_lines(1 if key == "down" else -1)
        else:
            self._text = self._text.pressed(key, character)

    def on_paste(self, event: events.Paste) -> None:
        """Take pasted words; they are asked with Enter."""
        event.stop()
        self._text = self._text.typed(event.text)
        self.redraw()

    def _ask_planner(self) -> None:
        words = " ".join(self._text.text.split())
        try:
            fields = supposition(words)
        except SuppositionError as error:
            self._note = str(error)
            return
        others = [each for each in self._scenarios if each.words != words]
        self._scenarios = [SupposedCase(words), *others][:MOST_COMPARED]
        self.run_worker(self._take_answer(words, fields))

    async def _take_answer(self, words: str, fields: dict[str, Any]) -> None:
        found = answered(words, await self._ask(fields))
        self._scenarios = [found if each.words == words else each for each in self._scenarios]
        self.redraw()
