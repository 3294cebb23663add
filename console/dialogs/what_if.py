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
    SupposedOrder,
    SuppositionError,
    answered,
    not_ordered,
    orders_of,
    scenario_lines,
    supposition,
)
from console.widgets.appearance import Appearance
from controller.api.wire import Reply

AskPlanner = Callable[[dict[str, Any]], Awaitable[Reply]]
"""Asks with the fields of ``AskWhatIf``."""


class WhatIfDialog(Dialog[tuple[SupposedOrder, ...]]):
    """Scenarios, the newest first. The cluster does not change.

    The result is the orders that make the newest scenario real, if the operator wants them.
    """

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
            foot=[Line((span(f"  {self._hint()}", Tone.DIM),))],
        )

    def _hint(self) -> str:
        can_order = self._orders() and not self.state.is_view_only
        orders = ", tab orders the newest" if can_order else ""
        return f"Enter asks{orders}, pageup and pagedown scroll, esc closes"

    def _newest_fields(self) -> dict[str, Any]:
        """Return what the newest answered scenario supposes."""
        newest = next((each for each in self._scenarios if each.answer is not None), None)
        return supposition(newest.words) if newest else {}

    def _orders(self) -> tuple[SupposedOrder, ...]:
        """Return the orders for the newest scenario; in the past nobody can have it."""
        return () if self.state.playback is not None else orders_of(self._newest_fields())

    def _made_real(self) -> list[Line]:
        """Return what to type to have the newest scenario, and what no order can bring about."""
        orders = self._orders()
        if not orders:
            return []
        lead = "" if self.state.is_view_only else "tab orders this, each after a question; "
        lines = [Line(), Line((span(f"  {lead}in a shell:", Tone.DIM),))]
        lines += [Line((span(f"  {each.shell}", Tone.KEY),)) for each in orders]
        if rest := not_ordered(self._newest_fields()):
            lines.append(Line((span(f"  no order brings about: {rest}", Tone.WARN),)))
        return lines

    @override
    def pressed(self, key: str, character: str | None) -> None:
        self._note = ""
        if key == "enter":
            self._ask_planner()
        elif key == "tab":
            self._order()
        elif key in {"up", "down"}:
            self.scroll_lines(1 if key == "down" else -1)
        else:
            self._text = self._text.pressed(key, character)

    def _order(self) -> None:
        """Close and go through the orders of the newest scenario."""
        orders = self._orders()
        if self.state.is_view_only:
            self._note = "this console only looks: type the commands in a shell"
        elif orders:
            self.finish(orders)
        elif self.state.playback is not None:
            self._note = "in the past nothing can be ordered"
        else:
            self._note = "ask first: an answered scenario that loses, finishes or weighs is ordered"

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
