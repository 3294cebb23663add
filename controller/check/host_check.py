"""What is not ready on the controller's own host: keys of logins, and its limit of open files."""

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import asyncssh

from controller.check.check_findings import CheckFinding
from controller.check.time_limits import check_limits
from controller.clusterfile.cluster_reader import Cluster
from controller.fleet.login_keys import needs_passphrase

_SPARE_FILES: Final = 256
_MEND: Final = "name a key without passphrase as identity, in [ssh] or [[nodes]]"


def check_without_nodes(cluster: Cluster) -> list[CheckFinding]:
    """Return all that shows before any node is asked: this host, and the time-outs."""
    backend = "nccl" if cluster.has_gpus else "gloo"
    return [*check_limits(cluster.policy, cluster.tasks, backend), *check_host(cluster)]


def check_host(cluster: Cluster) -> Iterator[CheckFinding]:
    """Yield what is not ready. Nothing is contacted."""
    yield from _identities(cluster)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = len(cluster.nodes) + _SPARE_FILES
    if 0 <= most < wanted:
        text = f"the controller may open {most} files, and needs {wanted} for these nodes"
        advice = f"raise the hard limit (nofile) of its user to {wanted}"
        yield CheckFinding("error", "controller", (), text, advice)


def _identities(cluster: Cluster) -> Iterator[CheckFinding]:
    nodes_by_key: dict[str, list[str]] = {}
    for node in cluster.nodes:
        for target in (node.address.ssh, *node.address.jumps):
            nodes_by_key.setdefault(target.client_key, []).append(str(node.address.node))
    for key, nodes in nodes_by_key.items():
        text = "the login uses the keys of your ssh-agent"
        try:
            if key and not needs_passphrase(Path(key)):
                continue
            if key:
                text = f"{key} has a passphrase, so that the login needs your ssh-agent"
        except (OSError, asyncssh.KeyImportError) as error:
            text = f"{key} is no private key that can be read: {error}"
            yield CheckFinding("error", "identity", _once(nodes), text, _MEND)
            continue
        text += ": a controller can't log in after it has ended"
        yield CheckFinding("warning", "identity", _once(nodes), text, _MEND)


def _once(nodes: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(nodes))
