"""Where the nodes of a new cluster file come from: a hostlist, Ansible, SSH's configuration, Slurm.

These are read once. The cluster file is what counts from then on.
"""

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from controller.clusterfile.hostlist import HostlistError, expand
from profiles.records import is_there, user_path

_LIMIT_S: Final = 60.0
_FIELD: Final = re.compile(r"(?:^|\s)(NodeName|NodeAddr|Gres|State|CPUTot|Partitions)=(\S*)")
_GPUS: Final = re.compile(r"\bgpu(?::[^,:()]+)?:(\d+)")
_UNUSABLE: Final = ("DOWN", "DRAIN", "FAIL", "FUTURE", "NOT_RESPONDING")
_JUMP: Final = re.compile(r"(?:-J\s*|ProxyJump[=\s]\s*)([^\s\"']+)")
_JOB_NODES: Final = "SLURM_JOB_NODELIST"
_MOST_INCLUDES: Final = 16


class SourceError(Exception):
    """The nodes can't be read. The text is one line, and says what to do."""


@dataclass(frozen=True, slots=True)
class FoundNode:
    """A node of a source. What a source does not say is empty or None.

    Attributes:
        name: Its name.
        host: Address of its SSH server; empty if it is the name.
        gpus: Its GPUs; 0 if it has none.
        port: Port of its SSH server.
        user: User to log in as.
        identity: Private key to log in with.
        proxy_jump: Jump hosts on the way.
    """

    name: str
    host: str = ""
    gpus: int | None = None
    port: int | None = None
    user: str = ""
    identity: str = ""
    proxy_jump: str = ""


@dataclass(frozen=True, slots=True)
class FoundNodes:
    """The nodes of a source, and what was left out, a line for each reason."""

    nodes: tuple[FoundNode, ...]
    notes: tuple[str, ...] = ()


def from_hostlist(text: str) -> FoundNodes:
    """Return the nodes that a hostlist names.

    Raises:
        SourceError: It is none.
    """
    try:
        return FoundNodes(tuple(FoundNode(name) for name in expand(text)))
    except HostlistError as error:
        raise SourceError(f"--hosts {text}: {error}") from error


def from_ssh_config(pattern: str, path: Path) -> FoundNodes:
    """Return the hosts of an SSH configuration whose names match a pattern.

    How each is reached is not copied: ``unicron run`` reads the same configuration.

    Raises:
        SourceError: It can't be read, or no host matches.
    """
    names = [name for name in _hosts_of(path, 0) if fnmatch.fnmatchcase(name, pattern)]
    if not names:
        raise SourceError(f"{path} has no Host that matches {pattern}; quote patterns in the shell")
    return FoundNodes(tuple(FoundNode(name) for name in dict.fromkeys(names)))


