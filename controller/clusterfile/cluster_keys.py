"""The keys of a cluster file, section by section. Each class is one section.

The keys of ``[[task]]`` are those of ``profiles.task_profiles.TaskProfile``, and the keys of
``[policy]`` those of ``controller.core.rules.policy.Policy``.
"""

import re
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

NO_CONFIG: Final = "none"
"""Value of ``config`` and ``proxy_jump``: what the SSH configuration says does not count."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_NODE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_INTERFACE: Final = re.compile(r"[A-Za-z0-9_.:@-]{1,15}")
_UNIT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9:_.@-]{0,200}\.service")
_HOST_KEY: Final = re.compile(r"SHA256:[A-Za-z0-9+/]{43}|[a-z0-9@.-]+ AAAA[A-Za-z0-9+/=]*(?: .*)?")
_PORT: Final = re.compile(r"([A-Za-z0-9.]+|\[[0-9a-f:]+\]):(\d{1,5})")
_LOCAL: Final = ("127.0.0.1", "localhost", "[::1]")
_LABEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,62}")


def _is_cluster_name(name: str) -> str:
    # It becomes a part of paths here and on the nodes.
    if not _NAME.fullmatch(name):
        raise ValueError(
            "must be 1 to 32 letters, digits, '-' or '_', and begin with a letter or digit"
        )
    return name


def checked_node_name(name: str) -> str:
    """Return the name of a node. Raises ``ValueError`` if no node can have it."""
    if not _NODE_NAME.fullmatch(name):
        raise ValueError(
            "must be 1 to 64 letters, digits, '.', '-' or '_', and begin with a letter or digit"
        )
    return name


def _is_word(text: str) -> str:
    if not text or "\0" in text or text != text.strip():
        raise ValueError(
            "must be text without spaces at its ends; leave the key out for the default"
        )
    return text


def _is_host_key(text: str) -> str:
    if not _HOST_KEY.fullmatch(text):
        raise ValueError("must be a public key, ssh-ed25519 AAAA..., or a fingerprint, SHA256:...")
    return text


def _is_interface(name: str) -> str:
    if not _INTERFACE.fullmatch(name):
        raise ValueError("must be the name of a network interface, such as ib0")
    return name


def _is_unit(name: str) -> str:
    if not _UNIT.fullmatch(name):
        raise ValueError("must be the name of a systemd service, such as unicron-agent.service")
    return name


def _is_local(place: str) -> str:
    found = _PORT.fullmatch(place)
    if "/" in place or place.endswith(".sock"):
        return _is_word(place)
    if found is None or found[1] not in _LOCAL or not 0 < int(found[2]) < 65536:
        raise ValueError(
            "must be a port of this machine, such as 127.0.0.1:9464 or [::1]:9464, or the path of a socket,"
            " such as metrics.sock"
        )
    return place


def metrics_address(place: str, run_dir: Path) -> tuple[str, int] | Path:
    """Return where a value of ``metrics`` has the metrics served."""
    found = _PORT.fullmatch(place)
    return (found[1].strip("[]"), int(found[2])) if found else run_dir / place


def _are_labels(labels: dict[str, str]) -> dict[str, str]:
    for name in labels:
        if not _LABEL.fullmatch(name):
            raise ValueError(f"{name!r} can't be a label: use letters, digits, '.', '-', '_', '/'")
    return labels


def _is_path_of_nodes(path: str) -> str:
    if path.startswith("~") and not path.startswith("~/"):
        raise ValueError("must be absolute, or begin with ~/ for the home of the user on the node")
    if not path.startswith(("/", "~/")):
        raise ValueError("must be absolute or begin with ~/, since it is a path on the nodes")
    return path.rstrip("/") or "/"


def not_a_home(path: str) -> str:
    """Return a path that all nodes share. Raises ``ValueError`` if it begins with ``~``."""
    if path.startswith("~"):
        raise ValueError("must be absolute or relative to this file: ~ can differ between nodes")
    return path


Word = Annotated[str, AfterValidator(_is_word)]
NodePath = Annotated[Word, AfterValidator(_is_path_of_nodes)]
SharedPath = Annotated[Word, AfterValidator(not_a_home)]


class Section(BaseModel):
    """Base of the sections: no unknown key."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ClusterSection(Section):
    """``[cluster]``: the cluster as a whole.

    Attributes:
        name: Name of the cluster. It is a part of paths, here and on the nodes.
        run_dir: Directory of the controller's files on its own machine: journal, socket, logs,
            measured tables. Default: ``$XDG_STATE_HOME/unicron/NAME``.
        checkpoint_dir: Directory of all checkpoints, the same on every node. Each task has a
            folder in it.
        data: Text file to train on, on every node. Default: text of Python's documentation.
        seed: Seed of weights and data.
        keep_days: How long the past of a run is kept beside what a controller needs: the closed
            segments of its journal, and its history. Default: 30.
        keep_mb: How large each of the two may be, in MB. Default: 500.
        metrics: Where Prometheus gets metrics: ``127.0.0.1:9464``, or the path of a unix socket,
            relative to ``run_dir``. Default: nowhere.
    """

    name: Annotated[str, AfterValidator(_is_cluster_name)]
    run_dir: Word | None = None
    checkpoint_dir: SharedPath | None = None
    data: SharedPath | None = None
    seed: int = 1
    keep_days: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 30.0
    keep_mb: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 500.0
    metrics: Annotated[str, AfterValidator(_is_local)] | None = None


