"""A modelled cluster that carries out the core's instructions, under a virtual clock.

The core gets the same events as from the agents of a real cluster, if they change its state.
Heartbeats and iterations between faults are left out. So are the timers that wait for them, since
an iteration is never overdue here.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from controller.core.events import (
    AutomationResumed,
    EventBody,
    LossDecided,
    NodeAttached,
    PeerProbed,
    PlanApproved,
    PlanRequested,
    TimerFired,
)
from controller.core.instructions import (
    Announce,
    HaltRanks,
    Instruction,
    PrepareSpares,
    ProbeNode,
    SetTimer,
    StartRanks,
    StopRanks,
)
from controller.core.rules.node_loss import ProbeOutcome
from controller.core.state.phases import PlanState
from controller.core.timers import InspectionDue, InspectionOverdue, IterationOverdue, Timer
from controller.simulation.world.breakage import Breakage
from controller.simulation.world.event_sequence import EventSequence
from controller.simulation.world.modelled_nodes import AGENT_S, ModelledNodes
from controller.simulation.world.modelled_training import ModelledTraining
from nodeagent.protocol.ids import AgentId, NodeId

_OPERATOR: Final = "operator"
_NOT_MODELLED: Final = (IterationOverdue, InspectionDue, InspectionOverdue)


class ModelledCluster:
    """Nodes and their processes, driven by the core."""

    def __init__(self, site: ModelledNodes) -> None:
        self._site = site
        self._training = ModelledTraining(site)
        self._breakage = Breakage(site, self._training)
        self._timers: dict[Timer, int] = {}
        self._num_timers = 0
        site.carry_out = self._carry_out

    def run(self, sequence: EventSequence) -> None:
        """Run the event sequence from its start to its end."""
        site = self._site
        self._begin(sequence.absent)
        for event in sequence.events:
            site.clock.at(event.at_s, partial(self._breakage.apply, event))
        for at_s, node in sequence.returns:
            site.clock.at(at_s, partial(self._breakage.return_node, node))
        site.clock.run(sequence.duration_s)

    def _begin(self, absent: Iterable[int]) -> None:
        """Attach every node that is present at the start."""
        site = self._site
        site.down |= {site.names[number] for number in absent}
        site.record_service()
        for name in site.names:
            site.post_if_up(name, NodeAttached(name, AgentId(f"{name}-1"), 1, ()))

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case SetTimer(timer=timer, after_s=after_s):
                self._set_timer(timer, after_s)
            case StartRanks():
                self._training.start(instruction)
            case HaltRanks():
                self._training.halt(instruction)
            case StopRanks():
                self._training.order_stop(instruction)
            case PrepareSpares():
                self._training.prepare(instruction)
            case ProbeNode(node=node, by=by):
                self._site.clock.after(AGENT_S, partial(self._probe, node, by))
            case Announce(kind="isolated"):
                self._note_isolation(NodeId(instruction.source))
            case Announce(kind="plan") if self._is_proposal(instruction):
                self._by_operator(self._approve)
            case Announce(kind="held"):
                self._by_operator(lambda: PlanRequested(self._site.next_request(), _OPERATOR))
            case Announce(kind="storm"):
                self._by_operator(lambda: AutomationResumed(self._site.next_request(), _OPERATOR))
            case Announce(kind="question"):
                self._by_operator(partial(self._decide_loss, NodeId(instruction.source)))
            case _:
                pass  # announcements, and rendezvous files, which no modelled rank reads

    def _set_timer(self, timer: Timer, after_s: float) -> None:
        if isinstance(timer, _NOT_MODELLED):
            return
        self._num_timers += 1
        self._timers[timer] = number = self._num_timers
        self._site.clock.after(after_s, partial(self._fire, timer, number))

    def _fire(self, timer: Timer, number: int) -> None:
        if self._timers.get(timer) == number:
            del self._timers[timer]
            self._site.post(TimerFired(timer))

    def _probe(self, node: NodeId, by: tuple[NodeId, ...]) -> None:
        outcome: ProbeOutcome = "silent" if node in self._site.down else "answered"
        for peer in by:
            self._site.post(PeerProbed(node, peer, None if peer in self._site.down else outcome))

    def _note_isolation(self, node: NodeId) -> None:
        """Let an operator uncordon a node later that the policy isolated without a broken part."""
        self._site.record_service()
        if node not in self._site.in_repair and node not in self._site.down:
            self._site.in_repair.add(node)
            delay_s = self._site.draw(self._site.values.steps.operator)
            self._site.clock.after(delay_s, partial(self._breakage.repair, node))

    def _decide_loss(self, node: NodeId) -> EventBody:
        is_lost = node in self._site.down
        return LossDecided(self._site.next_request(), _OPERATOR, node, is_lost)

    def _is_proposal(self, line: Announce) -> bool:
        """Return whether this announcement is about a plan that waits for approval."""
        is_pending = dict(line.facts).get("state") == PlanState.PENDING
        return is_pending and self._site.machine.state.plans.pending() is not None

    def _approve(self) -> EventBody | None:
        """Approve the plan that waits now, also if it was revised since the operator saw it."""
        plan = self._site.machine.state.plans.pending()
        if plan is None:
            return None
        return PlanApproved(self._site.next_request(), _OPERATOR, plan.name, plan.revision)

    def _by_operator(self, decide: Callable[[], EventBody | None]) -> None:
        """Let an operator decide later, by the state at that time."""
        delay_s = self._site.draw(self._site.values.steps.operator)
        self._site.clock.after(delay_s, partial(self._post_decision, decide))

    def _post_decision(self, decide: Callable[[], EventBody | None]) -> None:
        if body := decide():
            self._site.post(body)
