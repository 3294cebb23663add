"""The drill menu: choose a fault, choose a target, and confirm.

Three steps in one dialog. Escape closes it, left goes back one step. The choice is kept by
identity: if the target vanishes while the dialog is open, the last step freezes and no other target
is hit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from console.dialogs.frame import Dialog
from console.viewmodel.console_state import State, why_not_current
from console.viewmodel.dialog_frame import DialogContent, TextField, choice_line
from console.viewmodel.drawing.text import Cell, Ground, Line, Span, Tone, span, wrap
from console.viewmodel.drill_targets import DrillTarget, hit_lines, proposed, target_cell, targets
from console.viewmodel.filtering import matches
from console.widgets.appearance import Appearance
from controller.api.views import DrillView


@dataclass(frozen=True, slots=True)
class DrillChoice:
    """A drill and its target."""

    drill: DrillView
    target: DrillTarget


class _Step(Enum):
    KIND = 1
    TARGET = 2
    CONFIRM = 3


class DrillDialog(Dialog[DrillChoice]):
    """Returns the chosen drill and target."""

    def __init__(
        self,
        appearance: Appearance,
        clock: Callable[[], float],
        state: State,
        *,
        selected_node: str | None = None,
        selected_task: str | None = None,
    ) -> None:
        super().__init__(appearance, clock, state)
        self._selected = {"node": selected_node, "rank": selected_task}
        self._step = _Step.KIND
        self._kind = state.view.drills[0].kind if state.view and state.view.drills else ""
        self._target: DrillTarget | None = None
        self._is_yes = False
        self._filter = TextField()

    def content(self) -> DialogContent:
        """Return the present step."""
        match self._step:
            case _Step.KIND:
                return self._kinds()
            case _Step.TARGET:
                return self._targets()
            case _Step.CONFIRM:
                return self._confirm()

    def pressed(self, key: str, character: str | None) -> None:
        """Move, choose, go back, or filter the list by typing."""
        match self._step, key:
            case ((_Step.KIND | _Step.TARGET), "up"):
                self._move(-1)
            case ((_Step.KIND | _Step.TARGET), "down"):
                self._move(1)
            case _Step.KIND, "enter":
                self._choose_kind()
            case _Step.TARGET, "enter":
                if self._target in self._listed_targets:
                    self._step, self._is_yes = _Step.CONFIRM, False
            case ((_Step.TARGET | _Step.CONFIRM), "left") | (_Step.CONFIRM, "backspace"):
                self._step, self._is_yes = _Step(self._step.value - 1), False
                self._filter = TextField()
            case _Step.CONFIRM, _:
                self._answer(key)
            case _:
                self._filter = self._filter.pressed(key, character)
                self._move(0)

    @property
    def _drills(self) -> list[DrillView]:
        return self.state.view.drills if self.state.view else []

    @property
    def _listed(self) -> list[DrillView]:
        """The drills that the filter lets through."""
        return [
            drill
            for drill in self._drills
            if matches(self._filter.text, f"{drill.kind} {drill.title}")
        ]

    @property
    def _listed_targets(self) -> list[DrillTarget]:
        return [
            each
            for each in self._offered
            if matches(self._filter.text, f"{each.key} {each.name} {each.node}")
        ]

    @property
    def _drill(self) -> DrillView | None:
        return next((drill for drill in self._drills if drill.kind == self._kind), None)

    @property
    def _offered(self) -> list[DrillTarget]:
        view, drill = self.state.view, self._drill
        return targets(view, drill) if view and drill else []

    def _why_frozen(self) -> str:
        if self._step is _Step.CONFIRM and self._target not in self._offered:
            return (
                f"{self._target.name if self._target else 'the target'} changed or no longer exists"
            )
        return why_not_current(self.state)

    def _move(self, delta: int) -> None:
        if self._step is _Step.KIND:
            kinds = [drill.kind for drill in self._listed]
            if kinds:
                at = kinds.index(self._kind) if self._kind in kinds else 0
                self._kind = kinds[min(max(0, at + delta), len(kinds) - 1)]
            return
        listed = self._listed_targets
        keys = [target.key for target in listed]
        if keys:
            at = keys.index(self._target.key) if self._target and self._target.key in keys else 0
            self._target = listed[min(max(0, at + delta), len(keys) - 1)]

    def _choose_kind(self) -> None:
        view, drill, offered = self.state.view, self._drill, self._offered
        if view is not None and drill is not None and drill in self._listed and offered:
            self._filter = TextField()
            selected = self._selected.get(drill.target)
            self._target = offered[proposed(view, offered, selected)]
            self._step = _Step.TARGET

    def _answer(self, key: str) -> None:
        drill = self._drill
        if key == "y" and not self._why_frozen():
            self._is_yes = True
        elif key == "enter" and self._is_yes and drill and self._target and not self._why_frozen():
            self.finish(DrillChoice(drill, self._target))
        elif key in ("enter", "n"):
            self.finish(None)
        else:
            self._is_yes = False

    def _kinds(self) -> DialogContent:
        drills = self._listed
        width = max((len(drill.kind) for drill in self._drills), default=0) + 2
        body = [
            self._item(
                (span(drill.kind.ljust(width), Tone.STRONG), span(drill.title)),
                is_chosen=drill.kind == self._kind,
            )
            for drill in drills
        ]
        drill = self._drill
        texts = (
            wrap(drill.expectation, self.text_width - 2, 3, self.glyphs.ellipsis) if drill else []
        )
        none = "" if self._offered else "no target now; "
        return DialogContent(
            title="Run a drill: choose a fault",
            body=[*body, Line(), *(Line((span(f"  {text}", Tone.DIM),)) for text in texts)],
            foot=[
                self._filter.line("  filter", self.text_width),
                Line((span(f"  {none}type to filter, Enter continues, esc closes", Tone.DIM),)),
            ],
            banner=self._why_frozen(),
            cursor=next((i for i, drill in enumerate(drills) if drill.kind == self._kind), 0),
        )

    def _targets(self) -> DialogContent:
        view = self.state.view
        key = self._target.key if self._target else ""
        body = [
            self._item(target_cell(view, target, self.glyphs), is_chosen=target.key == key)
            for target in self._listed_targets
            if view
        ]
        return DialogContent(
            title=f"Drill {self._kind}: which {self._drill.target if self._drill else 'target'}?",
            body=body,
            foot=[
                self._filter.line("  filter", self.text_width),
                Line((span("  Enter continues, left goes back, esc closes", Tone.DIM),)),
            ],
            banner=self._why_frozen(),
            cursor=next((i for i, each in enumerate(self._listed_targets) if each.key == key), 0),
        )

    def _confirm(self) -> DialogContent:
        view, drill, target = self.state.view, self._drill, self._target
        if view is None or drill is None or target is None:
            return DialogContent("Drill", (), (), "the drill no longer exists")
        width = self.text_width - 2
        hits = [text for hit in hit_lines(view, target) for text in wrap(hit, width - 4, 2, "")]
        expected = wrap(drill.expectation, width, 3, self.glyphs.ellipsis)
        frozen = self._why_frozen()
        hint = (
            "esc closes"
            if frozen
            else "Enter injects it"
            if self._is_yes
            else "y, then Enter injects it"
        )
        return DialogContent(
            title=f"Inject {drill.kind} into {target.name} on {view.cluster}?",
            body=[
                Line((span("  This hits", Tone.DIM),)),
                *(Line((span(f"    {self.glyphs.drill} {text}", Tone.STRONG),)) for text in hits),
                Line(),
                Line((span("  Expected", Tone.DIM),)),
                *(Line((span(f"  {text}"),)) for text in expected),
            ],
            foot=[
                choice_line(
                    (("Cancel", not self._is_yes), ("Inject", self._is_yes)), hint, self.glyphs
                )
            ],
            banner=frozen,
        )

    def _item(self, cell: Cell, *, is_chosen: bool) -> Line:
        if not is_chosen:
            return Line((Span("  "), *cell))
        return Line((Span(f"{self.glyphs.cursor} ", Tone.FOCUS), *cell), Ground.SELECTED)
