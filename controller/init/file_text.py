"""The text of a new cluster file. Pure: nodes in, text out."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from controller.clusterfile.hostlist import fold
from controller.init.node_sources import FoundNode

_COLUMN: Final = 40
_TASK: Final = """# A small GPT, which shows that the nodes train together. Replace it: docs/bring-your-own.md.
# `unicron profile estimate` guesses the throughput of a model.

[[task]]
name = "first"
weight = 1.0                            # multiplies its throughput where tasks compete
workers = {workers}                             # size at the start
min_workers = 1                         # it does not train with fewer
num_micro_batches = 8                   # of the global batch, over all replicas
num_iterations = 1000                   # the task ends after it; leave it out to train until stopped

[task.model]
num_layers = 2
hidden_size = 32
num_attention_heads = 2
seq_length = 32

[task.throughput]                       # sizes that it may have, and model FLOP/s at each
points = [
{points}
]
"""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the operator said beside the source.

    Attributes:
        path: The file, for its first lines.
        name: Name of the cluster.
        gpus: GPUs of a node where the source does not say.
        workers: Workers of a node without GPUs.
        user: User to log in as; empty for the source's.
        python: Interpreter on the nodes; empty for ``python3``.
        checkpoint_dir: Directory of all checkpoints, on the nodes.
    """

    path: str
    name: str
    gpus: int | None = None
    workers: int | None = None
    user: str = ""
    python: str = ""
    checkpoint_dir: str = ""


class NoSizeError(Exception):
    """Nobody says how many workers a node has. The text is one line."""


def cluster_text(nodes: Sequence[FoundNode], wishes: Wishes) -> str:
    """Return the text of a cluster file.

    Raises:
        NoSizeError: Nobody says how many workers a node has.
    """
    return "\n".join(_lines(nodes, wishes))


def size_of(node: FoundNode, wishes: Wishes) -> tuple[str, int]:
    """Return the key for the size of a node, ``gpus`` or ``workers``, and its value.

    Raises:
        NoSizeError: Nobody says it.
    """
    if wishes.workers is not None:
        return "workers", wishes.workers
    if gpus := wishes.gpus or node.gpus:
        return "gpus", gpus
    raise NoSizeError(
        f"nothing says how many GPUs {node.name} has: add --gpus 8, or --workers N for ranks on the CPU"
    )


def _lines(nodes: Sequence[FoundNode], wishes: Wishes) -> Iterator[str]:
    yield "# The nodes, the tasks that they train, and what operators decided. docs/cluster-file.md"
    yield "# explains every key."
    yield "#"
    for command, what in (
        (f"unicron check {wishes.path}", "what is not ready on the nodes"),
        (f"unicron bootstrap {wishes.path}", "put the agent on them"),
        (f"unicron run {wishes.path}", "start the controller; it stays in the foreground"),
        (f"unicron-console --cluster {wishes.path}", "watch it"),
    ):
        yield f"#     {command:{_COLUMN}}  # {what}"
    yield ""
    yield "[cluster]"
    yield f"name = {_quoted(wishes.name)}"
    yield _line(
        f"checkpoint_dir = {_quoted(wishes.checkpoint_dir)}", "one directory that all nodes share"
    )
    yield ""
    yield _line("[ssh]", "what is left out comes from ~/.ssh/config")
    yield _line(f"user = {_quoted(wishes.user)}", "") if wishes.user else '# user = "train"'
    yield _line(
        f"python = {_quoted(wishes.python)}"
        if wishes.python
        else '# python = "/opt/train/bin/python"',
        "has torch and megatron-core; default: python3",
    )
    yield '# identity = "~/.ssh/id_ed25519"'
    yield '# proxy_jump = "me@bastion"'
    for group in _groups(nodes):
        yield ""
        yield from _group(group, wishes)
    yield ""
    yield _line("[policy]", "`unicron policy explain` lists all settings")
    yield _line("is_auto_heal = false", "plans wait for an approval; true applies them at once")
    yield ""
    sizes = [1, 2] if sum(size_of(node, wishes)[1] for node in nodes) > 1 else [1]
    yield _TASK.format(workers=sizes[-1], points="\n".join(map(_point, sizes)))


def _groups(nodes: Sequence[FoundNode]) -> list[list[FoundNode]]:
    """Return nodes that differ in nothing but their names together."""
    groups: dict[FoundNode, list[FoundNode]] = {}
    for node in nodes:
        groups.setdefault(node if node.host else replace(node, name=""), []).append(node)
    return list(groups.values())


def _group(group: Sequence[FoundNode], wishes: Wishes) -> Iterator[str]:
    node = group[0]
    yield "[[nodes]]"
    if node.host:
        yield f"name = {_quoted(node.name)}"
        yield f"host = {_quoted(node.host)}"
    else:
        nodes = "1 node: its name is its address"
        number = f"{len(group)} nodes: names and addresses" if len(group) > 1 else nodes
        yield _line(f"hosts = {_quoted(fold(each.name for each in group))}", number)
    if node.port is not None:
        yield f"port = {node.port}"
    for key, value in (
        ("user", "" if wishes.user else node.user),
        ("identity", node.identity),
        ("proxy_jump", node.proxy_jump),
    ):
        if value:
            yield f"{key} = {_quoted(value)}"
    key, size = size_of(node, wishes)
    kinds = {"gpus": "of each node: CUDA and NCCL", "workers": "on each node: CPU and gloo"}
    yield _line(f"{key} = {size}", kinds[key])
    if node is group[0] and not node.host:
        yield _line('# failure_domain = "rack-1"', "replicas of a task are spread over domains")


def _point(workers: int) -> str:
    layout = f"layout = {{ tp = 1, pp = 1, dp = {workers} }}"
    return f"    {{ workers = {workers}, flops_per_s = {workers * 3.0e9:.1e}, {layout} }},"


def _line(text: str, comment: str) -> str:
    return f"{text:{_COLUMN - 1}} # {comment}" if comment else text


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
