"""The records of a task that say what it has been through: progress, transitions, faults, limits.

A record's fields are assigned by its own methods alone; everybody may read them.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from controller.core.rules.actions import Cure
from controller.core.rules.evidence import Evidence, has_broken_hardware
from controller.core.rules.failed_start import FailedStart
from controller.core.rules.placement import Worker
from controller.core.rules.transitions import Experience, Transition
from controller.core.specs import TaskSpec
from nodeagent.protocol.ids import Generation, NodeId
from nodeagent.protocol.observations import CheckpointSaved
from nodeagent.protocol.regroup import StateSource
from profiles.faults.status import Action
from profiles.layout import Layout

_NOT_IN_PROCESS: Final = "command task: its program is restarted"
"""What stands among the settings of a task that do not recover in process."""

_MOST_LOSSES: Final = 5000
"""More iterations than are run again after a fault, as checkpoints are saved more often."""

_SMOOTHING: Final = 0.3
"""Weight of the newest iteration in the moving averages."""


@dataclass(slots=True)
class Transitions:
    """The task's steps from one generation to the next, and what is learned from them."""

    current: Transition | None = None
    """The present one, or the newest."""
    experience: Experience = field(default_factory=Experience)

    def begin(self, transition: Transition | None) -> None:
        """A generation begins; the first one of a task is no transition."""
        self.current = transition

    def note_states(self, at: float, *, form_s: float, state_s: float) -> None:
        """All ranks have their state."""
        if self.current:
            self.current.join(at, form_s=form_s, state_s=state_s)

    def finish(self, at: float) -> Transition | None:
        """The task trains again: learn what the transition took, and return it."""
        if self.current is not None:
            self.current.finish(at)
            self.experience.learn(self.current)
        return self.current

    def drop(self) -> None:
        """The task runs again, and nobody saw when it began to train: nothing is learned."""
        self.current = None

    def learn_nothing(self) -> None:
        """The transition under way takes longer for a reason that no other one will have."""
        if self.current is not None:
            self.current.rule_out()

    def learn_nothing_unless_done(self) -> None:
        """A controller was away: only a transition that was done before has a known duration."""
        if self.current is not None and not self.current.is_done:
            self.current.rule_out()


@dataclass(slots=True)
class RunProgress:
    """How far a task is, and how fast."""

    iteration: int = 0
    """Newest iteration that is committed."""
    losses: dict[int, float] = field(default_factory=dict)
    """Of the newest iterations: one that is run again has to give the same."""
    state_iteration: int = 0
    """Iteration whose state the ranks have; behind ``iteration`` while iterations are run again."""
    num_rerun_iterations: int = 0
    redivided_after: int = 0
    """Newest iteration at the last change of tp or pp.

    Losses before it come from another division.
    """
    voted_iteration: int | None = None
    """Newest iteration that is known to be committed from its vote alone, without a report."""
    checkpoint_iteration: int = 0
    checkpoint_s: float = 0.0
    """How long the slowest checkpoint took to be complete on disk."""
    num_memory_uses: int = 0
    """Generations since the last new iteration that took state from in-memory checkpoints."""
    committed_at: float | None = None
    advanced_at: float = 0.0
    """When a rank was first known to have finished an iteration that none had."""
    mean_iteration_s: float | None = None
    tokens_per_s: float | None = None
    trained_in: Generation | None = None
    """The newest generation that has trained; None if the program has never trained here."""
    reporter: int | None = None
    """Rank whose iterations count in this generation of a command, where several print them."""
    is_unread_told: bool = False
    """Whether it was announced that a command's lines look like iterations and are not read."""

    def note_life(self, generation: Generation) -> None:
        """The generation trains, as far as its program shows."""
        self.trained_in = generation

    def note_new(self, iteration: int, loss: float | None) -> None:
        """An iteration is committed for the first time."""
        self.iteration = iteration
        if loss is not None:
            self.losses[iteration] = loss
            if len(self.losses) > _MOST_LOSSES:
                del self.losses[next(iter(self.losses))]

    def note_vote(self, iteration: int) -> bool:
        """An iteration is committed by its vote; return whether nobody had reported it."""
        self.state_iteration = max(self.state_iteration, iteration)
        if iteration <= self.iteration:
            return False
        self.voted_iteration = iteration
        return True

    def is_reported_by(self, number: int) -> bool:
        """Return whether this rank's iterations count: the first rank to report one is chosen."""
        if self.reporter is None:
            self.reporter = number
        return self.reporter == number

    def take_voted(self, iteration: int) -> bool:
        """A rank reports an iteration; return whether its vote was known already."""
        is_known, self.voted_iteration = iteration == self.voted_iteration, None
        return is_known

    def note_commit(self, iteration: int, at: float) -> None:
        """The ranks have the state of ``iteration``: the generation trains."""
        self.state_iteration, self.committed_at, self.num_memory_uses = iteration, at, 0

    def count_rerun(self) -> None:
        """An iteration was run again."""
        self.num_rerun_iterations += 1

    def add_speed(self, duration_s: float, tokens_per_s: float | None) -> None:
        """Take an iteration into the moving averages."""
        if self.mean_iteration_s is None:
            self.mean_iteration_s, self.tokens_per_s = duration_s, tokens_per_s
            return
        self.mean_iteration_s += _SMOOTHING * (duration_s - self.mean_iteration_s)
        if tokens_per_s is not None:
            known = tokens_per_s if self.tokens_per_s is None else self.tokens_per_s
            self.tokens_per_s = known + _SMOOTHING * (tokens_per_s - known)

    def tell_unread(self) -> bool:
        """Return whether it is to be announced, now and never again, that lines are not read."""
        is_new = not self.is_unread_told and not self.iteration
        self.is_unread_told |= is_new
        return is_new

    def begin_generation(self, before: Layout | None, layout: Layout) -> None:
        """A generation begins with ``layout``: with more replicas an iteration takes less time."""
        self.tokens_per_s = self.committed_at = self.reporter = None
        if before is None or (before.tp, before.pp) != (layout.tp, layout.pp):
            self.mean_iteration_s = None
            self.redivided_after = self.iteration
        elif self.mean_iteration_s is not None:
            self.mean_iteration_s *= before.dp / layout.dp

    def note_advance(self, at: float) -> None:
        """A rank has finished an iteration that none had."""
        self.advanced_at = at

    def note_checkpoint(self, saved: CheckpointSaved) -> None:
        """A checkpoint is complete on disk."""
        self.checkpoint_iteration = max(self.checkpoint_iteration, saved.iteration)
        self.checkpoint_s = max(self.checkpoint_s, saved.duration_s)

    def note_memory_use(self) -> None:
        """A generation takes state from in-memory checkpoints."""
        self.num_memory_uses += 1

    def resume_from(self, iteration: int, source: StateSource) -> int:
        """All ranks have the state of ``iteration``; return how many iterations are run again."""
        num_lost = max(0, self.state_iteration - iteration)
        self.state_iteration = iteration
        if source in {"disk", "seed"}:
            # Newer checkpoints were damaged, or did not hold what they promised.
            self.checkpoint_iteration = iteration
        return num_lost


