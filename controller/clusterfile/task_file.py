"""A file of tasks alone, as ``unicron submit`` takes it.

It has the ``[[task]]`` tables of a cluster file, and nothing else.
"""

from pathlib import Path

from controller.clusterfile.file_mistakes import ClusterFileError, FileMistake, Mistakes
from controller.clusterfile.task_collection import TaskCollection
from controller.clusterfile.toml_document import TomlError, toml_of
from profiles.task_profiles import TaskProfile

_KEY = "task"


def tasks_of(path: Path, text: str) -> list[TaskProfile]:
    """Return the tasks of a file, with absolute paths.

    Args:
        path: Where the file is: paths in it are relative to its folder.
        text: What it says.

    Raises:
        ClusterFileError: It is no TOML, has other sections, or something is wrong with a task.
    """
    try:
        document = toml_of(path, text.encode())
    except TomlError as error:
        raise ClusterFileError([FileMistake(path, error.line, str(error))]) from error
    mistakes = Mistakes()
    for key, value in document.values.items():
        if key != _KEY or not isinstance(value, list):
            words = (
                f"{key}: only [[task]] belongs into a file of tasks; the cluster file has the rest"
            )
            mistakes.add(document, (key,), words)
    tasks = TaskCollection(mistakes)
    tasks.take(document)
    if not tasks.tasks and not mistakes.found:
        mistakes.add(document, (), "there is no [[task]] in it; add one")
    if mistakes.found:
        raise ClusterFileError(sorted(mistakes.found))
    return list(tasks.tasks.values())
