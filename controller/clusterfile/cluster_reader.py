"""Reads a cluster file and its includes, and checks them as a whole.

    load_cluster(Path("cluster.toml"))      # a Cluster, or ClusterFileError with every mistake

Nothing is contacted. Paths on the nodes can't be checked here; ``unicron run`` finds out.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from controller.alerts.notify_tables import NotifyChannel, read_channel
from controller.clusterfile.cluster_keys import (
    ClusterSection,
    Section,
    SshSection,
    metrics_address,
)
from controller.clusterfile.file_mistakes import ClusterFileError, FileMistake, Mistakes
from controller.clusterfile.file_places import SOCKET_NAME, run_directory
from controller.clusterfile.node_collection import NodeCollection
from controller.clusterfile.node_groups import ListedNode
from controller.clusterfile.section_reading import LISTS, read_section, subject_of, tables_of
from controller.clusterfile.task_collection import PolicyCollection, TaskCollection
from controller.clusterfile.toml_document import TomlDocument, TomlError, read_toml
from controller.core.rules.placement import Unplaceable, place
from controller.core.rules.policy import Policy
from controller.settings.settings_file import SettingsError
from nodeagent.protocol.ids import TaskId
from profiles.key_mistakes import Location, shorten, which_is_known
from profiles.records import is_there, user_path
from profiles.task_profiles import TaskProfile

KNOWN_HOSTS_NAME: Final = "known_hosts"
"""File of the run directory with the host keys that were accepted."""
_OF_MAIN_FILE: Final = ("include", "cluster", "ssh")
_ANYWHERE: Final = ("nodes", "policy", "approval", "notify", "failure_domains", "task")
_MOST_SOCKET_BYTES: Final = 107
"""Longest path of a unix socket on Linux, without the terminating zero."""

_S = TypeVar("_S", bound=Section)


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a cluster file says. Every field has been checked.

    Attributes:
        name: Name of the cluster.
        path: The file.
        run_dir: Directory of the controller's files. It may not be there yet.
        nodes: The nodes; all have GPUs, or none has.
        policy: What operators decided in advance.
        tasks: The tasks, with absolute paths.
        checkpoints: Directory of all checkpoints on the nodes.
        data: Text to train on, on the nodes; empty for Python's documentation.
        seed: Seed of weights and data.
        keep_days: How long the past of a run is kept.
        keep_mb: How large it may be, in MB.
        channels: Over which people are notified.
        metrics: Where metrics are served: an address and a port, or a socket; None: nowhere.
    """

    name: str
    path: Path
    run_dir: Path
    nodes: tuple[ListedNode, ...]
    policy: Policy
    tasks: tuple[TaskProfile, ...]
    checkpoints: Path
    data: str
    seed: int
    keep_days: float = 30.0
    keep_mb: float = 500.0
    channels: tuple[NotifyChannel, ...] = ()
    metrics: tuple[str, int] | Path | None = None

    @property
    def socket(self) -> Path:
        """The controller's API socket."""
        return self.run_dir / SOCKET_NAME

    @property
    def has_template(self) -> bool:
        """Whether nodes need a process that has torch and Megatron imported.

        Commands bring interpreters of their own.
        """
        return any(task.command is None for task in self.tasks)

    @property
    def has_gpus(self) -> bool:
        """Whether ranks use CUDA and NCCL."""
        return any(node.has_gpus for node in self.nodes)


def load_cluster(path: Path) -> Cluster:
    """Return the cluster that a file describes.

    Raises:
        ClusterFileError: The file or an include can't be read, or something in them is wrong.
    """
    return _Reader(path).read()


