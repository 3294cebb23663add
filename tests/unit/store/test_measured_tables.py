"""The tables of what tasks achieve: kept from run to run, and never at a user's expense."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from controller.core.instructions import RecordIterations
from controller.core.specs import TaskSpec
from controller.store.measured_tables import MeasuredTables
from nodeagent.protocol.ids import TaskId
from profiles.layout import Layout
from profiles.table_file import load_table
from tests.fakes.clusters import table

A = TaskId("gpt-a")
DP1, DP2 = Layout(dp=1), Layout(dp=2)


def spec(flops_per_iteration: float = 1e9) -> TaskSpec:
    return TaskSpec(
        task=A, weight=1.0, workers=2, min_workers=1, table=table({1: 3.0, 2: 5.0, 4: 9.0}),
        flops_per_iteration=flops_per_iteration, num_iterations=None, num_micro_batches=4,
        is_command=not flops_per_iteration,
    )  # fmt: skip


class Run:
    """One controller's tables over a directory, and what operators were told."""

    def __init__(self, directory: Path, task: TaskSpec | None = None) -> None:
        self.notes: list[tuple[str, str]] = []
        note = self.notes.append
        self.tables = MeasuredTables(directory, lambda _: task or spec(), lambda *line: note(line))

    def record(self, layout: Layout, iteration_s: float, num: int = 1) -> None:
        self.tables.record(RecordIterations(1, A, layout, iteration_s, num))

    def end(self) -> None:
        """End the controller: what has changed is written."""

        async def run() -> None:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(self.tables.run())
                await asyncio.sleep(0)
                task.cancel()

        asyncio.run(run())


def test_a_table_is_written_and_the_next_run_refines_it(tmp_path: Path) -> None:
    directory = tmp_path / "state" / "profiles"
    first = Run(directory)
    first.record(DP2, 0.5, 4)
    first.record(DP1, 1.0)
    first.end()
    found = load_table(directory / "gpt-a.json")
    assert (found.version, found.title) == (1, "gpt-a, measured")
    assert [(p.workers, p.origin, p.iterations, p.flops_per_s) for p in found.points] == [
        (1, "measured", 1, 1e9),
        (2, "measured", 4, 2e9),
    ]
    assert directory.stat().st_mode & 0o777 == 0o700
    second = Run(directory)
    second.record(DP2, 1.0, 4)
    second.end()
    points = load_table(directory / "gpt-a.json").points
    assert points[0] == found.points[0]
    assert points[1].iterations == 8
    assert points[1].iteration_s == pytest.approx(0.75)
    assert first.notes == second.notes == []


def test_a_run_without_steady_iterations_writes_nothing(tmp_path: Path) -> None:
    Run(tmp_path / "profiles").end()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["", '{"version": 1, "title": "gpt-a, meas', '{"version": 9}', "my notes"]
)
def test_a_file_that_is_no_table_is_told_and_left_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gpt-a.json"
    path.write_text(text)
    run = Run(tmp_path)
    run.record(DP2, 0.5)
    run.end()
    assert path.read_text() == text
    ((source, note),) = run.notes
    assert source == "gpt-a"
    assert note.startswith(f"{path}: ")
    assert "mend or remove the file" in note


def test_where_nothing_can_be_written_that_is_told_once_and_tried_again(tmp_path: Path) -> None:
    (tmp_path / "profiles").write_text("a file, where the directory should be")
    run = Run(tmp_path / "profiles")
    for _ in range(2):
        run.record(DP2, 0.5)
        run.end()
    ((source, note),) = run.notes
    assert (source, note) == ("gpt-a", f"{tmp_path}/profiles/gpt-a.json: not written: File exists")
    (tmp_path / "profiles").unlink()
    run.end()
    assert load_table(tmp_path / "profiles" / "gpt-a.json").points[0].iterations == 2


def test_a_command_is_counted_in_the_unit_of_its_own_table(tmp_path: Path) -> None:
    run = Run(tmp_path, spec(0.0))
    run.record(DP1, 1.0)
    run.end()
    (point,) = load_table(tmp_path / "gpt-a.json").points
    assert point.flops_per_s == pytest.approx(3.0)  # all that is known: its table is right there
    run.record(DP2, 0.5)  # it begins with two workers, for which its table says 5
    run.end()
    points = load_table(tmp_path / "gpt-a.json").points
    assert [p.flops_per_s for p in points] == [pytest.approx(2.5), pytest.approx(5.0)]


def test_a_size_that_the_table_of_a_command_does_not_list_any_more_is_no_measure(
    tmp_path: Path,
) -> None:
    first = Run(tmp_path, replace(spec(0.0), table=table({1: 3.0, 2: 5.0})))
    first.record(DP1, 1.0)
    first.end()
    second = Run(tmp_path, replace(spec(0.0), table=table({4: 9.0}), workers=4, min_workers=4))
    second.record(Layout(dp=4), 0.5)
    second.end()
    points = load_table(tmp_path / "gpt-a.json").points
    assert [p.flops_per_s for p in points] == [pytest.approx(4.5), pytest.approx(9.0)]
