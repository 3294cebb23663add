"""A task of real ranks over its generations: stands for the controller's part in a regroup.

It starts ranks, waits until one breaks, has the others park, asks the core how to go on
(``controller.core.rules.regroup.next_generation``), and carries that out. When the task is finished
it tells what happened to every iteration.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from controller.core.rules.placement import Worker
from controller.core.rules.regroup.copy_holders import copy_holders
from controller.core.rules.regroup.next_generation import ResumeDecision, decide, known_votes
from controller.core.rules.regroup.parked import Parked
from controller.core.rules.regroup.replicas import part_of
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.observations import RankHalted, RankRaised
from nodeagent.protocol.rank_launch import RankLaunch, TrainingSpec
from nodeagent.protocol.regroup import Position, RankRef, Resume
from profiles.layout import Layout
from tests.fakes.fault_points import (
    Contribution,
    Fault,
    contributions_path,
    plan_path,
)
from tests.fakes.process_states import is_alive, is_stopped
from tests.fakes.rank_host import RankHost, RankRecord


class NotReachedError(AssertionError):
    """A rank did not come by the point at which it was to break."""


@dataclass
class Member:
    """One rank's process.

    Attributes:
        launch: Who it is now.
        born: Who it was first; its files keep that name.
        pid: Of the process.
    """

    launch: RankLaunch
    born: RankLaunch
    pid: int


@dataclass
class RankTask:
    """A task.

    Attributes:
        host: Where its ranks run.
        training: Its settings.
        layout: Of the present generation.
        name: A name that no other task of the host has.
        limit_s: How long anything may take.
        halt_limit_s: How long ranks may take to park. Whoever takes longer is replaced, as the
            controller does it.
    """

    host: RankHost
    training: TrainingSpec
    layout: Layout
    name: str
    limit_s: float = 60.0
    halt_limit_s: float = 10.0
    members: dict[int, Member] = field(default_factory=dict)
    waiting: dict[int, Member] = field(default_factory=dict)
    """Processes that wait beside the generation, by numbers beyond its ranks."""
    decisions: list[ResumeDecision] = field(default_factory=list)
    positions: dict[int, Position] = field(default_factory=dict)
    losses: dict[int, float] = field(default_factory=dict)
    num_stuck: int = 0
    """Ranks that did not park in time: sometimes gloo does not wake an operation."""
    generation: int = 0
    _resume: Resume | None = None

    # --- a generation ----------------------------------------------------------------------

    def start(self, faults: Iterable[Fault] = ()) -> None:
        """Start the first generation; its ranks break as ``faults`` say, if they can."""
        self.host.plan(self.name, faults)
        self._begin(self.layout, {}, Resume(), self._fork)

    def wait_for_fault(self, fault: Fault) -> None:
        """Wait until the rank of ``fault`` broke, as it should.

        Raises:
            NotReachedError: It did not pass that point, and the task is at its end.
            AssertionError: It broke in another way, or not in time.
        """
        member = self.members[fault.global_rank]
        match fault.action:
            case "kill":
                ended = self.host.wait_for_exit(member.born, self.limit_s)
                if ended["exit_code"] == 0:
                    raise NotReachedError(f"finished without passing {fault}")
                assert ended["signal"] == signal.SIGKILL, f"did not reach {fault}: {ended}"
            case "stop":
                self.host.wait_for(lambda: is_stopped(member.pid), self.limit_s)
            case "sleep" | "receive" | "linger" | "spin":
                # Its log comes into being a moment after the fork.
                record = self.host.record(member.launch)
                self.host.wait_for(lambda: record.hellos, self.limit_s)
                self.host.wait_for(lambda: "breaks: " in self.host.log(member.born), self.limit_s)
                if fault.action == "linger":
                    self.host.wait_for(lambda: self._all_have_begun(fault), self.limit_s)
            case "raise":
                record = self.host.record(member.launch)
                raised = self._wait_for_report(record, "rank_raised")
                assert raised.exception_type == "InjectedError", raised.traceback

    def _all_have_begun(self, fault: Fault) -> bool:
        """Return whether all ranks are in the iteration of ``fault``, past the copies before it."""
        standings = self.host.ask([member.launch for member in self.members.values()])
        return all(
            one.iteration == fault.iteration and one.phase != "idle" for one in standings.values()
        )

    def lose(self, *numbers: int) -> None:
        """Kill ranks, wherever they are."""
        for number in numbers:
            self._kill(self.members[number])

    def park(self, lost: Collection[int], *, going_on: Collection[int] = ()) -> dict[int, Position]:
        """Have all but the lost ranks park; return where those stand that have anything.

        Args:
            lost: Ranks that broke.
            going_on: Ranks of ``lost`` that are parked and continue in their processes.
        """
        survivors = [
            one for number, one in self.members.items() if number not in lost or number in going_on
        ]
        records = [self.host.record(member.launch) for member in survivors]
        self.host.wait_for(lambda: all(record.hellos for record in records), self.limit_s)
        self.host.halt([member.launch for member in survivors], sorted(lost))
        self.positions = self._positions([member.launch for member in survivors])
        self._note_losses()
        return self.positions

    def regroup(
        self,
        layout: Layout | None = None,
        *,
        spares_left_out: Collection[int] = (),
        leaves_waiting: Collection[int] = (),
        start: Callable[[RankLaunch], int] | None = None,
    ) -> ResumeDecision:
        """Go on in the next generation, with new processes where none is parked.

        Args:
            layout: Of the next generation; fewer replicas keep whole ones. None keeps it.
            spares_left_out: Ranks whose processes are not killed although they are left out.
            leaves_waiting: Ranks that are left out and wait, with their models, to be ranks again.
            start: Starts a new rank and returns its pid; None forks it from the template.
        """
        old, new = self.layout, layout or self.layout
        continues = continuing(old, new, self.positions)
        training = self.training
        parked = Parked(
            old, training.num_micro_batches, self.positions, self._resume, training.shard_optimizer
        )
        decision = decide(parked, new, continues)
        self.decisions.append(decision)
        resume = decision.resume
        if resume.source == "peer":
            level = resume.level
            vote = known_votes(parked).get(level)
            if vote is not None:
                self.losses[vote.iteration] = vote.loss
        self.host.drop_generation(next(iter(self.members.values())).launch)
        left = {number: self.members[number] for number in leaves_waiting}
        for number in set(self.members) - set(continues) - set(spares_left_out) - set(left):
            self._kill(self.members[number])
        going_on = {place: self.members[number] for number, place in continues.items()}
        for member in self.waiting.values():
            going_on[_free_place(new, member.launch, going_on)] = member
        self._begin(new, going_on, resume, start or self._fork)
        self.waiting = {}
        for place, member in enumerate(left.values(), new.num_workers):
            stands_for = _free_place(new, member.launch, ())
            launch = self._launch(place, member).model_copy(update={"prepares_for": stands_for})
            self.host.join(member.launch, launch)
            self.waiting[place] = Member(launch, member.born, member.pid)
        return decision

    def finish(self, *, orphans: Collection[int] = ()) -> None:
        """Wait for the clean end of all ranks.

        Args:
            orphans: Ranks whose template is gone, so that nobody records how they exit.
        """
        for number, member in self.members.items():
            record = self.host.record(member.launch)
            if number in orphans:
                self._wait_for_report(record, "rank_done")
            else:
                ended = self.host.wait_for_exit(member.born, self.limit_s)
                assert ended["exit_code"] == 0, self.host.log(member.born)[-3000:]
            assert record.hellos[-1].pid == member.pid, "a survivor is another process now"
        self._note_losses()

    # --- what became of it -------------------------------------------------------------------

    def contributions(self) -> list[Contribution]:
        """Return what the ranks gave to the reductions, in the order of time."""
        path = contributions_path(self.host.state_dir, self.name)
        return [Contribution.model_validate_json(line) for line in path.read_text().splitlines()]

    def forget(self) -> None:
        """Remove the files that are not the training's."""
        for path in (plan_path, contributions_path):
            path(self.host.state_dir, self.name).unlink(missing_ok=True)
        self.host.forget(self.name)

    # --- within --------------------------------------------------------------------------------

    def _fork(self, launch: RankLaunch) -> int:
        return self.host.start([launch])[launch.global_rank]

    def _begin(
        self,
        layout: Layout,
        going_on: dict[int, Member],
        resume: Resume,
        start: Callable[[RankLaunch], int],
    ) -> None:
        self.generation += 1
        self.layout, self._resume = layout, resume
        members: dict[int, Member] = {}
        for number in range(layout.num_workers):
            old = going_on.get(number)
            launch = self._launch(number, old)
            if old is None:
                members[number] = Member(launch, launch, start(launch))
            else:
                self.host.join(old.launch, launch)
                members[number] = Member(launch, old.born, old.pid)
        self.members = members

    def _launch(self, number: int, old: Member | None) -> RankLaunch:
        assert self._resume is not None
        continues = None
        if old is not None:
            continues = RankRef(
                generation=old.launch.generation, global_rank=old.launch.global_rank
            )
        # A node for each rank.
        placement = [Worker(NodeId(f"n{rank}"), 0) for rank in range(self.layout.num_workers)]
        is_sharded = self.training.shard_optimizer
        return RankLaunch(
            task=TaskId(self.name),
            generation=Generation(self.generation),
            global_rank=number,
            worker=number,
            layout=self.layout,
            training=self.training,
            continues=continues,
            resume=self._resume,
            copy_holders=copy_holders(self.layout, placement, is_sharded=is_sharded)
            if self.training.memory_interval
            else (),
        )

    def _positions(self, launches: list[RankLaunch]) -> dict[int, Position]:
        """Return the positions of the ranks that park in time and have any."""
        records = {launch.global_rank: self.host.record(launch) for launch in launches}
        with contextlib.suppress(AssertionError):
            self.host.wait_for(lambda: all(map(_parked, records.values())), self.halt_limit_s)
        reports = {number: _parked(record) for number, record in records.items()}
        self.num_stuck += sum(report is None for report in reports.values())
        return {n: one.position for n, one in reports.items() if one and one.position}

    def _wait_for_report(self, record: RankRecord, kind: str) -> Any:  # noqa: ANN401 - one of many
        return self.host.wait_for(lambda: record.of_kind(kind), self.limit_s)[0]

    def _note_losses(self) -> None:
        self.losses.update(self.host.record(self.members[0].launch).loss_by_iteration)

    def _kill(self, member: Member) -> None:
        if self.host.has_ended(member.born):
            return  # its pid may be another's by now
        with contextlib.suppress(ProcessLookupError):
            os.kill(member.pid, signal.SIGKILL)
        self.host.wait_for(lambda: not is_alive(member.pid), self.limit_s)


