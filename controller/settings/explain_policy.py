"""The explanation of a policy, as text and as JSON.

Nothing is decided here. The rows come from the tables and functions that the controller itself
uses.
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
    "reattempt": "the same processes form new groups and finish the iteration",
    "restart": "the process at fault is replaced; its peers continue and send it their state",
    "reconfigure": "the node is isolated, and a plan divides the remaining workers over all tasks",
    "none": "no action",
}


def statuses(table: Mapping[str, Status] | None = None) -> list[dict[str, str]]:
    """Return one row per status: its severity, its first action, and its meaning.

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
    """Return the rules that add to the severities, with the numbers of ``policy``.

    Args:
        policy: The settings that hold.
        table: Statuses by name; the package's own by default.
    """
    approval = (
        "Plans are applied without approval."
        if policy.is_auto_heal
        else "Plans wait for an operator's approval. Until then a task trains with its complete replicas."
    )
    if policy.auto_after_s and not policy.is_auto_heal:
        approval += (
            f" One that nobody has decided on is applied after {policy.auto_after_s:g} s; `unicron defer` gives"
            " more time."
        )
    if policy.is_rehearsal:
        approval = (
            "A rehearsal: each cure of a fault is recorded and waits for `unicron approve`, whatever else is"
            " set. Orders of operators are carried out as usual."
        )
    approvals = [
        f"Approval {number}: {rule.in_words}."
        for number, rule in enumerate(policy.approvals, start=1)
    ]
    repeats = _repeats(policy, (table or default_statuses()).values())
    return [
        *([] if policy.is_rehearsal else approvals),
        approval,
        *_storm_rules(policy),
        *repeats,
        *_task_rules(policy),
        *_node_rules(policy),
    ]


def _storm_rules(policy: Policy) -> list[str]:
    limits = []
    if policy.storm_plans:
        limits.append(f"{policy.storm_plans} plans were applied by it within an hour")
    if policy.storm_lost_share:
        limits.append(
            f"more than {policy.storm_lost_share:.0%} of the workers are lost within an hour"
        )
    if not limits:
        return []
    return [
        (
            f"Automation stops once {', or '.join(limits)}. Then each plan waits for an operator, until"
            " `unicron resume`."
        )
    ]


def _repeats(policy: Policy, known: Iterable[Status]) -> list[str]:
    of_one_gpu = [status for status in known if status.facts.is_of_one_gpu]
    drills = "count" if policy.counts_drills else "do not count"
    return [
        (
            "If a fault returns at the same place before an iteration is committed, a stronger action"
            " follows: a restart after a reattempt, isolation of the node after a restart. If the fault"
            " then returns on another node, the isolated node returns to service."
        ),
        (
            f"{policy.network_alerts} network faults of one node within {policy.network_window_s:g} s"
            f" isolate it. All network faults within {policy.network_merge_s:g} s of the first count as one."
        ),
        (
            f"{policy.restarts} SEV2 faults on one node within {policy.restart_window_s:g} s isolate it."
            f" {policy.gpu_faults} faults of one GPU ({', '.join(of_one_gpu)}) isolate only that GPU."
        ),
        "The last node in service is isolated only for broken hardware.",
        (
            "If a task's ranks report broken hardware on two nodes in turn, without an iteration between,"
            " and no probe confirms it, the program is more likely at fault. Then the task is held, and"
            " the first node returns to service."
        ),
        (
            f"Faults of drills {drills} against a node. The first fault of a drill's target within"
            f" {policy.drill_window_s:g} s counts as the drill's fault."
        ),
        (
            f"Findings of a node's probes within {policy.correlation_s:g} s of a fault on the node are"
            " evidence of that fault."
        ),
    ]


def _retry_rules(policy: Policy) -> list[str]:
    if not (policy.is_auto_heal and policy.held_retries):
        return []
    return [
        (
            f"A held task is tried again after {policy.held_pause_s:g} s, then after pauses that are five times"
            f" longer each, at most {policy.held_retries} times without progress. It is not if its settings are"
            " refused, or if its loss is not finite again."
        )
    ]


def _task_rules(policy: Policy) -> list[str]:
    return [
        (
            f"After {policy.max_recoveries} recoveries without a new iteration a task is held until an"
            " operator asks for a plan."
        ),
        *_retry_rules(policy),
        (
            "In Unicron's loops an iteration whose loss or gradient is not finite is not committed; it runs"
            " once more. If it is not finite again, the task is held for an operator."
        ),
        (
            "Other programs commit such an iteration, and all programs commit an iteration whose loss is"
            f" {policy.spike_factor:g} times its level. After {policy.spike_iterations} of them an operator"
            " is notified, and training continues."
        ),
        (
            "While a generation forms or ends, its ranks are inspected every"
            f" {policy.look_interval_s:g} s. A rank that is frozen counts as hung. A rank that delays its"
            f" peers counts as hung after {policy.slow_factor:g} x {policy.stall_factor:g} times the task's"
            " earlier transitions of the same kind, at least"
            f" {policy.slow_factor * policy.recovering_limit_s:g} s."
        ),
        (
            f"Without an earlier transition, or with a new process, the limit is {policy.start_limit_s:g} s."
            " In the save after the last iteration it is"
            f" {policy.slow_factor:g} x the limit of an iteration that saves, at least"
            f" {policy.start_limit_s:g} s. After a peer has left it is {policy.stop_limit_s:g} s."
        ),
    ]


def _node_rules(policy: Policy) -> list[str]:
    unseen = (
        "While no other node is in contact, an operator is asked first."
        if policy.is_auto_heal and not policy.asks_before_loss
        else "An operator is asked first (`unicron unreachable`)."
    )
    return [
        (
            "A node out of contact is assumed to train. It is lost at once if no peer node can reach its"
            f" SSH port. It is lost after {policy.refusal_grace_s:g} s if the port refuses and nothing shows"
            f" that its ranks live, and after {policy.unreachable_limit_s:g} s if only its agent is"
            " unreachable and its tasks do not advance."
        ),
        (
            "If a task runs on that node alone and no peer finds the node gone, the node is lost after"
            f" {policy.uncorroborated_limit_s:g} s. {unseen}"
        ),
        (
            "If a node's clock differs from the controller's by more than"
            f" {policy.clock_limit_s:g} s, operators are notified. No other action follows."
        ),
        (
            "An isolated node or GPU returns to service with `unicron uncordon NODE[:GPU]`, once its checks"
            " pass."
        ),
    ]


def as_json(policy: Policy) -> dict[str, Any]:
    """Return the whole explanation as JSON."""
    return {
        "statuses": statuses(),
        "rules": rules(policy),
        "policy": asdict(policy),
        "meanings": _meanings(),
    }


def actions() -> dict[str, str]:
    """Return the description of each action, weakest first."""
    return dict(_ACTIONS)


@dataclass(frozen=True, slots=True)
class PolicySetting:
    """One setting of a policy: name, value, whether that is the default, and meaning."""

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
        if field.name != "approvals"  # they are among the rules
    ]


def _meanings() -> dict[str, str]:
    """Return the meaning of each setting, read from the docstring of ``Policy``."""
    text = (inspect.getdoc(Policy) or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", text, re.MULTILINE)
    return {name: " ".join(words.split()).replace("``", "`") for name, words in entries}
