"""The key ``file`` of a task's throughput: T(t, x) from a table in a file.

    [task.throughput]
    file = "profiles/gpt-a.json"        # relative to the tasks file

Sizes of the table stand for those of ``points``, which may be left out then; the other ones stay.
"""

from pathlib import Path

from profiles.records import RecordError
from profiles.table_file import TablePoint, load_table


def with_points_of_file(entry: object, folder: Path) -> object:
    """Return the ``[[task]]`` table ``entry`` with the points of its file, if it names one.

    The caller checks the rest of the table.

    Raises:
        RecordError: The file can't be read, or is no throughput table.
    """
    throughput = entry.get("throughput") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(throughput, dict) or "file" not in throughput:
        return entry
    name, given = throughput["file"], throughput.get("points", [])
    if not isinstance(name, str) or not name:
        raise RecordError(f"throughput.file = {name!r:.60}: must be the path of a table")
    if not isinstance(given, list):
        raise RecordError(f"throughput.points = {given!r:.60}: must be a list")
    if "\0" in name:
        raise RecordError(f"throughput.file = {name!r:.60}: must be the path of a table")
    points = [_trainable(point, folder / name) for point in load_table(folder / name).points]
    sizes = {point["workers"] for point in points}
    kept = [each for each in given if not (isinstance(each, dict) and each.get("workers") in sizes)]
    rest = {key: value for key, value in throughput.items() if key != "file"}
    return entry | {"throughput": rest | {"points": [*kept, *points]}}


def _trainable(point: TablePoint, path: Path) -> dict[str, object]:
    """Return a point as a task lists it.

    Raises:
        RecordError: No task is trained in its layout.
    """
    if point.layout.cp > 1:
        raise RecordError(
            f"{path}: {point.workers} workers: {point.layout}: Unicron trains no task with context"
            " parallelism; estimate the table without --context-parallel"
        )
    return {
        "workers": point.workers,
        "flops_per_s": point.flops_per_s,
        "layout": point.layout.model_dump(),
    }
