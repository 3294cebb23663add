"""What shows before any node is asked: what the controller's own host lacks, and time-outs.

The host needs keys of logins without passphrase, and may be short of open files. Time-outs must
fire in their order. From the shortest on, for a node: heartbeats (0.5 s) < silence (2 s) <
``refusal_grace_s`` < ``unreachable_limit_s`` < ``uncorroborated_limit_s``. For a rank that hangs:
``hang_limit_s`` < time-out of the process group < NCCL's watchdog.
"""

import resource
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import asyncssh

from controller.check.check_findings import CheckFinding
from controller.clusterfile.cluster_reader import Cluster
from controller.core.rules.policy import Policy
from controller.fleet.login_keys import needs_passphrase
from profiles.task_profiles import TaskProfile

_SPARE_FILES: Final = 256
_MEND: Final = "name a key without passphrase as identity, in [ssh] or [[nodes]]"

_SILENCE_S: Final = 2.0
_PROBE_S: Final = 0.8
_GROUP_S: Final = {"nccl": 600.0, "gloo": 1800.0}
"""torch's time-outs of collectives, where a program sets no other."""
_HEARTBEAT: Final = "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"
_SUBJECT: Final = "time limits"


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


def check_limits(
    policy: Policy, tasks: Sequence[TaskProfile], backend: str
) -> Iterator[CheckFinding]:
    """Yield each pair of time-outs of which the wrong one fires first.

    Args:
        policy: The policy that holds.
        tasks: The tasks.
        backend: ``gloo`` or ``nccl``.
    """
    yield from _of_nodes(policy)
    for task in tasks:
        yield from _of_task(task, policy, backend)


def _of_nodes(policy: Policy) -> Iterator[CheckFinding]:
    ordered = [
        ("judge_interval_s", policy.judge_interval_s, _PROBE_S,
         "an unreachable node is judged before its peers have answered (0.8 s)"),
        ("refusal_grace_s", policy.refusal_grace_s, _SILENCE_S,
         "a node whose SSH server restarts is lost before its silence (2 s) is noticed"),
        ("unreachable_limit_s", policy.unreachable_limit_s, policy.refusal_grace_s,
         (f"a node that answers is given up before one that refuses (refusal_grace_s ="
         f" {policy.refusal_grace_s:g})")),
        ("uncorroborated_limit_s", policy.uncorroborated_limit_s, policy.unreachable_limit_s,
         ("a node of which nothing is known is given up before one whose tasks suffer"
         f" (unreachable_limit_s = {policy.unreachable_limit_s:g})")),
        ("join_limit_s", policy.join_limit_s, policy.takeover_grace_s,
         ("a new node is lost before a new controller may judge any"
         f" (takeover_grace_s = {policy.takeover_grace_s:g})")),
        ("takeover_grace_s", policy.takeover_grace_s, _SILENCE_S,
         "a new controller gives nodes up before it can have reached them (2 s)"),
    ]  # fmt: skip
    for key, value, least, what in ordered:
        if value <= least:
            advice = f"policy: {key} above {least:g}"
            yield CheckFinding("warning", _SUBJECT, (), f"{key} = {value:g}: {what}", advice)


def _of_task(task: TaskProfile, policy: Policy, backend: str) -> Iterator[CheckFinding]:
    if task.command is None:
        return
    hang_s, group_s = task.command.hang_limit_s, _GROUP_S[backend]
    if hang_s > group_s:
        text = (
            f"task {task.name}: hang_limit_s = {hang_s:g}: torch ends a collective after {group_s:g} s"
            f" ({backend}), before the hang is found: ranks die, and nobody looks where they stand"
        )
        advice = "lower hang_limit_s, or raise the timeout of init_process_group and keep it"
        yield CheckFinding("warning", _SUBJECT, (), text, advice)
    watchdog = task.command.env.get(_HEARTBEAT, "")
    if backend == "nccl" and watchdog.isdigit() and int(watchdog) < hang_s:
        text = (
            f"task {task.name}: {_HEARTBEAT} = {watchdog}: NCCL's watchdog ends the process before"
            f" hang_limit_s = {hang_s:g}"
        )
        advice = f"raise {_HEARTBEAT} above hang_limit_s"
        yield CheckFinding("warning", _SUBJECT, (), text, advice)
    if task.command.start_limit_s < policy.look_interval_s:
        text = (
            f"task {task.name}: start_limit_s = {task.command.start_limit_s:g}: a start is given up before"
            f" anybody has looked at it (look_interval_s = {policy.look_interval_s:g})"
        )
        yield CheckFinding("warning", _SUBJECT, (), text, "raise start_limit_s")
