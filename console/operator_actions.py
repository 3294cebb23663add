"""Operator actions: they carry out the commands of the registry.

Every action on the cluster goes the same way. A dialog asks, bound to the data on screen when it
opened. The app sends the command with a request id. An ``Effect`` names the change in later views
that proves the action. Actions on the console itself happen at once. ``Host``, the app, owns state
and connection.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from pydantic import ValidationError
from textual.geometry import Size
from textual.screen import Screen
from typing_extensions import override

from console.command_registry import (
    COMMAND_BY_ID,
    Operator,
    detail_hints,
    help_hints,
    is_allowed_on,
)
from console.dialogs.decide import ApproveDialog, RejectDialog, Rejection
from console.dialogs.declare_lost import DeclareLostDialog
from console.dialogs.drill_menu import DrillChoice, DrillDialog
from console.dialogs.go_to import GoToDialog
from console.dialogs.information import ActivityDialog, HelpDialog, QuitDialog, TransitionDialog
from console.dialogs.order import OrderDialog
from console.dialogs.playback import ComparisonDialog, MomentDialog
from console.dialogs.what_if import WhatIfDialog
from console.screens.detail_screen import DetailKeys, DetailScreen
from console.screens.log_screen import LogScreen
from console.screens.overview import Overview
from console.viewmodel.activity import DrillEffect, Effect, LossEffect, PlanEffect, ProposalEffect
from console.viewmodel.compared_instants import comparison
from console.viewmodel.console_state import LinkPhase, State, seen_evidence
from console.viewmodel.destinations import Destination
from console.viewmodel.details.detail import DetailKind, DetailSubject
from console.viewmodel.log_book import LogBook, instant_of, ranks_on, task_of
from console.viewmodel.panel_places import is_too_small
from console.viewmodel.panels.playback_strip import faster, slower
from console.viewmodel.reducer import (
    ActionBlocked,
    ConsoleEvent,
    EvidenceSeen,
    InstantMarked,
    ModeSwitched,
)
from console.viewmodel.supposed_changes import SupposedOrder
from console.viewmodel.verbs import VERB_BY_ID, Verb, effect_of, prefilled
from console.widgets.appearance import Appearance
from controller.api.views import ClusterView, IncidentState, NodeView, PlanState
from controller.api.wire import (
    ApprovePlan,
    AskWhatIf,
    ClientCommand,
    Command,
    DecideLoss,
    MovePlayback,
    ReadEvidence,
    ReadLogs,
    RejectPlan,
    Reply,
    RequestPlan,
    RunDrill,
)

ResultT = TypeVar("ResultT")
_MOST_BYTES = 65_536
_DETAIL_KEYS = DetailKeys(detail_hints, is_allowed_on)


@dataclass(frozen=True, slots=True)
class OperatorSession:
    """The operator's name, and how the console was started."""

    actor: str
    owns_demo: bool = False
    owns_playback: bool = False
    starts_armed: bool = False
    is_view_only: bool = False
    is_in_browser: bool = False


class Host(Protocol):
    """The app, as operator actions use it."""

    state: State
    appearance: Appearance
    overview: Overview

    @property
    def subject(self) -> DetailSubject | None:
        """The subject of the top screen, or the selection on the overview."""
        ...

    @property
    def is_on_overview(self) -> bool:
        """Whether no screen about one thing lies on the overview."""
        ...

    @property
    def size(self) -> Size:
        """Columns and rows of the terminal."""
        ...

    def ask(self, dialog: Screen[ResultT], answered: Callable[[ResultT | None], None]) -> None:
        """Open a dialog and hand over its result, None if it was refused."""

    def open(self, screen: Screen[None]) -> None:
        """Put a screen on top of the present one until it is dismissed."""

    def apply(self, event: ConsoleEvent) -> None:
        """Fold an event and show the state."""

    def transmit(self, command: Command, title: str, effect: Effect) -> None:
        """Send a command to the controller and follow its outcome."""

    def export(self, incident: str, request_id: str) -> None:
        """Write the post-mortem of an incident and follow that like an order."""

    def transmit_quietly(self, command: Command) -> None:
        """Send a command whose outcome shows in the next view."""

    async def answer_to(self, command: Command) -> Reply:
        """Return the reply to a question. Without a connection it is refused."""
        ...

    def show_palette(self) -> None:
        """Open the command palette."""

    def suspend_console(self) -> None:
        """Give the terminal back to the shell until it is continued."""

    def end(self) -> None:
        """End the app."""


