"""Rendezvous files that outlive their controller: their content, their lifetime, and damage."""

import base64
import itertools
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import pytest
from hypothesis import given, strategies as st

from controller.fleet.rendezvous_tables import RendezvousTables
from controller.store.rendezvous_files import RendezvousFiles
from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.rendezvous import StoreCall, StoreOperation, StoreReply

A = TaskId("gpt-a")
_numbers = itertools.count()


def call(
    operation: StoreOperation, key: str, value: str = "", *, generation: int = 1, task: TaskId = A
) -> StoreCall:
    texts = {"set": [value], "append": [value], "compare_set": ["", value]}.get(operation, [])
    return StoreCall(
        call_id=str(next(_numbers)),
        task=task,
        generation=Generation(generation),
        operation=operation,
        keys=[] if operation == "num_keys" else [key],
        values=[base64.b64encode(text.encode()).decode() for text in texts],
        amount=1,
        timeout_s=0.0,
    )


class Controller:
    """What a controller does with calls: keep, then carry out."""

    def __init__(self, files: RendezvousFiles) -> None:
        self.files = files
        self._tables: RendezvousTables[str] = RendezvousTables()
        for kept in files.read():
            self._tables.call("", kept, 0.0)

    def answer(self, one: StoreCall) -> StoreReply:
        self.files.keep(one)
        return self._tables.call("n1", one, 0.0)[-1][1]

    def drop(self, task: TaskId, generation: Generation) -> None:
        self.files.drop(task, generation)
        self._tables.drop(task, generation)