def _free_place(layout: Layout, launch: RankLaunch, taken: Collection[int]) -> int:
    """Return the first free rank of ``layout`` with the model part of ``launch``."""
    was = launch.global_rank if launch.prepares_for is None else launch.prepares_for
    part = part_of(launch.layout, was)
    return next(
        n for n in range(layout.num_workers) if n not in taken and part_of(layout, n) == part
    )


def continuing(old: Layout, new: Layout, parked: Collection[int]) -> dict[int, int]:
    """Return the new rank by the old one of those that go on; fewer replicas keep whole ones."""
    if new == old:
        return {number: number for number in parked}
    replicas = [
        replica
        for replica in range(old.dp)
        if all(n in parked for n in range(old.num_workers) if old.dp_rank(n) == replica)
    ]
    place_by_replica = {replica: place for place, replica in enumerate(replicas[: new.dp])}
    return {
        number: old.tp_rank(number)
        + old.tp * (place_by_replica[old.dp_rank(number)] + new.dp * old.pp_rank(number))
        for number in parked
        if old.dp_rank(number) in place_by_replica
    }


def _parked(record: RankRecord) -> RankHalted | RankRaised | None:
    reports = [*record.of_kind("rank_halted"), *record.of_kind("rank_raised")]
    return reports[0] if reports else None
