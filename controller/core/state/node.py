"""What the core remembers of a node.

A record's fields are assigned by its own methods alone; everybody may read them.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from controller.core.rules.actions import Occurrence
from controller.core.rules.evidence import Evidence
from controller.core.rules.node_loss import ProbeOutcome
from controller.core.rules.placement import Worker
from controller.core.specs import NodeSpec
from controller.core.state.node_index import NodeIndex
from controller.core.state.phases import NODE_CHANGES, NodeCondition, advance
from controller.core.state.upkeep import NodeUpkeep
from nodeagent.protocol.findings import NodeFinding
from nodeagent.protocol.ids import AgentId, NodeId, TaskId

_MAX_MESSAGES: Final = 50
_MAX_UNCLAIMED: Final = 10


@dataclass(frozen=True, slots=True)
class Message:
    """Words that a node's probe has reported."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class SeenProgress:
    """How far a task was, and when that was seen."""

    iteration: int
    seen_at: float


@dataclass(slots=True)
class Contact:
    """The controller's contact with a node.

    Methods that change the condition raise ``InvariantViolationError`` where the table in
    ``state.phases`` does not allow it: that is a bug of the core.
    """

    node: NodeId
    """Whose it is, for the text of that error."""
    condition: NodeCondition = NodeCondition.EXPECTED
    note: str = ""
    agent_id: AgentId | None = None
    agent_pid: int | None = None
    silent_since: float | None = None
    """When a node in contact that has fallen silent sent its last message."""
    awaited_since: float = 0.0
    """When it was added to the cluster."""
    in_contact_since: float = 0.0
    """When contact was last gained."""
    lost_contact_at: float = 0.0
    index: NodeIndex = field(default_factory=NodeIndex, repr=False)
    """The cluster's."""

    def _change(self, condition: NodeCondition, note: str = "") -> None:
        before = self.condition
        self.condition = advance(NODE_CHANGES, self.condition, condition, self.node)
        self.index.move(self.node, before, condition)
        self.note = note

    def join_index(self, index: NodeIndex) -> None:
        """The node was read from a file: this index has what it is."""
        self.index = index

    def gain(self, at: float) -> None:
        """The node is in contact from now on."""
        self._change(NodeCondition.HEALTHY)
        self.in_contact_since = at

    def attach(self, agent_id: AgentId, agent_pid: int) -> None:
        """A session with this agent begins."""
        self.agent_id, self.agent_pid = agent_id, agent_pid
        self.hear()

    def fall_silent(self, since: float) -> None:
        """The node, in contact, has sent nothing since then."""
        self.silent_since = since
        self.index.note_silence(self.node, is_silent=True)

    def hear(self) -> None:
        """A heartbeat has come, or nothing is waited for any more."""
        if self.silent_since is not None:
            self.silent_since = None
            self.index.note_silence(self.node, is_silent=False)

    def lose(self, since: float, note: str) -> None:
        """Contact has ended: the node is presumed training."""
        self._change(NodeCondition.UNREACHABLE, note)
        self.lost_contact_at = since
        self.hear()

    def restart_clock(self, at: float) -> None:
        """A new controller begins: silence counts from now."""
        self.lost_contact_at = at

    def await_first(self, at: float) -> None:
        """The node was added: its time to come begins."""
        self.awaited_since = at

    def give_up_first(self) -> None:
        """The node has never come: its silence counts from when it was added."""
        self.lost_contact_at = self.awaited_since

    def declare_lost(self, reason: str) -> None:
        """The node is lost."""
        self._change(NodeCondition.LOST, reason)

    def end(self, note: str) -> None:
        """The node does not belong to the cluster any more."""
        self._change(NodeCondition.REMOVED, note)
        self.hear()

    def begin_anew(self) -> None:
        """A removed node belongs to the cluster again."""
        self._change(NodeCondition.EXPECTED)
        self.agent_id, self.agent_pid = None, None

    def explain(self, note: str) -> None:
        """Say what is thought of the node."""
        self.note = note


