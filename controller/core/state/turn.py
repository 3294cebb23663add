"""One event being handled: the state, the time, and the instructions so far."""

from dataclasses import dataclass, field

from controller.core.instructions import Announce, AnswerRequest, Fact, Instruction, Level, SetTimer
from controller.core.rules.planner.lookup import LookupTable
from controller.core.rules.policy import Policy
from controller.core.state.cluster import ClusterState
from controller.core.timers import Timer
from nodeagent.protocol.ids import TaskId


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A plan is wanted at the end of the turn; see ``planning.propose``."""

    trigger: str
    seen: str
    incidents: frozenset[str] = frozenset()
    tries: TaskId | None = None
    """A held task that takes part."""


@dataclass(slots=True)
class Turn:
    """Passed through the core's modules while one event is handled.

    Attributes:
        state: The core's memory; changed in place.
        policy: What operators decided in advance.
        cause: Number of the event.
        at: Its time, seconds since the controller's start.
        table: Precomputed divisions. They save time and do not change the result.
        instructions: What has been caused so far, in order.
        plan_requests: Plans that are wanted and not made yet.
        num_settled_before: Tasks that had left their workers before the event.
        is_repetition: Whether the event reports only what is known already.
    """

    state: ClusterState
    policy: Policy
    cause: int
    at: float
    table: LookupTable = field(default_factory=LookupTable)
    instructions: list[Instruction] = field(default_factory=list)
    plan_requests: list[PlanRequest] = field(default_factory=list)
    num_settled_before: int = 0
    is_repetition: bool = False

    @property
    def heals(self) -> bool:
        """Whether plans are applied without an operator."""
        return self.policy.heals and not self.state.automation.stopped

    def ask_for_plan(self, request: PlanRequest) -> None:
        """Have a plan made at the end of the turn."""
        self.plan_requests.append(request)

    def want_plan(self, subject: str, seen: str) -> None:
        """Have a plan made for a change of ``subject`` once no node out of contact holds it up.

        ``seen`` is its reason, for people. See ``membership.wanted_plans``.
        """
        self.state.wanted_plans.want(subject, seen, self.at)

    def take_plan_requests(self) -> list[PlanRequest]:
        """Return the plans that are wanted; they are made now."""
        requests, self.plan_requests = self.plan_requests, []
        return requests

    def note_repetition(self, *, is_repetition: bool) -> None:
        """Say whether the event reports only what is known already."""
        self.is_repetition = is_repetition

    def emit(self, instruction: Instruction) -> None:
        """Add an instruction."""
        self.instructions.append(instruction)

    def announce(self, level: Level, kind: str, source: str, text: str, **facts: Fact) -> None:
        """Announce something to operators and to the event log."""
        self.emit(Announce(self.cause, level, kind, source, text, tuple(facts.items())))

    def answer(self, request_id: str, message: str, code: str = "ok") -> None:
        """Answer an operator's request, which is granted."""
        self.emit(AnswerRequest(self.cause, request_id, is_ok=True, code=code, message=message))

    def refuse(self, request_id: str, code: str, message: str) -> None:
        """Refuse an operator's request, with ``code`` for programs and ``message`` for people."""
        self.emit(AnswerRequest(self.cause, request_id, is_ok=False, code=code, message=message))

    def set_timer(self, timer: Timer, after_s: float) -> None:
        """Have ``timer`` fire after ``after_s`` seconds."""
        self.emit(SetTimer(self.cause, timer, after_s))
