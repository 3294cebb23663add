"""Collects the tasks and the policy of all documents, and finds what is wrong between them.

A file of tasks alone, as ``unicron submit`` takes it, has ``[[task]]`` tables and nothing else.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from controller.clusterfile.cluster_keys import not_a_home
from controller.clusterfile.file_mistakes import ClusterFileError, FileMistake, Mistakes
from controller.clusterfile.section_reading import items_of, subject_of, tables_of
from controller.clusterfile.toml_document import TomlDocument, TomlError, toml_of
from controller.settings.approval_tables import read_approval
from controller.settings.settings_file import SettingsError, checked_setting
from profiles.task_profiles import TaskProfile, anchored, read_task

_PATHS: Final = ("checkpoint_dir", "data")

_KEY = "task"


@dataclass(slots=True)
class TaskCollection:
    """The tasks so far.

    Attributes:
        mistakes: Gets all mistakes.
        tasks: The tasks, by name, with absolute paths.
    """

    mistakes: Mistakes
    tasks: dict[str, TaskProfile] = field(default_factory=dict)
    _places: dict[str, str] = field(default_factory=dict)

    def take(self, document: TomlDocument) -> None:
        """Take the tasks of a document. Paths in it are relative to its folder."""
        folder = document.path.absolute().parent
        for number, table in enumerate(tables_of(document, "task")):
            location = ("task", number)
            name = table.get("name") if isinstance(table, dict) else None
            subject = f"task {name:.40}" if isinstance(name, str) else subject_of(location)
            profile = read_task(table, folder)
            if not isinstance(profile, TaskProfile):
                self.mistakes.add_all(document, location, profile, subject)
                continue
            for key, text in self._faults(profile, anchored(profile, folder)):
                self.mistakes.add(document, (*location, key), f"{subject}: {text}")
            if profile.name not in self.tasks:
                self.tasks[profile.name] = anchored(profile, folder)
                self._places[profile.name] = document.place_of(location)

    def _faults(self, profile: TaskProfile, whole: TaskProfile) -> list[tuple[str, str]]:
        """Return what is wrong with a task beside the others, each with the key at fault."""
        faults: list[tuple[str, str]] = []
        if profile.name in self.tasks:
            place = self._places[profile.name]
            text = f"name: {place} has a task of this name already; give each a name of its own"
            faults.append(("name", text))
        for key in _PATHS:
            try:
                not_a_home(getattr(profile, key))
            except ValueError as error:
                faults.append((key, f"{key} = {getattr(profile, key)!r:.60}: {error}"))
        for other in self.tasks.values():
            if profile.checkpoint_dir and whole.checkpoint_dir == other.checkpoint_dir:
                text = f"checkpoint_dir: {other.name} has the same; give each task its own"
                faults.append(("checkpoint_dir", text))
        return faults


@dataclass(slots=True)
class PolicyCollection:
    """The settings of ``[policy]`` so far.

    Attributes:
        mistakes: Gets all mistakes.
        settings: The settings, as ``Policy`` takes them.
    """

    mistakes: Mistakes
    settings: dict[str, Any] = field(default_factory=dict)
    _places: dict[str, str] = field(default_factory=dict)

    def take(self, document: TomlDocument) -> None:
        """Take the settings of a document."""
        for number, table in enumerate(tables_of(document, "approval")):
            rule = read_approval(table)
            if isinstance(rule, list):
                place = ("approval", number)
                self.mistakes.add_all(document, place, rule, subject_of(place))
            else:
                self.settings["approvals"] = (*self.settings.get("approvals", ()), rule)
        for key, value in items_of(document, "policy").items():
            location = ("policy", key)
            try:
                setting = checked_setting(key, value)
            except SettingsError as error:
                self.mistakes.add(document, location, str(error))
                continue
            if key in self.settings:
                text = f"policy.{key}: set at {self._places[key]} already; set it once"
                self.mistakes.add(document, location, text)
            self.settings[key] = setting
            self._places[key] = document.place_of(location)


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
