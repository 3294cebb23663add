"""The commands of ``unicron``.

Each imports only its own modules, which saves most commands a second of start-up.
"""
# ruff: noqa: PLC0415

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple


class CommandParts(NamedTuple):
    """How a command defines its options, and how it runs."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command: its name, a line for the list, a text for its help, and how to load it."""

    name: str
    help: str
    description: str
    load: Callable[[], CommandParts]


def _bootstrap() -> CommandParts:
    from controller.bootstrap import bootstrap_cli

    return CommandParts(bootstrap_cli.add_arguments, bootstrap_cli.run)


def _check() -> CommandParts:
    from controller.check import check_cli

    return CommandParts(check_cli.add_arguments, check_cli.run)


def _demo() -> CommandParts:
    from controller.demo import demo_arguments as options, demo_cli as command

    return CommandParts(options.add_arguments, command.run)


def _classify() -> CommandParts:
    from controller.classify import classify_cli

    return CommandParts(classify_cli.add_arguments, classify_cli.run)


def _drill() -> CommandParts:
    from controller.drill_matrix import drill_cli as command, drill_options as options

    return CommandParts(options.add_arguments, command.run)


def _down() -> CommandParts:
    from controller.service import down_cli

    return CommandParts(down_cli.add_arguments, down_cli.run)


def _init() -> CommandParts:
    from controller.init import init_cli

    return CommandParts(init_cli.add_arguments, init_cli.run)


def _history() -> CommandParts:
    from controller.operate import history_cli

    return CommandParts(history_cli.add_arguments, history_cli.run)


def _journal() -> CommandParts:
    from controller.operate import journal_cli

    return CommandParts(journal_cli.add_arguments, journal_cli.run)


def _playback() -> CommandParts:
    from controller.playback import playback_cli

    return CommandParts(playback_cli.add_arguments, playback_cli.run)


def _record() -> CommandParts:
    from controller.playback import record_cli

    return CommandParts(record_cli.add_arguments, record_cli.run)


def _plan() -> CommandParts:
    from controller.plan import plan_cli

    return CommandParts(plan_cli.add_arguments, plan_cli.run)


def _policy() -> CommandParts:
    from controller.clusterfile.cluster_reader import policy_of
    from controller.settings import policy_cli

    return CommandParts(policy_cli.add_arguments, partial(policy_cli.run, policy_of=policy_of))


def _profile() -> CommandParts:
    from controller.profile import profile_cli

    return CommandParts(profile_cli.add_arguments, profile_cli.run)


def _run() -> CommandParts:
    from controller.service import run_cli

    return CommandParts(run_cli.add_arguments, run_cli.run)


def _simulate() -> CommandParts:
    from controller.operate.present_cluster import read_cluster
    from controller.simulation import simulate_cli

    return CommandParts(
        simulate_cli.add_arguments, partial(simulate_cli.run, read_cluster=read_cluster)
    )


def _service() -> CommandParts:
    from controller.service import service_cli

    return CommandParts(service_cli.add_arguments, service_cli.run)


def _status() -> CommandParts:
    from controller.operate import status_cli

    return CommandParts(status_cli.add_arguments, status_cli.run)


def _uncordon() -> CommandParts:
    from controller.operate import node_cli

    return CommandParts(node_cli.add_uncordon_arguments, node_cli.run_uncordon)


def _unreachable() -> CommandParts:
    from controller.operate import node_cli

    return CommandParts(node_cli.add_unreachable_arguments, node_cli.run_unreachable)


def _reload() -> CommandParts:
    from controller.operate import reload_cli

    return CommandParts(reload_cli.add_arguments, reload_cli.run)


def _node_order(verb: str) -> CommandParts:
    from controller.operate import node_cli

    return CommandParts(partial(node_cli.add_order_arguments, verb), node_cli.run_order)


def _task_order(verb: str) -> CommandParts:
    from controller.operate import task_cli

    return CommandParts(partial(task_cli.add_arguments, verb), task_cli.run)


