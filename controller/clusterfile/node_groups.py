"""From the ``[[nodes]]`` tables to the nodes of the cluster, each with its address."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controller.clusterfile.cluster_keys import NodesSection, SshSection, checked_node_name
from controller.clusterfile.hostlist import HostlistError, expand
from controller.clusterfile.ssh_config import SshConfig, SshConfigError
from controller.fleet.address import NodeAddress, SshTarget
from nodeagent.protocol.ids import NodeId

_STATE_DIR: Final = "~/.unicron"
_PYTHON: Final = "python3"


class GroupError(Exception):
    """A group of nodes is wrong. ``key`` is the key at fault, or empty."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


@dataclass(frozen=True, slots=True)
class ListedNode:
    """One node of a cluster file.

    Attributes:
        address: How it is reached.
        has_gpus: Whether its workers are GPUs.
        failure_domain: What fails together with it; empty if that is not known.
        labels: Words about it, for people.
    """

    address: NodeAddress
    has_gpus: bool
    failure_domain: str
    labels: dict[str, str]


def nodes_of(
    group: NodesSection, defaults: SshSection, cluster: str, folder: Path
) -> Iterator[ListedNode | GroupError]:
    """Yield the nodes of a group, or what is wrong with it.

    Args:
        group: The group.
        defaults: What holds for the keys that the group leaves out.
        cluster: Name of the cluster.
        folder: Paths of keys and host keys are relative to it.
    """
    mistakes = list(_mistakes(group))
    names = _expanded(group.hosts or group.name or "", "hosts", mistakes)
    mistakes += [GroupError("hosts", reason) for name in names if (reason := _why_no_name(name))][
        :1
    ]
    places = [group.training_address or ""] if group.name else []
    if group.hosts and group.training_address:
        places = _expanded(group.training_address, "training_address", mistakes)
        if len(places) != len(names):
            mistakes.append(_unequal(len(places), len(names)))
    login = defaults.model_copy(
        update={
            key: getattr(group, key)
            for key in SshSection.model_fields
            if key in group.model_fields_set
        }
    )
    ways: list[tuple[SshTarget, tuple[SshTarget, ...]]] = []
    config = SshConfig(login, folder)
    try:
        ways = [config.way_to(group.host or name) for name in names]
    except SshConfigError as error:
        mistakes.append(GroupError(error.key, str(error)))
    yield from mistakes
    if mistakes:
        return
    for number, (name, (target, jumps)) in enumerate(zip(names, ways, strict=True)):
        yield ListedNode(
            NodeAddress(
                node=NodeId(name),
                ssh=target,
                jumps=jumps,
                # The node's name too: several nodes can share one home directory.
                state_dir=f"{login.state_dir or _STATE_DIR}/{cluster}/{name}",
                python=login.python or _PYTHON,
                num_workers=group.gpus or group.workers or 0,
                kernel_log=group.kernel_log or "",
                unit=login.unit or "",
                training_address=places[number] if places else "",
                training_interface=group.training_interface or "",
            ),
            has_gpus=group.gpus is not None,
            failure_domain=group.failure_domain or "",
            labels=group.labels,
        )


def _mistakes(group: NodesSection) -> Iterator[GroupError]:
    if group.hosts is None and group.name is None:
        yield GroupError("", 'names no node: write hosts = "gpu-[001-016]", or name and host')
    if group.hosts is not None:
        for key in ("name", "host"):
            if getattr(group, key) is not None:
                yield GroupError(key, f"{key}: hosts names the nodes already; leave {key} out")
    if group.gpus is None and group.workers is None:
        yield GroupError("", "says no size: write gpus = 8, or workers = 2 for nodes without GPUs")
    if group.gpus is not None and group.workers is not None:
        yield GroupError("workers", "workers: gpus gives the size already; leave one of them out")


def _expanded(text: str, key: str, mistakes: list[GroupError]) -> list[str]:
    try:
        return expand(text) if text else []
    except HostlistError as error:
        mistakes.append(GroupError(key, f"{key} = {text!r:.60} {error}"))
        return []


def _why_no_name(name: str) -> str:
    try:
        checked_node_name(name)
    except ValueError as error:
        return f"hosts: {name!r:.60} {error}; give such a node a name of its own: name and host"
    return ""


def _unequal(num_places: int, num_names: int) -> GroupError:
    text = f"training_address: has {num_places} addresses for {num_names} hosts; give one for each"
    return GroupError("training_address", text)
