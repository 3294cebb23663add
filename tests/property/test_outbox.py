"""The outbox against a model: an agent that dies after any number of bytes loses no report.

A rank sends numbered reports and repeats those that were not answered. The agent may be killed at
any instant, between records or in the middle of one. A controller sees reports, acknowledges, and
attaches again. In the end it must have seen every report once, in the rank's order.

It also halts generations. A halted generation stays recorded, as a whole, in every later state.
"""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from hypothesis.strategies import booleans, integers

from nodeagent.outbox.outbox_file import OutboxFile
from nodeagent.outbox.outbox_records import Mark, MarkScope
from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.messages import Report
from nodeagent.protocol.observations import RankDone
from nodeagent.protocol.orders import HaltOrder
from tests.fakes.examples import num_examples

RANK = "gpt-a.1.0.7"
TASK = TaskId("gpt-a")


class OutboxMachine(RuleBasedStateMachine):
    """One rank, one agent after another, one controller."""

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        self._path = Path(self._directory.name) / "outbox.jsonl"
        self._outbox = OutboxFile(self._path, compact_bytes=300)
        self._num_said = 0
        self._num_answered = 0
        self._seen: list[Report] = []
        self._num_journalled = 0
        self._halted = 0
        self._broken: set[int] = set()
        self._is_boundary_enough = True

    @initialize()
    def attach_first(self) -> None:
        self._outbox.attach("run-1", 1, 0, [])

    @rule()
    def rank_says_something(self) -> None:
        self._num_said += 1

    @rule(num=integers(1, 5))
    def agent_takes_what_is_unanswered(self, num: int) -> None:
        for number in range(
            self._num_answered + 1, min(self._num_said, self._num_answered + num) + 1
        ):
            self._store(number)
            self._num_answered = number

    @rule()
    def agent_dies_before_it_answers(self) -> None:
        if self._num_answered < self._num_said:
            self._store(self._num_answered + 1)
        self._restart()

    @rule(num_bytes=integers(0, 400))
    def agent_dies_in_the_middle_of_a_record(self, num_bytes: int) -> None:
        if self._num_answered < self._num_said:
            size = self._path.stat().st_size
            inode = self._path.stat().st_ino
            self._store(self._num_answered + 1)
            # Not where the file was rewritten: that is one step, and did not end half-way.
            if self._path.stat().st_ino == inode:
                with self._path.open("r+b") as file:
                    file.truncate(min(self._path.stat().st_size, size + num_bytes))
        self._restart()

    @rule()
    def controller_reads(self) -> None:
        last_seq = self._seen[-1].seq if self._seen else 0
        for held in self._outbox.outbox.after(last_seq):
            self._seen.append(Report.model_validate_json(held.line))

    @rule()
    def controller_acknowledges(self) -> None:
        if self._seen:
            self._num_journalled = len(self._seen)
            self._outbox.acknowledge(self._seen[-1].seq)

    @rule()
    def controller_dies_and_reads_again_from_its_journal(self) -> None:
        del self._seen[self._num_journalled :]
        self._outbox.attach("run-1", 1, self._seen[-1].seq if self._seen else 0, [])

    @rule(generation=integers(1, 4), rank=integers(0, 3), at_boundary=booleans())
    def controller_halts(self, generation: int, rank: int, *, at_boundary: bool) -> None:
        halt = HaltOrder(
            task=TASK, generation=Generation(generation), broken=(rank,), at_boundary=at_boundary
        )
        self._outbox.request_halt(halt)
        if generation > self._halted:
            self._halted, self._broken, self._is_boundary_enough = generation, set(), True
        if generation == self._halted:
            self._broken.add(rank)
            self._is_boundary_enough &= at_boundary

    @invariant()
    def newest_halt_is_whole(self) -> None:
        halt = self._outbox.outbox.halt(TASK)
        assert (halt is None) == (self._halted == 0)
        if halt is not None:
            assert halt.generation == self._halted
            assert halt.broken == tuple(sorted(self._broken))
            assert halt.at_boundary == self._is_boundary_enough

    @invariant()
    def everything_answered_is_seen_or_held_once_and_in_order(self) -> None:
        last_seq = self._seen[-1].seq if self._seen else 0
        held = [Report.model_validate_json(one.line) for one in self._outbox.outbox.after(last_seq)]
        told = [*self._seen, *held]
        assert [report.seq for report in told] == list(range(1, len(told) + 1))
        numbers = [report.observation.iteration for report in told]  # type: ignore[union-attr]
        assert numbers == list(range(1, len(told) + 1))
        assert len(told) >= self._num_answered

    def teardown(self) -> None:
        self._outbox.close()
        self._directory.cleanup()

    def _store(self, number: int) -> None:
        observation = RankDone(
            task=TASK,
            generation=Generation(1),
            global_rank=0,
            iteration=number,
            reason="stopped",
        )
        self._outbox.store(observation, 0.0, Mark(scope=MarkScope.INTAKE, name=RANK, value=number))

    def _restart(self) -> None:
        self._outbox.close()
        self._outbox = OutboxFile(self._path, compact_bytes=300)


TestOutbox = OutboxMachine.TestCase
TestOutbox.settings = settings(max_examples=num_examples(60), stateful_step_count=40, deadline=None)