@dataclass(slots=True)
class FaultHistory:
    """Recoveries of a task since its last new iteration, and what they blame."""

    num_recoveries: int = 0
    num_tries: int = 0
    """How often the controller has tried it again after it was handed to the operator."""
    last_cure: Cure | None = None
    """The newest cure of a fault."""
    suspects: list[NodeId | Worker] = field(default_factory=list)
    """Nodes, and workers for single GPUs, that were isolated because a restart there failed."""
    accused: list[NodeId] = field(default_factory=list)
    """Nodes that were isolated because only the task's ranks named broken hardware there."""
    failed_starts: list[FailedStart] = field(default_factory=list)
    """Starts that ended before an iteration, with the program's own words."""

    def count_recovery(self) -> None:
        """A recovery of the task begins."""
        self.num_recoveries += 1

    def note_cure(self, action: Action, worker: Worker | None) -> None:
        """Keep which cure is tried, and where: it may turn out not to help."""
        self.last_cure = Cure(action, worker)

    def suspect(self, subject: NodeId | Worker, last: Cure | None) -> None:
        """The node or GPU is isolated: on suspicion, if an earlier cure did not help."""
        if last is not None:
            self.suspects.append(subject)

    def accuse(self, node: NodeId, evidence: Sequence[Evidence]) -> None:
        """The node is isolated for broken hardware: an accusation, unless a probe has found it."""
        if not has_broken_hardware(evidence, node):
            self.accused.append(node)

    def forget_cures(self) -> None:
        """The task makes progress: the cures of its faults have helped."""
        self.begin_anew()
        self.num_tries = 0
        self.suspects.clear()
        self.accused.clear()

    def note_failed_starts(self, starts: Collection[FailedStart]) -> None:
        """Starts of the task have ended before an iteration, for what its program says."""
        self.failed_starts += [start for start in starts if start not in self.failed_starts]

    def count_try(self) -> None:
        """The controller tries a held task again by itself."""
        self.num_tries += 1

    def begin_anew(self) -> None:
        """A held task is tried again: recoveries before do not count any more."""
        self.num_recoveries, self.last_cure = 0, None
        self.failed_starts.clear()

    def clear_of_blame(self, subjects: Collection[NodeId | Worker]) -> None:
        """These nodes and GPUs are back in service, or have nothing to do with the fault."""
        self.suspects = [each for each in self.suspects if each not in subjects]
        self.accused = [each for each in self.accused if each not in subjects]

    def corroborate(self, node: NodeId) -> None:
        """More is known about the node than a suspicion of the task."""
        self.suspects = [each for each in self.suspects if node_of(each) != node]

    def confirm_accusation(self, node: NodeId) -> None:
        """A probe, or another task, also says that the node's hardware is broken."""
        self.accused = [each for each in self.accused if each != node]


def node_of(subject: NodeId | Worker) -> NodeId:
    """Return the node that is suspected, or whose GPU is."""
    return subject.node if isinstance(subject, Worker) else subject


@dataclass(slots=True)
class RegroupLimits:
    """What a regroup of the task can't use."""

    unsupported: tuple[str, ...] = ()
    """Settings that do not recover in process; with any of them, no process continues."""
    copies_failed_in: Generation | None = None
    """The generation that stayed at its old place because its copies did not get complete."""

    @classmethod
    def of(cls, spec: TaskSpec) -> "RegroupLimits":
        """Return the limits of a task that has never started."""
        return cls((_NOT_IN_PROCESS,) if spec.is_command else ())

    def add_unsupported(self, settings: Sequence[str]) -> list[str]:
        """Remember settings that rule out recovery in process; return those that are new."""
        new = [each for each in settings if each not in self.unsupported]
        self.unsupported = (*self.unsupported, *new)
        return new

    def note_failed_copies(self, generation: Generation) -> None:
        """Copies of the state did not get complete: this generation does not try it again."""
        self.copies_failed_in = generation

    def forget_failed_copies(self) -> None:
        """The task is where it is to be: another plan may need copies again."""
        self.copies_failed_in = None