class OperatorActions(Operator):
    """The operator's actions on a host."""

    def __init__(
        self,
        host: Host,
        session: OperatorSession,
        clock: Callable[[], float],
        new_request_id: Callable[[], str],
    ) -> None:
        self._host = host
        self._session = session
        self._clock = clock
        self._new_request_id = new_request_id

    @override
    def approve(self) -> None:
        plan = self._host.state.pending
        if plan is None:
            return

        def answered(is_approved: bool | None) -> None:
            if is_approved:
                command = ApprovePlan(
                    request_id=self._new_request_id(),
                    actor=self._session.actor,
                    plan=plan.id,
                    revision=plan.revision,
                )
                effect = PlanEffect(plan.id, PlanState.APPLIED)
                self._host.transmit(command, f"approve {plan.id} r{plan.revision}", effect)

        dialog = ApproveDialog(self._host.appearance, self._clock, self._host.state, plan)
        self._host.ask(dialog, answered)

    @override
    def reject(self) -> None:
        plan = self._host.state.pending
        if plan is None:
            return

        def answered(rejection: Rejection | None) -> None:
            if rejection is not None:
                command = RejectPlan(
                    request_id=self._new_request_id(),
                    actor=self._session.actor,
                    plan=plan.id,
                    revision=plan.revision,
                    reason=rejection.reason,
                )
                effect = PlanEffect(plan.id, PlanState.REJECTED)
                self._host.transmit(command, f"reject {plan.id} r{plan.revision}", effect)
                if rejection.opens_what_if:
                    self.ask_what_if()

        dialog = RejectDialog(self._host.appearance, self._clock, self._host.state, plan)
        self._host.ask(dialog, answered)

    @override
    def declare_lost(self) -> None:
        node = self._node_out_of_contact()
        if node is None:
            return

        def answered(is_lost: bool | None) -> None:
            if is_lost:
                self._decide_loss(node, is_lost=True)

        dialog = DeclareLostDialog(self._host.appearance, self._clock, self._host.state, node)
        self._host.ask(dialog, answered)

    @override
    def wait(self) -> None:
        node = self._node_out_of_contact()
        if node is not None:
            self._decide_loss(node, is_lost=False)

    @override
    def propose(self) -> None:
        view = self._host.state.view
        known = frozenset(plan.id for plan in view.plans) if view else frozenset()
        command = RequestPlan(request_id=self._new_request_id(), actor=self._session.actor)
        self._host.transmit(command, "request a plan", ProposalEffect(known))

    @override
    def order(self, verb_id: str) -> None:
        verb = VERB_BY_ID[verb_id]
        subject = self._subject_of(verb)
        if verb.subject is not None and subject is None:
            self._blocked(verb, f"select a {verb.subject} first")
            return
        self._order(verb, subject)

    def _order(
        self, verb: Verb, subject: DetailSubject | None, then: Callable[[], None] = lambda: None
    ) -> None:
        """Ask whether to carry out a verb on a subject; ``then`` follows an order that is sent."""
        host, view = self._host, self._host.state.view
        if view is None:
            return
        name = subject.name if subject else ""
        if reason := verb.why_not(view, name):
            self._blocked(verb, reason)
            return

        def answered(text: str | None) -> None:
            now = host.state.view
            if text is None or now is None:
                return
            head = {"request_id": self._new_request_id(), "actor": self._session.actor}
            try:
                command = verb.command(head, now, name, text)
            except (OSError, ValueError) as error:  # the file has gone since it was looked at
                self._blocked(verb, str(error))
                return
            title = f"{verb.button.lower()} {name or text}".strip()
            host.transmit(command, title, effect_of(verb, name, text))
            then()

        dialog = OrderDialog(
            host.appearance, self._clock, host.state, verb, subject, self._ask_planner
        )
        host.ask(dialog, answered)

    def _order_if_able(
        self, verb: Verb, subject: DetailSubject, then: Callable[[], None] = lambda: None
    ) -> None:
        """Ask about an order that the console may send now, or say why it may not."""
        reason = COMMAND_BY_ID[verb.id].enabled(self._host.state)
        if reason is not True:
            self._blocked(verb, reason)
        else:
            self._order(verb, subject, then)

    def _subject_of(self, verb: Verb) -> DetailSubject | None:
        """Return what is on the screen, or selected, if a verb can be about it."""
        shown, pending = self._host.subject, self._host.state.pending
        if verb.subject == "plan":
            return DetailSubject("plan", pending.id) if pending else None
        return shown if shown is not None and shown.kind == verb.subject else None

    def _blocked(self, verb: Verb, reason: str) -> None:
        self._host.apply(ActionBlocked(self._clock(), verb.button.lower(), reason))

    @override
    def drill(self) -> None:
        dialog = DrillDialog(
            self._host.appearance,
            self._clock,
            self._host.state,
            selected_node=self._chosen("node"),
            selected_task=self._chosen("task"),
        )
        self._host.ask(dialog, self._inject)

    @override
    def toggle_mode(self) -> None:
        self._host.apply(ModeSwitched(self._clock(), is_armed=not self._host.state.is_armed))

    @override
    def move_playback(self, move: Mapping[str, object]) -> None:
        self._host.transmit_quietly(self._playback_command(move))

    @override
    def toggle_playback(self) -> None:
        playback, view = self._host.state.playback, self._host.state.view
        if playback is None or view is None:
            return
        is_at_end = not playback.is_playing and view.now >= playback.end
        back = {"by_s": playback.begin - view.now} if is_at_end else {}
        self.move_playback({"is_playing": not playback.is_playing, **back})

    @override
    def change_speed(self, *, is_faster: bool) -> None:
        if playback := self._host.state.playback:
            change = faster if is_faster else slower
            self.move_playback({"speed": change(playback.speed)})

    @override
    def ask_moment(self) -> None:
        host = self._host

        def answered(moment: str | None) -> None:
            if moment is not None:
                host.transmit(self._playback_command({"moment": moment}), f"go to {moment}", None)

        host.ask(MomentDialog(host.appearance, self._clock, host.state), answered)

    @override
    def compare_instants(self) -> None:
        host, view, first = self._host, self._host.state.view, self._host.state.compared
        if view is None:
            return
        if first is None:
            host.apply(InstantMarked(self._clock(), view))
            return

        def answered(is_forgotten: bool | None) -> None:
            if is_forgotten:
                host.apply(InstantMarked(self._clock(), None))

        lines = comparison(first, view)
        host.ask(ComparisonDialog(host.appearance, self._clock, host.state, lines), answered)

    def _playback_command(self, move: Mapping[str, object]) -> MovePlayback:
        head = {"request_id": self._new_request_id(), "actor": self._session.actor}
        return MovePlayback.model_validate({**head, **move})

    @override
    def swap_plan(self) -> None:
        self._host.overview.swap_plan()

    @override
    def show_transition(self) -> None:
        host = self._host
        dialog = TransitionDialog(host.appearance, self._clock, host.state, self._chosen("task"))
        host.open(dialog)

    @override
    def open_selected(self) -> None:
        host = self._host
        subject = host.overview.subject
        if subject is not None:
            self._open_detail(subject)

    def _open_detail(self, subject: DetailSubject) -> None:
        host = self._host
        host.open(
            DetailScreen(host.appearance, host.state, subject, _DETAIL_KEYS, self._look_closer)
        )

    async def _look_closer(self, subject: DetailSubject) -> None:
        """Ask for the evidence of an incident."""
        reply = await self._answer(ReadEvidence, incident=subject.name)
        self._host.apply(EvidenceSeen(seen_evidence(subject.name, reply)))

    async def _answer(self, kind: type[ClientCommand], **fields: object) -> Reply:
        """Ask a question; one that holds what no message can hold is refused here."""
        head = {"request_id": self._new_request_id(), "actor": self._session.actor}
        try:
            question = kind.model_validate({**head, **fields})
        except ValidationError as error:
            reason = error.errors(include_url=False, include_input=False)[0]["msg"]
            return Reply(request_id="", is_ok=False, message=f"it can't be asked: {reason}")
        return await self._host.answer_to(question)  # type: ignore[arg-type] # one of its kinds

    @override
    def open_incident(self) -> None:
        view = self._host.state.view
        if view is None or not view.incidents:
            return
        self._open_detail(DetailSubject("incident", _newest_incident(view)))

    @override
    def export_incident(self) -> None:
        view = self._host.state.view
        if view is not None and view.incidents:
            name = self._chosen("incident") or _newest_incident(view)
            self._host.export(name, self._new_request_id())

    @override
    def open_logs(self) -> None:
        host = self._host
        found = task_of(host.state, host.subject)
        if found is None:
            text = "select a task, a node with ranks, or an incident of a task first"
            host.apply(ActionBlocked(self._clock(), "logs", text))
            return
        task, node = found

        async def read(ranks: tuple[int, ...], book: LogBook, is_previous: bool) -> Reply:
            after = {rank: book.after[rank] for rank in ranks if rank in book.after}
            return await self._answer(
                ReadLogs,
                task=task,
                ranks=ranks,
                after=after,
                max_bytes=_MOST_BYTES,
                is_previous=is_previous,
            )

        title = f"{task} on {node}" if node else task
        ranks_of = partial(ranks_on, task=task, node=node)
        at = instant_of(host.state, host.subject)
        host.open(LogScreen(host.appearance, host.state, title, ranks_of, read, at))

    @override
    def filter_rows(self) -> None:
        if panel := self._host.overview.panel:
            panel.start_filter()

    @override
    def ask_what_if(self) -> None:
        host, subject = self._host, self._host.subject
        verbs = {"node": "lose", "task": "finish"}
        verb = verbs.get(subject.kind) if subject is not None else None
        words = f"{verb} {subject.name}" if subject is not None and verb else ""
        dialog = WhatIfDialog(host.appearance, self._clock, host.state, words, self._ask_planner)
        host.ask(dialog, self._order_each)

    def _order_each(self, orders: tuple[SupposedOrder, ...] | None) -> None:
        """Ask about one order after the other; the rest is dropped with one that is not sent."""
        if orders:
            first, *others = orders
            subject = DetailSubject(first.kind, first.name)
            self._order_if_able(
                prefilled(VERB_BY_ID[first.verb_id], first.text),
                subject,
                lambda: self._order_each(tuple(others)),
            )

    async def _ask_planner(self, fields: dict[str, Any]) -> Reply:
        return await self._answer(AskWhatIf, **fields)

    @override
    def sort_rows(self, delta: int) -> None:
        panel = self._host.overview.panel
        self._say_unsorted(is_sorted=panel is not None and panel.sort(delta))

    @override
    def reverse_rows(self) -> None:
        panel = self._host.overview.panel
        self._say_unsorted(is_sorted=panel is not None and panel.reverse_order())

    def _say_unsorted(self, *, is_sorted: bool) -> None:
        if not is_sorted:
            text = "this panel has no columns: go to nodes, tasks or incidents"
            self._host.apply(ActionBlocked(self._clock(), "sort", text))

    @override
    def go_to(self) -> None:
        host = self._host

        def answered(chosen: Destination | None) -> None:
            if chosen is None:
                return
            if not chosen.verb_id:
                self._open_detail(chosen.subject)
                return
            self._order_if_able(VERB_BY_ID[chosen.verb_id], chosen.subject)

        host.ask(GoToDialog(host.appearance, self._clock, host.state), answered)

    @override
    def show_activities(self) -> None:
        self._host.open(ActivityDialog(self._host.appearance, self._clock, self._host.state))

    @override
    def show_help(self) -> None:
        dialog = HelpDialog(self._host.appearance, self._clock, self._host.state, help_hints)
        self._host.open(dialog)

    @override
    def show_palette(self) -> None:
        self._host.show_palette()

    @override
    def suspend(self) -> None:
        self._host.suspend_console()

    @override
    def leave(self) -> None:
        state = self._host.state
        is_running = state.view is not None and state.link.phase is not LinkPhase.ENDED
        has_room = not is_too_small(self._host.size.width, self._host.size.height)
        if not (state.owns_demo and is_running and has_room):
            self._host.end()
            return

        def answered(is_quitting: bool | None) -> None:
            if is_quitting:
                self._host.end()

        self._host.ask(QuitDialog(self._host.appearance, self._clock, state), answered)

    @override
    def focus_panel(self, delta: int) -> None:
        if delta > 0:
            self._host.overview.focus_next()
        else:
            self._host.overview.focus_previous()

    @override
    def move(self, delta: int) -> None:
        if panel := self._host.overview.panel:
            panel.move(delta)

    @override
    def page(self, delta: int) -> None:
        if panel := self._host.overview.panel:
            panel.page(delta)

    @override
    def jump(self, *, to_end: bool) -> None:
        if panel := self._host.overview.panel:
            panel.jump(to_end=to_end)

    def _node_out_of_contact(self) -> NodeView | None:
        """Return the node of the screen on top; on the overview, the one that is asked about.

        If none is asked about: the selected node if it is unreachable, else the first unreachable
        node.
        """
        state, name = self._host.state, self._chosen("node")
        chosen = next((node for node in state.out_of_contact if node.node == name), None)
        if self._host.is_on_overview:
            return state.asked or chosen or next(iter(state.out_of_contact), None)
        return chosen

    def _chosen(self, kind: DetailKind) -> str | None:
        """Return the name of what is selected, or on the screen, if it is of this kind."""
        subject = self._host.subject
        return subject.name if subject is not None and subject.kind == kind else None

    def _decide_loss(self, node: NodeView, *, is_lost: bool) -> None:
        command = DecideLoss(
            request_id=self._new_request_id(),
            actor=self._session.actor,
            node=node.node,
            is_lost=is_lost,
        )
        title = f"declare {node.node} lost" if is_lost else f"wait for {node.node}"
        self._host.transmit(command, title, LossEffect(node.node, is_lost=is_lost))

    def _inject(self, choice: DrillChoice | None) -> None:
        view = self._host.state.view
        if choice is None or view is None:
            return
        drill, target = choice.drill, choice.target
        command = RunDrill(
            request_id=self._new_request_id(),
            actor=self._session.actor,
            drill=drill.kind,
            task=target.task,
            rank=target.rank,
            node=target.node if target.task is None else None,
        )
        known = frozenset(incident.id for incident in view.incidents)
        effect = DrillEffect(known, drill.expectation)
        self._host.transmit(command, f"{drill.kind} on {target.name}", effect)


def _newest_incident(view: ClusterView) -> str:
    """Return the newest incident that is not cured, or else the newest."""
    is_over = IncidentState.RESOLVED
    newest = max(view.incidents, key=lambda each: (each.state is not is_over, each.detected_at))
    return newest.id
