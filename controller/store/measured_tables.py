"""The measured throughput of tasks: one table per task, refined by every run.

``DIRECTORY/TASK.json`` is a throughput table (``profiles.table_file``). A controller reads it when
it begins and refines it with the iterations that the core finds steady. It writes the whole file
every few seconds, if there are changes, and at the end. The present run does not plan with it: its
planner uses the table of the task file. The task file of a later run may name the measured table
instead.

A file that can't be read stays as it is, and its task is not measured. A file that can't be written
is tried again. Operators get one note about either.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from typing_extensions import override

from controller.core.instructions import RecordIterations
from controller.core.monitoring.refinement import work_per_iteration
from controller.core.specs import TaskSpec
from controller.ports import Tables
from nodeagent.protocol.ids import TaskId
from profiles.measured_throughput import refined, with_work
from profiles.records import RecordError
from profiles.table_file import VERSION, TableFile, TablePoint, load_table, save_table

_LOG: Final = logging.getLogger(__name__)
_INTERVAL_S: Final = 5.0


class MeasuredTables(Tables):
    """The tables of a controller's tasks. ``run`` writes them until cancelled.

    Args:
        directory: Their directory, made before the first write.
        spec_of: Returns the present spec of a task; None if there is no such task.
        note: Called with a task and a line for operators.
    """

    def __init__(
        self,
        directory: Path,
        spec_of: Callable[[TaskId], TaskSpec | None],
        note: Callable[[str, str], None],
    ) -> None:
        self._directory = directory
        self._note = note
        self._spec_of = spec_of
        self._unreadable: set[TaskId] = set()
        self._points: dict[TaskId, dict[int, TablePoint]] = {}
        self._changed: set[TaskId] = set()
        self._noted: set[str] = set()

    @override
    def record(self, instruction: RecordIterations) -> None:
        if instruction.task not in self._points and instruction.task not in self._unreadable:
            self._read(instruction.task)
        points = self._points.get(instruction.task)
        if points is None:
            return
        layout, num = instruction.layout, instruction.num_iterations
        known = points.get(layout.num_workers)
        points[layout.num_workers] = refined(known, layout, instruction.iteration_s, num)
        self._changed.add(instruction.task)

    async def run(self) -> None:
        """Write changed tables every few seconds until cancelled, and once more at the end."""
        try:
            while True:
                await asyncio.sleep(_INTERVAL_S)
                tables = self._take_changed()
                self._take_failures(await asyncio.to_thread(self._write, tables))
        finally:
            self._take_failures(self._write(self._take_changed()))

    def _path(self, task: TaskId) -> Path:
        return self._directory / f"{task}.json"

    def _read(self, task: TaskId) -> None:
        path = self._path(task)
        try:
            table = load_table(path) if path.exists() else None
        except (RecordError, PermissionError) as error:
            reason = error if isinstance(error, RecordError) else f"{path}: permission denied"
            self._unreadable.add(task)
            _LOG.info("measured table can't be read: task=%s reason=%s", task, reason)
            self._note(
                task,
                f"{reason}; mend or remove the file: the throughput of {task} is not recorded meanwhile",
            )
            return
        self._points[task] = {point.workers: point for point in table.points} if table else {}
        _LOG.info("measured table read: path=%s sizes=%d", path, len(self._points[task]))

    def _take_changed(self) -> dict[TaskId, TableFile]:
        """Return the tables that have changed since the last call."""
        changed, self._changed = self._changed, set()
        specs = {task: self._spec_of(task) for task in sorted(changed)}
        return {task: self._table(task, spec) for task, spec in specs.items() if spec is not None}

    def _table(self, task: TaskId, spec: TaskSpec) -> TableFile:
        points = self._points[task]
        times_s = {size: point.iteration_s for size, point in points.items() if point.iteration_s}
        work = work_per_iteration(spec, times_s)
        title = f"{task}, measured"
        return TableFile(version=VERSION, title=title, points=with_work(points.values(), work))

    def _write(self, tables: dict[TaskId, TableFile]) -> dict[TaskId, str]:
        """Write tables; return the failures."""
        failures: dict[TaskId, str] = {}
        for task, table in tables.items():
            try:
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                save_table(table, self._path(task))
                _LOG.debug("measured table written: path=%s", self._path(task))
            except OSError as error:
                failures[task] = f"{self._path(task)}: not written: {error.strerror}"
        return failures

    def _take_failures(self, failures: dict[TaskId, str]) -> None:
        """Note each new failure. The tables are written again later."""
        self._changed |= failures.keys()
        for task, text in failures.items():
            _LOG.info("measured table is not written: task=%s reason=%s", task, text)
            if text not in self._noted:
                self._noted.add(text)
                self._note(task, text)