def _hosts_of(path: Path, depth: int) -> Iterator[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise SourceError(f"{path} can't be read: {error}") from error
    for line in lines:
        keyword, words = _words_of(line)
        if keyword == "host":
            yield from (word for word in words if not set(word) & set("*?!"))
        elif keyword == "include" and depth < _MOST_INCLUDES:
            for word in words:
                place = user_path(word)
                # As ssh does it: relative to the folder of the user's own configuration.
                base = place if place.is_absolute() else Path("~/.ssh").expanduser() / place
                for each in sorted(base.parent.glob(base.name)):
                    yield from _hosts_of(each, depth + 1)


def _words_of(line: str) -> tuple[str, list[str]]:
    try:
        words = shlex.split(line.replace("=", " ", 1), comments=True)
    except ValueError:
        return "", []
    return (words[0].lower(), words[1:]) if words else ("", [])


def from_slurm(partition: str, environment: Mapping[str, str] = os.environ) -> FoundNodes:
    """Return Slurm's nodes with their GPUs. Inside an allocation, its nodes alone.

    Nodes that are down or drained are left out. So are nodes without GPUs, if others have some.

    Args:
        partition: Partition that they are in; empty for all.
        environment: Environment, which names the nodes of an allocation.

    Raises:
        SourceError: Slurm does not answer, or has no such nodes.
    """
    chosen = environment.get(_JOB_NODES, "")
    words = ["scontrol", "show", "nodes", *([chosen] if chosen else []), "-o"]
    return slurm_nodes(_output(words, "install Slurm's client commands, or use --hosts"), partition)


def slurm_nodes(text: str, partition: str) -> FoundNodes:
    """Return the nodes that ``scontrol show nodes -o`` printed.

    Raises:
        SourceError: There are none that can be used.
    """
    usable: list[FoundNode] = []
    notes: list[str] = []
    for line in text.splitlines():
        fields = {str(key): str(value) for key, value in _FIELD.findall(line)}
        name, state = fields.get("NodeName", ""), fields.get("State", "")
        if not name or (partition and partition not in fields.get("Partitions", "").split(",")):
            continue
        if any(word in state for word in _UNUSABLE):
            notes.append(f"{name} is left out: Slurm has it as {state}")
            continue
        gpus = sum(int(number) for number in _GPUS.findall(fields.get("Gres", "")))
        address = fields.get("NodeAddr", name)
        usable.append(FoundNode(name, "" if address == name else address, gpus))
    if any(node.gpus for node in usable):
        notes += [f"{node.name} is left out: it has no GPU" for node in usable if not node.gpus]
        usable = [node for node in usable if node.gpus]
    if not usable:
        place = f"partition {partition}" if partition else "Slurm"
        raise SourceError("; ".join([f"{place} has no node that can be used", *notes]))
    return FoundNodes(tuple(usable), tuple(notes))


def from_ansible(inventory: Path, group: str) -> FoundNodes:
    """Return the hosts of an Ansible inventory, as ``ansible-inventory`` reads it.

    Args:
        inventory: File or folder.
        group: Group that they are in, itself or by its children; ``all`` for every host.

    Raises:
        SourceError: It can't be read, or has no such group.
    """
    if not is_there(inventory):
        raise SourceError(f"--from-ansible {inventory}: there is no such file")
    words = ["ansible-inventory", "-i", str(inventory), "--list"]
    text = _output(words, "install ansible-core, which reads inventories, or use --hosts")
    content = json.loads(text)
    variables: dict[str, dict[str, Any]] = content.get("_meta", {}).get("hostvars", {})
    names = list(dict.fromkeys(_hosts_in(content, group, set())))
    if not names:
        known = ", ".join(sorted(set(content) - {"_meta", "all"})) or "none"
        raise SourceError(f"{inventory}: no host is in group {group}; its groups: {known}")
    notes: list[str] = []
    found: list[FoundNode] = []
    for name in names:
        given = variables.get(name, {})
        open_ones = [key for key, value in given.items() if _is_template(key, value)]
        if open_ones:
            notes.append(f"{name}: {', '.join(open_ones)} is a template, and was left out")
        if given.get("ansible_connection", "ssh") not in {"ssh", "smart", "paramiko"}:
            notes.append(f"{name} is left out: it is not reached by SSH")
            continue
        found.append(_of_ansible(name, {k: v for k, v in given.items() if k not in open_ones}))
    if not found:
        raise SourceError("; ".join([f"{inventory}: no host of {group} can be used", *notes]))
    return FoundNodes(tuple(found), tuple(notes))


def _of_ansible(name: str, given: Mapping[str, Any]) -> FoundNode:
    def first(*keys: str) -> str:
        return next((str(given[key]) for key in keys if given.get(key)), "")

    host, port = (
        first("ansible_host", "ansible_ssh_host"),
        first("ansible_port", "ansible_ssh_port"),
    )
    options = first("ansible_ssh_common_args") + " " + first("ansible_ssh_extra_args")
    jump = _JUMP.search(options)
    return FoundNode(
        name,
        "" if host == name else host,
        port=int(port) if port.isdigit() else None,
        user=first("ansible_user", "ansible_ssh_user"),
        identity=first("ansible_ssh_private_key_file", "ansible_private_key_file"),
        proxy_jump=jump[1] if jump else "",
    )


def _is_template(key: str, value: object) -> bool:
    return key.startswith("ansible_") and isinstance(value, str) and "{{" in value


def _hosts_in(content: Mapping[str, Any], group: str, seen: set[str]) -> Iterator[str]:
    if group in seen:
        return
    seen.add(group)
    inside = content.get(group, {})
    yield from inside.get("hosts", [])
    for child in inside.get("children", []):
        yield from _hosts_in(content, child, seen)


def _output(words: Sequence[str], mend: str) -> str:
    """Run a command; return what it printed.

    Raises:
        SourceError: It is not there, or failed.
    """
    if shutil.which(words[0]) is None:
        raise SourceError(f"there is no command {words[0]}: {mend}")
    try:
        done = subprocess.run(  # noqa: S603 - a list of words
            words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
            timeout=_LIMIT_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError(f"{' '.join(words)}: {error}") from error
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        reason = said[-1] if said else f"exit status {done.returncode}"
        raise SourceError(f"{' '.join(words)}: {reason}")
    return done.stdout
