"""The policies ``unicron`` and ``unicron-approved``: the core on a modelled cluster."""

from collections.abc import Callable
from dataclasses import replace

from controller.core.machine import Machine
from controller.core.specs import NodeSpec, TaskSpec
from controller.simulation.scenarios.duration_laws import seeded_random
from controller.simulation.world.event_sequence import EventSequence
from controller.simulation.world.initial_setup import InitialSetup
from controller.simulation.world.modelled_cluster import ModelledCluster
from controller.simulation.world.modelled_nodes import ModelledNodes
from controller.simulation.world.virtual_clock import VirtualClock
from controller.simulation.world.worker_time import WorkerAccount, WorkerTimeLedger
from nodeagent.protocol.ids import NodeId, TaskId

_LONG_S = 86400.0
"""A limit that is never reached. It is for processes that hang, and no modelled process does."""


def run_unicron(
    setup: InitialSetup,
    sequence: EventSequence,
    seed: int,
    *,
    is_auto_heal: bool = True,
    is_checked: bool = False,
    on_progress: Callable[[float], None] = lambda _done: None,
) -> WorkerAccount:
    """Run Unicron through the events; without auto-heal every plan waits for an operator.

    ``is_checked`` has the core check its invariants, and run every sweep after every event.
    ``on_progress`` gets the fraction of the time that is simulated.
    """
    values = setup.scenario.values
    width = len(str(sequence.num_nodes))
    nodes = [
        NodeSpec(NodeId(f"n{number:0{width}d}"), "", values.workers_per_node)
        for number in range(sequence.num_nodes)
    ]
    policy = replace(
        setup.policy,
        is_auto_heal=is_auto_heal,
        start_limit_s=_LONG_S,
        stop_limit_s=_LONG_S,
        prepare_limit_s=_LONG_S,
    )
    machine = Machine(nodes, _specs(setup), policy)
    machine.is_checked = is_checked
    names = [each.task.name for each in setup.profiles]
    ledger = WorkerTimeLedger(
        sequence.num_nodes * values.workers_per_node, values.gpus_per_worker, names
    )
    rng = seeded_random(setup.scenario.name, seed, "unicron")
    site = ModelledNodes(machine, values, setup.profiles, ledger, VirtualClock(on_progress), rng)
    ModelledCluster(site).run(sequence)
    return replace(ledger.close(sequence.duration_s), num_plans=machine.state.plans.num_named)


def _specs(setup: InitialSetup) -> list[TaskSpec]:
    return [
        TaskSpec(
            task=TaskId(each.task.name),
            weight=each.task.weight,
            workers=setup.split[each.task.name],
            min_workers=each.task.min_workers,
            keeps_running=each.task.keeps_running,
            table=each.table,
            flops_per_iteration=each.flops_per_iteration,
            num_iterations=None,
            num_micro_batches=max(point.layout.dp for point in each.table.points),
        )
        for each in setup.profiles
    ]