@dataclass(slots=True)
class LossInquiry:
    """Whether a node out of contact is lost: answers so far."""

    judged_from: float = 0.0
    """The node is not judged before this: the controller has just begun to look for it."""
    answers: dict[NodeId, ProbeOutcome] = field(default_factory=dict)
    """What each peer last found at the node's SSH port since contact was lost."""
    last_asked: dict[NodeId, float] = field(default_factory=dict)
    """When each peer was last asked to look at its SSH port, since contact was lost."""
    open_probes: set[NodeId] = field(default_factory=set)
    """Asked peers that have not answered yet."""
    asked_at: float | None = None
    """Since when operators are asked whether it is lost; None if they are not asked."""
    waits_since: float = 0.0
    """When an operator last chose to wait for it."""

    def forget_answers(self) -> None:
        """Contact is lost anew, or there is a new controller: answers of before do not count."""
        self.answers.clear()
        self.last_asked.clear()

    def end(self) -> None:
        """The node is back in contact."""
        self.answers.clear()
        self.end_question()

    def begin_anew(self, judged_from: float) -> None:
        """A new controller begins: it judges the node later, and has asked nobody yet."""
        self.judged_from = judged_from

    def forget_probes(self) -> None:
        """A new controller begins: answers to its predecessor do not come any more."""
        self.forget_answers()
        self.open_probes.clear()

    def ask(self, peers: Collection[NodeId], at: float) -> None:
        """These peers are asked to look at its SSH port."""
        self.last_asked |= dict.fromkeys(peers, at)
        self.open_probes |= set(peers)

    def take(self, peer: NodeId, outcome: ProbeOutcome | None) -> None:
        """A peer has looked; None if it could not."""
        self.open_probes.discard(peer)
        self.answers.pop(peer, None)
        if outcome is not None:
            self.answers[peer] = outcome

    def ask_operator(self, at: float) -> None:
        """Operators are asked whether the node is lost."""
        self.asked_at = at

    def end_question(self) -> None:
        """No decision of an operator is needed."""
        self.asked_at = None

    def wait(self, at: float) -> None:
        """An operator says that the node is not lost, or not yet."""
        self.asked_at, self.waits_since = None, at


@dataclass(slots=True)
class PeerReach:
    """Which peers can see the node's SSH port."""

    tried_by: set[NodeId] = field(default_factory=set)
    """Peers that were asked to look while it was in contact."""
    reached_by: set[NodeId] = field(default_factory=set)
    """Peers that have had an answer from it at any time."""

    def note_tried(self, peers: Iterable[NodeId]) -> None:
        """These peers are asked to look."""
        self.tried_by.update(peers)

    def note_answer(self, peer: NodeId, outcome: ProbeOutcome | None) -> None:
        """A peer has looked at the node's SSH port. A refusal may come from a firewall."""
        if outcome == "answered":
            self.reached_by.add(peer)

    def forget(self) -> None:
        """The node may be another machine: what reached it before says nothing."""
        self.tried_by.clear()
        self.reached_by.clear()


@dataclass(slots=True)
class TaskSightings:
    """How far the tasks of a node out of contact were when it was lost from sight, or since."""

    by_task: dict[TaskId, SeenProgress] = field(default_factory=dict)

    def keep(self, by_task: dict[TaskId, SeenProgress]) -> None:
        """The node is lost from sight: its tasks are so far."""
        self.by_task = by_task

    def note(self, task: TaskId, seen: SeenProgress) -> None:
        """The task was seen to advance, or is looked at for the first time."""
        self.by_task[task] = seen


@dataclass(slots=True)
class Service:
    """Whether ranks may run on the node."""

    isolated: str = ""
    """Why no rank may run there although it is in contact; empty for a node in service."""
    isolated_gpus: dict[int, str] = field(default_factory=dict)
    """Why no rank may run on these workers, by slot, although the node is in service."""
    faults: list[Occurrence] = field(default_factory=list)
    """Its faults, while they count; faults of drills only if policy counts them."""

    def isolate(self, reason: str) -> None:
        """No rank may run on the node; or another reason for that is known now."""
        self.isolated = reason

    def isolate_gpu(self, slot: int, reason: str) -> None:
        """No rank may run on one of its GPUs."""
        self.isolated_gpus[slot] = reason

    def count(self, fault: Occurrence, since: float) -> None:
        """Count a fault; those before ``since`` stop to count."""
        self.faults = [*(each for each in self.faults if each.at >= since), fault]

    def release(self) -> None:
        """The node goes back into service; its old faults do not isolate it again at once."""
        self.isolated = ""
        self.faults.clear()

    def release_all(self) -> None:
        """The node goes back into service with all its GPUs."""
        self.release()
        self.isolated_gpus.clear()

    def release_gpu(self, worker: Worker) -> None:
        """One GPU goes back into service; its old faults do not isolate it again at once."""
        self.isolated_gpus.pop(worker.slot, None)
        self.faults = [each for each in self.faults if each.worker != worker]