def policy_of(path: Path) -> Policy:
    """Return the policy of a cluster file.

    Raises:
        SettingsError: The file has mistakes; the text has them in one line.
    """
    try:
        return load_cluster(path).policy
    except ClusterFileError as error:
        raise SettingsError("; ".join(map(str, error.mistakes))) from error


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = path.absolute().parent
        self._mistakes = Mistakes()

    def read(self) -> Cluster:
        main = self._open(self._path)
        if main is None:
            raise ClusterFileError(self._mistakes.found)
        documents = [main, *self._included(main)]
        for document in documents:
            self._check_sections(document, is_main=document is main)
        section = self._section(main, "cluster", ClusterSection)
        ssh = self._section(main, "ssh", SshSection) or SshSection()
        nodes = NodeCollection(section.name if section else "", ssh, self._mistakes)
        tasks, policy = TaskCollection(self._mistakes), PolicyCollection(self._mistakes)
        for document in documents:
            nodes.take(document, self._folder)
            tasks.take(document)
            policy.take(document)
        for document in documents:
            nodes.take_domains(document)
        channels = self._channels(documents)
        self._check_presence(main, documents)
        run_dir = self._run_dir(main, section)
        self._check_checkpoints(main, section, tasks.tasks)
        self._raise_if_wrong(documents)
        assert section is not None, "a file without it has a mistake"
        cluster = Cluster(
            name=section.name,
            path=self._path.absolute(),
            run_dir=run_dir,
            nodes=tuple(nodes.nodes.values()),
            policy=Policy(**policy.settings),
            tasks=tuple(tasks.tasks.values()),
            checkpoints=self._folder / (section.checkpoint_dir or ""),
            data=str(self._folder / section.data) if section.data else "",
            seed=section.seed,
            keep_days=section.keep_days,
            keep_mb=section.keep_mb,
            channels=channels,
            metrics=metrics_address(section.metrics, run_dir) if section.metrics else None,
        )
        if misfit := why_unfit(cluster):
            self._add(main, (), misfit)
            self._raise_if_wrong(documents)
        return cluster

    def _channels(self, documents: list[TomlDocument]) -> tuple[NotifyChannel, ...]:
        found: dict[str, NotifyChannel] = {}
        for document in documents:
            for number, table in enumerate(tables_of(document, "notify")):
                place = ("notify", number)
                channel = read_channel(table, self._folder)
                if isinstance(channel, list):
                    self._mistakes.add_all(document, place, channel, subject_of(place))
                elif channel.name in found:
                    text = f"notify.name: {channel.name} is there already; choose another"
                    self._add(document, (*place, "name"), text)
                else:
                    found[channel.name] = channel
        return tuple(found.values())

    def _raise_if_wrong(self, documents: list[TomlDocument]) -> None:
        if self._mistakes.found:
            order = {document.path: number for number, document in enumerate(documents)}
            found = sorted(self._mistakes.found, key=lambda each: (order.get(each.path, -1), each))
            raise ClusterFileError(list(dict.fromkeys(found)))

    def _check_presence(self, main: TomlDocument, documents: list[TomlDocument]) -> None:
        """Check that there are nodes and tasks. An include that can't be read may have them."""
        if "cluster" not in main.values:
            self._add(main, (), 'has no [cluster] section: write [cluster] with name = "..."')
        included = main.values.get("include", [])
        num_included = len(included) if isinstance(included, list) else 1
        for key, mend in (
            ("nodes", "write a [[nodes]] table for each group of nodes"),
            ("task", "write a [[task]] table for each, or include a file"),
        ):
            has_some = any(document.values.get(key) for document in documents)
            if not has_some and len(documents) > num_included:
                self._add(main, (), f"has no [[{key}]]: {mend}")

    def _add(self, document: TomlDocument, location: Location, text: str) -> None:
        self._mistakes.add(document, location, text)

    def _open(self, path: Path) -> TomlDocument | None:
        try:
            return read_toml(path)
        except TomlError as error:
            self._mistakes.found.append(FileMistake(path, error.line, str(error)))
            return None

    def _included(self, main: TomlDocument) -> list[TomlDocument]:
        names = main.values.get("include", [])
        if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
            self._add(main, ("include",), 'include: must be a list of files: ["tasks.toml"]')
            return []
        documents = []
        for number, name in enumerate(names):
            path = self._path.parent / user_path(name)
            if name in names[:number]:
                self._add(main, ("include", number), f"include: {name} is named twice")
            elif "\0" in name or not is_there(path):
                mend = "a path is relative to this file"
                self._add(main, ("include", number), f"include: there is no file {path}; {mend}")
            elif document := self._open(path):
                documents.append(document)
        return documents

    def _check_sections(self, document: TomlDocument, *, is_main: bool) -> None:
        known = (*_OF_MAIN_FILE, *_ANYWHERE) if is_main else _ANYWHERE
        for key, value in document.values.items():
            if key in known:
                kind, wanted = (list, f"[[{key}]]") if key in LISTS else (dict, f"[{key}]")
                if key != "include" and not isinstance(value, kind):
                    self._add(document, (key,), f"{key}: must be a section; write {wanted}")
            elif key in _OF_MAIN_FILE:
                text = f"{key} belongs into {self._path}, not into a file that it includes"
                self._add(document, (key,), text)
            else:
                text = f"unknown section {shorten(repr(key))}; {which_is_known(key, known)}"
                self._add(document, (key,), text)

    def _section(self, document: TomlDocument, key: str, kind: type[_S]) -> _S | None:
        if key not in document.values or not isinstance(document.values[key], dict):
            return None
        return read_section(document, (key,), document.values[key], kind, self._mistakes)

    def _run_dir(self, document: TomlDocument, section: ClusterSection | None) -> Path:
        if section is None:
            return Path()
        path = run_directory(section, self._folder)
        home = str(user_path(section.run_dir or "")).partition("/")[0]
        if home.startswith("~"):
            text = f"cluster.run_dir: there is no user {home[1:]} on this machine"
            self._add(document, ("cluster", "run_dir"), text)
        longest = len(os.fsencode(path / SOCKET_NAME))
        if longest > _MOST_SOCKET_BYTES:
            text = (
                f"cluster.run_dir: {path} is too long by {longest - _MOST_SOCKET_BYTES} bytes for the"
                f" path of a socket, which has at most {_MOST_SOCKET_BYTES}; choose a shorter one"
            )
            self._add(document, ("cluster", "run_dir"), text)
        return path

    def _check_checkpoints(
        self,
        document: TomlDocument,
        section: ClusterSection | None,
        tasks: Mapping[str, TaskProfile],
    ) -> None:
        if section is None or section.checkpoint_dir is not None:
            return
        if lacking := [task.name for task in tasks.values() if not task.checkpoint_dir]:
            text = (
                f"cluster.checkpoint_dir is missing, and {', '.join(lacking)} has none of its own: name a"
                " directory that all nodes share"
            )
            self._add(document, ("cluster",), text)


def why_unfit(cluster: Cluster) -> str:
    """Return why the tasks do not fit the nodes at their first sizes; empty if they do."""
    layouts = {TaskId(task.name): task.throughput.layout(task.workers) for task in cluster.tasks}
    available = {node.address.node: node.address.num_workers for node in cluster.nodes}
    wanted = sum(task.workers for task in cluster.tasks)
    mend = "add nodes, or lower workers of a task"
    if wanted > sum(available.values()):
        sizes = ", ".join(f"{task.name} {task.workers}" for task in cluster.tasks)
        return (
            f"the tasks want {wanted} workers ({sizes}), but the nodes have"
            f" {sum(available.values())}: {mend}"
        )
    placed = place(layouts, {}, available)
    return f"{placed.reason}: {mend}" if isinstance(placed, Unplaceable) else ""