class SshSection(Section):
    """``[ssh]``: how nodes are reached. A group of nodes may have its own value for each key.

    What is left out comes from the SSH configuration of the controller's user, as with ``ssh``.

    Attributes:
        config: SSH configuration, or ``none``. Default: ``~/.ssh/config``, then
            ``/etc/ssh/ssh_config``.
        user: User to log in as. Default: the user of the controller.
        port: Port of the SSH server. Default: 22.
        identity: Private key to log in with. Default: ``~/.ssh/id_ed25519``, ``id_ecdsa`` or
            ``id_rsa``, else the keys of the ssh-agent.
        proxy_jump: Jump hosts on the way, ``user@host:port``, with commas between several; or
            ``none``.
        known_hosts: File with the host keys. Default: ``~/.ssh/known_hosts`` and
            ``/etc/ssh/ssh_known_hosts``. A key that is in no file is refused.
        host_key: The host key itself, as in ``ssh-ed25519 AAAA...``, or its fingerprint
            ``SHA256:...``; outweighs ``known_hosts``.
        python: Interpreter on the node that has torch and megatron-core. Default: ``python3``.
        state_dir: Directory on the node for the agent and its files. The names of the cluster and
            the node are added. Default: ``~/.unicron``.
        unit: System unit on the node that runs the agent, made by the site:
            ``unicron-agent.service``. Default: a unit of the user's own systemd, if that runs
            without logins, else a detached process.
    """

    config: Word | None = None
    user: Word | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    identity: Word | None = None
    proxy_jump: Word | None = None
    known_hosts: Word | None = None
    host_key: Annotated[Word, AfterValidator(_is_host_key)] | None = None
    python: Word | None = None
    state_dir: NodePath | None = None
    unit: Annotated[str, AfterValidator(_is_unit)] | None = None


class NodesSection(SshSection):
    """``[[nodes]]``: one node, or a group of nodes that are alike.

    Attributes:
        hosts: Their names, which are also their addresses: ``gpu-[001-016]``.
        name: Name of a single node, instead of ``hosts``.
        host: Address of that single node. Default: its name.
        gpus: GPUs of each node. Ranks use CUDA and NCCL.
        workers: Worker slots of each node without GPUs. Ranks use the CPU and gloo.
        training_address: Address in the network of the ranks, where it is not the one that SSH
            uses. With ``hosts`` as many as there are nodes: ``10.1.0.[1-16]``.
        training_interface: Network interface of the ranks, such as ``ib0``. Default: the one that
            holds ``training_address``, else the one that routes to the other nodes.
        failure_domain: What fails together with it: a rack, a switch.
        labels: Words about the nodes, for people.
        kernel_log: File on the node that is read as its kernel log. Default: the kernel's own.
    """

    hosts: Word | None = None
    name: Annotated[str, AfterValidator(checked_node_name)] | None = None
    host: Word | None = None
    gpus: Annotated[int, Field(ge=1, le=64)] | None = None
    workers: Annotated[int, Field(ge=1, le=1024)] | None = None
    training_address: Word | None = None
    training_interface: Annotated[str, AfterValidator(_is_interface)] | None = None
    failure_domain: Word | None = None
    labels: Annotated[dict[str, str], AfterValidator(_are_labels)] = {}
    kernel_log: NodePath | None = None