@dataclass(slots=True)
class NodeMembership:
    """Whether the node belongs to the cluster."""

    node: NodeId
    index: NodeIndex = field(default_factory=NodeIndex, repr=False)
    """The cluster's."""
    is_leaving: bool = False
    """It was removed, and still has processes of tasks. A plan gives it no workers any more."""

    def join_index(self, index: NodeIndex) -> None:
        """The node was read from a file: this index has what it is."""
        self.index = index

    def begin_leaving(self) -> None:
        """The node was removed."""
        self.is_leaving = True
        self.index.note_leaving(self.node, is_leaving=True)

    def end_leaving(self) -> None:
        """The node has left, or is to stay after all."""
        if self.is_leaving:
            self.is_leaving = False
            self.index.note_leaving(self.node, is_leaving=False)


@dataclass(slots=True)
class Inventory:
    """What lives on the node and should not."""

    strays: set[Worker] = field(default_factory=set)
    """Workers with a process of a measurement that is over: it was left behind out of contact."""

    def note_strays(self, strays: set[Worker]) -> None:
        """The node lists these, and nobody else there."""
        self.strays = strays


@dataclass(slots=True)
class Findings:
    """What the node's probes report."""

    present: dict[tuple[str, str], NodeFinding] = field(default_factory=dict)
    """What its probes find now, by sign and subject; findings that are over are left out."""
    found_at: dict[tuple[str, str], float] = field(default_factory=dict)
    """When each present finding was found first."""
    messages: list[Message] = field(default_factory=list)
    """The newest words of its kernel and tools: some faults take several to be understood."""

    def keep(self, finding: NodeFinding, at: float) -> bool:
        """Keep a finding until it is over; return whether it was known before."""
        key = (finding.sign, finding.subject)
        was_open = key in self.present
        if finding.is_over:
            self.present.pop(key, None)
            self.found_at.pop(key, None)
        elif not finding.is_event and finding.sign != "message":
            self.present[key] = finding
            self.found_at.setdefault(key, at)
        return was_open

    def forget_those_of_agent(self) -> None:
        """A new agent begins: it does not say that what its predecessor found is over."""
        self.present = {key: one for key, one in self.present.items() if one.probe == "clock"}
        self.found_at = {key: at for key, at in self.found_at.items() if key in self.present}

    def hear(self, message: Message, since: float) -> list[Message]:
        """Keep new words; return those before that are not older than ``since``."""
        before = [each for each in self.messages if each.at >= since]
        self.messages = [*before, message][-_MAX_MESSAGES:]
        return before

    def forget_messages(self) -> None:
        """The node goes back into service: words of before explain no new fault."""
        self.messages.clear()


@dataclass(slots=True)
class Unclaimed:
    """Findings that no incident explains yet."""

    evidence: list[Evidence] = field(default_factory=list)
    """The newest ones: a rank may be about to report the same fault."""

    def keep(self, evidence: Evidence) -> None:
        """No incident explains this finding."""
        self.evidence = [*self.evidence, evidence][-_MAX_UNCLAIMED:]

    def claim(self) -> list[Evidence]:
        """Return all of it: a rank of the node has broken."""
        found, self.evidence = self.evidence, []
        return found


@dataclass(slots=True)
class NodeState:
    """One node: what it is, and its records."""

    spec: NodeSpec
    contact: Contact
    membership: NodeMembership
    inquiry: LossInquiry = field(default_factory=LossInquiry)
    reach: PeerReach = field(default_factory=PeerReach)
    sightings: TaskSightings = field(default_factory=TaskSightings)
    service: Service = field(default_factory=Service)
    inventory: Inventory = field(default_factory=Inventory)
    findings: Findings = field(default_factory=Findings)
    unclaimed: Unclaimed = field(default_factory=Unclaimed)
    upkeep: NodeUpkeep = field(default_factory=NodeUpkeep)

    @property
    def is_in_service(self) -> bool:
        """Whether a plan may give its workers to tasks."""
        is_leaving = self.membership.is_leaving or self.upkeep.is_out
        is_wanted = not self.service.isolated and not is_leaving
        return self.contact.condition is NodeCondition.HEALTHY and is_wanted

    def join_index(self, index: NodeIndex) -> None:
        """The node was read from a file: it belongs to this cluster."""
        self.contact.join_index(index)
        self.membership.join_index(index)
        self.upkeep.join(self.spec.node, index)

    def change_spec(self, spec: NodeSpec) -> None:
        """Operators describe the node in another way."""
        self.spec = spec