class Run:
    """Controllers that follow one another, and what they tell operators."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.notes: list[str] = []
        self._files: list[RendezvousFiles] = []

    def controller(self) -> Controller:
        """Begin the next one; the one before is not asked to end."""
        files = RendezvousFiles(self.directory, lambda _task, text: self.notes.append(text))
        self._files.append(files)
        return Controller(files)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())

    def close(self) -> None:
        for files in self._files:
            files.close()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path / "rendezvous")
    yield run
    run.close()
    assert not run.notes, "every line for operators is expected by its test"


_steps = st.lists(
    st.one_of(
        st.builds(
            call,
            st.sampled_from(get_args(StoreOperation)),
            st.sampled_from("xy"),
            st.sampled_from(["", "1", "2"]),
            generation=st.integers(1, 3),
            task=st.sampled_from([A, TaskId("b")]),
        ),
        st.tuples(st.sampled_from([A, TaskId("b")]), st.integers(1, 2)),
    ),
    max_size=20,
)


@given(_steps, st.integers(0, 20))
def test_the_next_controller_answers_as_the_one_before_would_have(
    steps: list[StoreCall | tuple[TaskId, int]], killed_at: int
) -> None:
    with TemporaryDirectory() as kept, TemporaryDirectory() as other:
        runs = [Run(Path(kept)), Run(Path(other))]
        controller, undisturbed = (run.controller() for run in runs)
        ended: dict[TaskId, int] = {}
        for number, step in enumerate(steps):
            if number == killed_at:
                controller = runs[0].controller()
                for task, generation in ended.items():  # as the journal says
                    controller.drop(task, Generation(generation))
            if isinstance(step, StoreCall):
                assert controller.answer(step) == undisturbed.answer(step)
                # A rank repeats the call whose answer it may not have had.
                assert controller.answer(step) == undisturbed.answer(step)
                ended[step.task] = max(ended.get(step.task, 0), step.generation - 1)
            else:
                task, generation = step
                ended[task] = max(ended.get(task, 0), generation)
                for each in (undisturbed, controller):
                    each.drop(task, Generation(generation))
        assert not [note for run in runs for note in run.notes]
        for run in runs:
            run.close()


def test_every_call_that_changes_a_table_outlives_the_controller(run: Run) -> None:
    controller = run.controller()
    controller.answer(call("set", "x", "1"))
    controller.answer(call("append", "x", "2"))
    controller.answer(call("set", "gone", "1"))
    controller.answer(call("delete_key", "gone"))
    controller.answer(call("compare_set", "lock", "mine"))
    arrival = call("add", "count")
    assert controller.answer(arrival).number == 1
    following = run.controller()
    assert following.answer(call("num_keys", "")).number == 3
    assert following.answer(call("get", "x")).value == base64.b64encode(b"12").decode()
    assert following.answer(call("get", "lock")).value == base64.b64encode(b"mine").decode()
    assert following.answer(arrival).number == 1, "a repeated call is answered, not carried out"
    assert following.answer(call("add", "count")).number == 2


def test_the_end_of_a_generation_leaves_other_tasks_alone(run: Run) -> None:
    controller = run.controller()
    for task in (A, TaskId("gpt"), TaskId("gpt-a@measure")):
        controller.answer(call("set", "x", "1", task=task))
    controller.drop(A, Generation(1))
    assert run.names() == ["gpt-a@measure.1.jsonl", "gpt.1.jsonl"]
    controller.answer(call("set", "x", "1"))
    assert "gpt-a.1.jsonl" not in run.names(), "nothing is kept of what has ended"


@pytest.mark.parametrize("name", ["../../x", "a\0b", "a\nb", "", "a/b", "a" * 300])
def test_no_name_leads_out_of_the_directory(run: Run, name: str) -> None:
    controller = run.controller()
    assert controller.answer(call("set", "x", "1", task=TaskId(name))).error is None
    controller.drop(TaskId(name), Generation(1))
    assert not run.directory.exists()


def test_an_older_file_of_a_task_is_none_of_its_table(run: Run) -> None:
    run.controller().answer(call("set", "x", "1", generation=10))
    (run.directory / "gpt-a.9.jsonl").write_text(
        call("set", "y", "1", generation=9).model_dump_json() + "\n"
    )
    assert run.controller().answer(call("num_keys", "", generation=10)).number == 1
    assert run.names() == ["gpt-a.10.jsonl"]


def test_a_process_without_free_descriptors_is_told_and_nothing_raises(run: Run) -> None:
    run.controller().answer(call("set", "x", "1"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        controller = run.controller()
        controller.answer(call("set", "x", "1", generation=2))
        controller.answer(call("set", "y", "1", generation=2))
        controller.drop(A, Generation(2))
        controller.files.clear()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    told, run.notes = run.notes, []
    assert len(told) == 3, "reading, writing once, clearing"
    assert all("Too many open files" in text for text in told)


def test_files_are_for_their_owner_alone_and_go_with_their_generation(run: Run) -> None:
    controller = run.controller()
    controller.answer(call("get", "x"))
    assert not run.directory.exists(), "what changes no table is not kept"
    controller.answer(call("set", "x", "1"))
    assert run.directory.stat().st_mode & 0o777 == 0o700
    assert (run.directory / "gpt-a.1.jsonl").stat().st_mode & 0o777 == 0o600
    controller.answer(call("set", "x", "1", generation=2))
    assert run.names() == ["gpt-a.2.jsonl"]
    controller.answer(call("set", "x", "1", generation=1))
    assert run.names() == ["gpt-a.2.jsonl"]
    run.controller().drop(A, Generation(2))
    assert not run.names(), "also what only a former controller has kept"


def test_a_run_begins_without_what_another_has_left(run: Run) -> None:
    run.controller().answer(call("set", "x", "1"))
    (run.directory / "other.txt").touch()
    run.controller().files.clear()
    assert run.names() == ["other.txt"]


def test_a_line_that_was_cut_off_was_not_answered(run: Run) -> None:
    run.controller().answer(call("set", "x", "1"))
    path = run.directory / "gpt-a.1.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:30])
    controller = run.controller()
    assert controller.answer(call("num_keys", "")).number == 1
    controller.answer(call("set", "y", "2"))
    assert run.controller().answer(call("num_keys", "")).number == 2


def test_a_damaged_file_is_told_and_removed(run: Run) -> None:
    run.controller().answer(call("set", "x", "1"))
    run.controller().answer(call("set", "x", "1", task=TaskId("b")))
    (run.directory / "gpt-a.1.jsonl").write_bytes(b"\xff{}\n")
    assert run.controller().answer(call("num_keys", "")).number == 0
    assert "gpt-a.1.jsonl: a line of it is damaged" in run.notes.pop()
    assert run.names() == ["b.1.jsonl"]


def test_what_can_not_be_written_is_told_once_and_ranks_meet_all_the_same(run: Run) -> None:
    run.directory.write_text("a file")
    controller = run.controller()
    controller.answer(call("set", "x", "1"))
    assert controller.answer(call("set", "y", "1")).error is None
    assert controller.answer(call("num_keys", "")).number == 2
    told = f"{run.directory}/gpt-a.1.jsonl: File exists; if the controller is replaced now"
    assert run.notes.pop().startswith(told)
    assert "rendezvous: Not a directory" in run.notes.pop(), "told when it was to be read"


def test_half_of_a_table_is_not_kept(run: Run) -> None:
    controller = run.controller()
    controller.answer(call("set", "x", "1"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        controller.answer(call("set", "y", "1"))
        controller.answer(call("set", "z", "1"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "gpt-a.1.jsonl: File too large" in run.notes.pop()
    assert not run.names()
    controller.answer(call("set", "x", "1", generation=2))
    assert run.names() == ["gpt-a.2.jsonl"]
