"""``unicron policy explain``: what is done about which fault, and why, in words and as JSON.

Nothing here decides: the rows come from the same tables and functions as the controller's decisions.
"""

import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from controller.core.rules.actions import first_action
from controller.core.rules.policy import Policy
from profiles.faults.status import Severity, Status
from profiles.faults.status_table import default_statuses

_ACTIONS = {
    "reattempt": "the same processes regroup and finish the iteration",
    "restart": "the process at fault is replaced, its peers go on and give it its state",
    "reconfigure": "the node is isolated, and a plan divides what is left over all tasks",
    "none": "nothing is done",
}


def statuses(table: Mapping[str, Status] | None = None) -> list[dict[str, str]]:
    """Return one row per status: its severity, the first action, and what it means.

    Args:
        table: Statuses by name; the package's own by default.
    """
    order = list(Severity)
    rows = [
        {
            "status": str(status),
            "severity": status.severity.value,
            "action": first_action(status.severity),
            "meaning": status.facts.meaning,
        }
        for status in (table or default_statuses()).values()
        if status.is_fault
    ]
    rows.sort(key=lambda row: order.index(Severity(row["severity"])))
    return rows


def rules(policy: Policy, table: Mapping[str, Status] | None = None) -> list[str]:
    """Return the rules beyond the severities, with the numbers of ``policy``.

    Args:
        policy: The settings that hold.
        table: Statuses by name; the package's own by default.
    """
    approval = (
        "Plans are applied without asking."
        if policy.is_auto_heal
        else "Plans wait for an operator's approval; meanwhile a task goes on with the whole replicas"
        " it has left."
    )
    repeats = _repeats(policy, (table or default_statuses()).values())
    return [approval, *repeats, *_task_rules(policy), *_node_rules(policy)]


def _repeats(policy: Policy, known: Iterable[Status]) -> list[str]:
    of_one_gpu = [status for status in known if status.facts.is_of_one_gpu]
    drills = "count" if policy.counts_drills else "do not count"
    return [
        (
            "A reattempt that is followed by a fault at the same place before an iteration is committed"
            " is followed by a restart, and a restart by isolating the node. If the fault then comes"
            " back on another node, the isolated one returns to service."
        ),
        (
            f"{policy.network_alerts} network faults of one node within {policy.network_window_s:g} s"
            f" isolate it. What comes within {policy.network_merge_s:g} s of the first is the same one."
        ),
        (
            f"{policy.restarts} faults of SEV2 on one node within {policy.restart_window_s:g} s isolate it;"
            f" {policy.gpu_faults} faults of one GPU ({', '.join(of_one_gpu)}) isolate that GPU alone."
        ),
        "The last node in service is isolated for broken hardware alone.",
        (
            "A task whose ranks name broken hardware on one node, and before its next iteration on another,"
            " is held where no probe has found any: its program is more likely at fault, and the first node returns"
            " to service."
        ),
        (
            f"Faults made by drills {drills} against a node: the first fault of its target within"
            f" {policy.drill_window_s:g} s is taken for the drill's."
        ),
        f"What a node's probes find within {policy.correlation_s:g} s of a fault there belongs to it.",
    ]


def _task_rules(policy: Policy) -> list[str]:
    return [
        (
            f"After {policy.max_recoveries} recoveries of a task without a new iteration it is held until"
            " an operator proposes a plan."
        ),
        (
            "A loss or gradient that is not finite commits nothing in Unicron's loops: the iteration is run"
            " once more; if it is not finite again the task is held, and the operator is asked. Other"
            " programs have committed it already. So has everybody one that jumps to"
            f" {policy.spike_factor:g} times its level: the operator is told after"
            f" {policy.spike_iterations} iterations of either, and training goes on."
        ),
        (
            f"While a generation forms, or ends, its ranks are looked at every {policy.look_interval_s:g} s: one"
            f" that is stopped hangs. One that keeps others waiting hangs after {policy.slow_factor:g} x"
            f" {policy.stall_factor:g} times what such a transition of the task took before, at least"
            f" {policy.slow_factor * policy.recovering_limit_s:g} s; after {policy.start_limit_s:g} s where"
            " there was none or a new process is on its way; in the save after the last iteration after"
            f" {policy.slow_factor:g} x the limit of an iteration that saves, at least"
            f" {policy.start_limit_s:g} s; and {policy.stop_limit_s:g} s after another has left."
        ),
    ]


def _node_rules(policy: Policy) -> list[str]:
    unseen = (
        "While no other node is in contact an operator is asked."
        if policy.is_auto_heal and not policy.asks_before_loss
        else "An operator is asked first (`unicron unreachable`)."
    )
    return [
        (
            f"A node out of contact is presumed training. It is lost when no peer node finds its SSH port,"
            f" after {policy.refusal_grace_s:g} s if the port refuses and nothing tells whether its ranks"
            f" live, and after {policy.unreachable_limit_s:g} s if only its agent is out of reach while its"
            " tasks suffer."
        ),
        (
            "Where nobody can tell, because a task lives there alone and no peer finds the node gone, it is"
            f" lost after {policy.uncorroborated_limit_s:g} s. {unseen}"
        ),
        (
            f"A node whose clock is more than {policy.clock_limit_s:g} s off the controller's is told to"
            " operators; nothing is done about it."
        ),
        "An isolated node, or GPU, comes back by `unicron uncordon NODE[:GPU]` once its checks pass.",
    ]


def as_json(policy: Policy) -> dict[str, Any]:
    """Return the whole explanation for programs."""
    return {
        "statuses": statuses(),
        "rules": rules(policy),
        "policy": asdict(policy),
        "meanings": _meanings(),
    }


def actions() -> dict[str, str]:
    """Return what each action does, weakest first."""
    return dict(_ACTIONS)


@dataclass(frozen=True, slots=True)
class PolicySetting:
    """One setting of a policy: its name, its value, whether it is the default, and what it means."""

    name: str
    value: str
    is_default: bool
    meaning: str


def settings_of(policy: Policy) -> list[PolicySetting]:
    """Return every setting, in the order of their definition."""
    usual, meanings = Policy(), _meanings()
    return [
        PolicySetting(
            name := field.name,
            str(getattr(policy, name)),
            getattr(policy, name) == getattr(usual, name),
            meanings.get(name, ""),
        )
        for field in fields(policy)
    ]


def _meanings() -> dict[str, str]:
    """Return what each setting means: the attributes in the docstring of ``Policy``."""
    text = (inspect.getdoc(Policy) or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", text, re.MULTILINE)
    return {name: " ".join(words.split()).replace("``", "`") for name, words in entries}