def _table(kind: str) -> CommandParts:
    from controller.operate import tables_cli

    return CommandParts(partial(tables_cli.add_arguments, kind), tables_cli.run)


def _logs() -> CommandParts:
    from controller.operate import logs_cli

    return CommandParts(logs_cli.add_arguments, logs_cli.run)


def _completion() -> CommandParts:
    from controller import completion

    return CommandParts(completion.add_arguments, completion.run)


def _decision(verb: str) -> CommandParts:
    from controller.operate import decision_cli

    return CommandParts(partial(decision_cli.add_arguments, verb), decision_cli.run)


def _events() -> CommandParts:
    from controller.operate import events_cli

    return CommandParts(events_cli.add_arguments, events_cli.run)


def _alerts() -> CommandParts:
    from controller.operate import alerts_cli

    return CommandParts(alerts_cli.add_arguments, alerts_cli.run)


def _notify() -> CommandParts:
    from controller.operate import notify_cli

    return CommandParts(notify_cli.add_arguments, notify_cli.run)


def _explain() -> CommandParts:
    from controller.operate import explain_cli

    return CommandParts(explain_cli.add_arguments, explain_cli.run)


def _post_mortem() -> CommandParts:
    from controller.operate import post_mortem_cli

    return CommandParts(post_mortem_cli.add_arguments, post_mortem_cli.run)


def _audit() -> CommandParts:
    from controller.operate import audit_cli

    return CommandParts(audit_cli.add_arguments, audit_cli.run)


COMMANDS: Final = (
    CommandEntry(
        "demo",
        "train two real tasks on a local cluster, and recover them from faults",
        "Start a local cluster of SSH nodes, train two Megatron tasks on it, inject faults (drills) and"
        " recover from them. The demo removes all of its processes and files when it ends.",
        _demo,
    ),
    CommandEntry(
        "init",
        "write a cluster file from a hostlist, Ansible, SSH's configuration or Slurm",
        "Write a commented cluster file from what describes the nodes already: a hostlist, an Ansible"
        " inventory, an SSH configuration, or Slurm.",
        _init,
    ),
    CommandEntry(
        "bootstrap",
        "put the agent on the nodes of a cluster file and start it, or take it away",
        "Put Unicron's agent on the nodes of a cluster file over SSH, start it, and check that it is well."
        " Each node that is not ready gets a line that says why, and what to do.",
        _bootstrap,
    ),
    CommandEntry(
        "check",
        "say what is not ready in a cluster, before anything starts",
        "Look at the nodes of a cluster file over SSH, and at its time-outs, and say what is not ready. Nothing"
        " is installed, started or changed.",
        _check,
    ),
    CommandEntry(
        "run",
        "run the controller of a cluster file, until it is stopped",
        "Run the controller of a cluster: it starts the agents on the nodes over SSH, trains the tasks, and"
        " recovers them from faults. If an earlier controller of this cluster has ended, it takes over.",
        _run,
    ),
    CommandEntry(
        "service",
        "run the controller of a cluster file as a systemd service",
        "Have systemd run the controller of a cluster file, and restart it after a crash: install that, end it, or"
        " show its state.",
        _service,
    ),
    CommandEntry(
        "down",
        "stop the tasks of a cluster with a checkpoint, then its agents and its controller",
        "Stop a cluster: its tasks at the end of an iteration with a checkpoint, then the agents with all"
        " their processes, then the controller. It says what it will stop, and asks first.",
        _down,
    ),
    CommandEntry(
        "status",
        "show tasks, nodes, open incidents and waiting plans of a controller",
        "Show what a running controller knows: its tasks, nodes, open incidents, plans that wait, and the"
        " controller itself.",
        _status,
    ),
    CommandEntry(
        "tasks",
        "list the tasks",
        "Show the tasks of a running controller.",
        partial(_table, "tasks"),
    ),
    CommandEntry(
        "nodes",
        "list the nodes",
        "Show the nodes of a running controller.",
        partial(_table, "nodes"),
    ),
    CommandEntry(
        "incidents",
        "list the open incidents, or the newest ones",
        "Show the incidents of a running controller, from the fault to its cure.",
        partial(_table, "incidents"),
    ),
    CommandEntry(
        "plans",
        "list the plans that wait, or the newest ones",
        "Show the plans of a running controller: how the workers are divided over the tasks.",
        partial(_table, "plans"),
    ),
    CommandEntry(
        "alerts",
        "list what a person should know or decide now",
        "Show the alerts of a running controller, the most urgent first, with the commands to type.",
        _alerts,
    ),
    CommandEntry(
        "notify",
        "list or test the channels over which people are notified",
        "List the [[notify]] tables of a cluster file, or send a test message over each.",
        _notify,
    ),
    CommandEntry(
        "events",
        "print the newest events, and follow them",
        "Print what a running controller has announced, and then each new line.",
        _events,
    ),
    CommandEntry(
        "logs",
        "print what the ranks of a task write, and follow it",
        "Print the output of a task's ranks, which the controller reads from their nodes.",
        _logs,
    ),
    CommandEntry(
        "explain",
        "say all that is known of an incident, plan, task or node",
        "Explain an incident, a plan, a task or a node of a running controller.",
        _explain,
    ),
    CommandEntry(
        "post-mortem",
        "write the report about an incident: timeline, cause, decision, cost, losses",
        "Write all that is known of an incident, for the meeting after it.",
        _post_mortem,
    ),
    CommandEntry(
        "approve",
        "apply a plan that waits for a decision",
        "Apply a plan of a running controller, as of the revision that you have seen.",
        partial(_decision, "approve"),
    ),
    CommandEntry(
        "reject",
        "decline a plan that waits for a decision",
        "Decline a plan of a running controller, as of the revision that you have seen.",
        partial(_decision, "reject"),
    ),
    CommandEntry(
        "defer",
        "have a plan that is applied by itself wait for longer",
        "Defer the countdown of a plan of a running controller.",
        partial(_decision, "defer"),
    ),
    CommandEntry(
        "resume",
        "let policy apply plans again after a storm",
        "Let a running controller apply plans by itself again, after a storm has stopped that.",
        partial(_decision, "resume"),
    ),
    CommandEntry(
        "propose",
        "ask for a plan for the present state",
        "Ask a running controller for a plan for the present state.",
        partial(_decision, "propose"),
    ),
    CommandEntry(
        "audit",
        "show who asked for what, when, and what became of it",
        "Show the requests of operators to the controllers of a run, and their outcome.",
        _audit,
    ),
    CommandEntry(
        "classify",
        "find and classify the faults in logs of ranks, kernels and monitors",
        "Read stderr, kernel and monitor logs. Report each fault with its status, its severity, the line"
        " that shows it, and the first response.",
        _classify,
    ),
    CommandEntry(
        "drill",
        "list the drills, or run them and check each diagnosis",
        "A drill injects one fault into a local cluster. `list` explains every drill; `matrix` runs the"
        " drills and compares each diagnosis and recovery with the expected one.",
        _drill,
    ),
    CommandEntry(
        "history",
        "show what a run has been through: iterations, incidents, plans, lines",
        "Show iterations, incidents, plans or announcements of a run, also of former controllers and while"
        " the controller runs.",
        _history,
    ),
    CommandEntry(
        "journal",
        "check, count, export or repair a controller's journal",
        "Read the journal of a controller, also while the controller runs: check that every line is whole,"
        " count its events, or print them. A damaged end is cut off only by `repair`.",
        _journal,
    ),
    CommandEntry(
        "record",
        "write what a controller shows into a file that can be played back",
        "Record what a running controller shows, until Ctrl-C.",
        _record,
    ),
    CommandEntry(
        "playback",
        "play back the past of a run, from its journal or a recording",
        "Say what a journal or a recording holds, or serve it as a controller would: consoles and commands then"
        " see the cluster as it was at an instant.",
        _playback,
    ),
    CommandEntry(
        "plan",
        "divide workers over tasks, for a problem file or a cluster",
        "Ask the planner how it would divide workers over tasks: for a problem in a file, or for a cluster"
        " after a supposed change. Nothing is changed on a cluster.",
        _plan,
    ),
    CommandEntry(
        "policy",
        "explain how the controller responds to each fault",
        "Explain how the controller responds to each fault, and every setting of the policy.",
        _policy,
    ),
    CommandEntry(
        "profile",
        "estimate, measure, show and merge the throughput of models",
        "Throughput of models by number of workers: estimate it, measure it on a running controller, check"
        " estimates against measurements, show tables and merge them.",
        _profile,
    ),
    CommandEntry(
        "simulate",
        "compare policies over months of simulated faults",
        "Simulate months of faults in seconds. The controller's own core and other ways to handle failures"
        " run on the same modelled cluster, which can start as a copy of a real one.",
        _simulate,
    ),
    CommandEntry(
        "completion",
        "print the completion script of a shell",
        "Print what bash, zsh or fish needs to complete commands, options and names.",
        _completion,
    ),
    CommandEntry(
        "reload",
        "have the controller take its changed cluster file in",
        "Have a running controller read its cluster file again, say what has changed, and take it in.",
        _reload,
    ),
    CommandEntry(
        "submit",
        "train the tasks of a file, too",
        "Have a running controller train further tasks.",
        partial(_task_order, "submit"),
    ),
    CommandEntry(
        "stop",
        "stop a task with a checkpoint, until it is started again",
        "Stop a task of a running controller, after a checkpoint.",
        partial(_task_order, "stop"),
    ),
    CommandEntry(
        "start",
        "start a task that was stopped, or try a held one again",
        "Let a stopped task run again, or try one that is held.",
        partial(_task_order, "start"),
    ),
    CommandEntry(
        "finish",
        "end a task with a checkpoint",
        "End a task of a running controller before its last iteration.",
        partial(_task_order, "finish"),
    ),
    CommandEntry(
        "archive",
        "do not show a finished task any more",
        "Put a finished task out of sight.",
        partial(_task_order, "archive"),
    ),
    CommandEntry(
        "limits",
        "set the sizes that a plan may give a task",
        "Set how many workers a plan may give a task, at least and at most.",
        partial(_task_order, "limits"),
    ),
    CommandEntry(
        "weight",
        "set the weight of a task",
        "Set how much the FLOP/s of a task count beside those of others.",
        partial(_task_order, "weight"),
    ),
    CommandEntry(
        "cordon",
        "place nothing new on a node",
        "Ask a running controller to place nothing new on a node.",
        partial(_node_order, "cordon"),
    ),
    CommandEntry(
        "drain",
        "move a node's tasks elsewhere, without losing an iteration",
        "Ask a running controller to move the tasks of a node elsewhere.",
        partial(_node_order, "drain"),
    ),
    CommandEntry(
        "isolate",
        "take a node out of service at once",
        "Ask a running controller to end the ranks of a node, and to do without it.",
        partial(_node_order, "isolate"),
    ),
    CommandEntry(
        "repair",
        "say that a node is under repair, or that this is over",
        "Put a node of a running controller under repair, or let it return after that.",
        partial(_node_order, "repair"),
    ),
    CommandEntry(
        "uncordon",
        "return a node or GPU to service",
        "Ask a running controller to return a node or GPU to service that is isolated, cordoned or drained.",
        _uncordon,
    ),
    CommandEntry(
        "unreachable",
        "decide whether a node out of contact is lost",
        "Decide for a running controller that a node out of contact is lost, or to wait for it.",
        _unreachable,
    ),
)
