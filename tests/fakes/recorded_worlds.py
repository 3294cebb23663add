"""A modelled run in which every kind of event happens."""

from dataclasses import replace

from controller.core.events import (
    AutomationResumed,
    ClockMeasured,
    CommandFailed,
    CureApproved,
    DrillRequested,
    EventBody,
    FileReloaded,
    LossDecided,
    MeasurementCancelled,
    MeasurementRequested,
    NodeAdded,
    NodeAnswered,
    NodeFellSilent,
    NodeOrdered,
    NodeRemoved,
    PlanApproved,
    PlanDeferred,
    PlanRejected,
    PlanRequested,
    PolicyChanged,
    RanksListed,
    RankVanished,
    ShutdownRequested,
    StragglerFound,
    StragglerOver,
    TaskAdded,
    TaskAdvanced,
    TaskChanged,
    TaskLimited,
    TaskOrdered,
    TaskRemoved,
    TaskSubmitted,
    UncordonRequested,
    WaitingChanged,
)
from controller.core.rules.policy import Policy
from nodeagent.protocol.findings import NodeFinding
from nodeagent.protocol.ids import NodeId, TaskId
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World

A, B, C, D = (TaskId(f"gpt-{letter}") for letter in "abcd")
N1, N2, N5 = NodeId("n1"), NodeId("n2"), NodeId("n5")
_WHO = ("r", "op")


def eventful_world(world: World | None = None) -> World:
    """Return a cluster that has been through each kind of event, on the way or posted by hand."""
    policy = Policy(uncorroborated_limit_s=4.0, gpu_faults=1)
    world = world or World(demo_machine(policy=policy, num_nodes=5), num_iterations=10**6)
    world.run(15.0)
    state = world.machine.state
    generation = state.tasks[A].generation
    for body in (
        ClockMeasured(N1, 5.0),
        NodeFellSilent(N1, world.now - 1.2),
        NodeAnswered(N1),
        RanksListed(N1, world.statuses(world.nodes[N1])),
        TaskAdvanced(N1, A, generation, 0, state.tasks[A].newest_iteration + 1),
        StragglerFound(A, generation, 0, 0.9, 0.2, 0.0),
        WaitingChanged(A, generation, 0.3),
        StragglerOver(A, generation, 0),
        DrillRequested(*_WHO, "kill-rank"),
        PlanRequested(*_WHO),
        CommandFailed(N1, "drill", A, generation, "refused", is_outcome_unknown=False),
        MeasurementRequested(*_WHO, B, (1,), 3),
    ):
        world.post(body)
    world.run(world.now + 2.0)
    world.post(MeasurementCancelled(*_WHO, "M-1"))
    world.find(
        "n3", NodeFinding(probe="disk", sign="disk_full", subject="/x", text="full", value=99.0)
    )
    world.kill_rank("gpt-a", 1)
    world.run(world.now + 10.0)
    world.raise_in_rank("gpt-b", 0, "RuntimeError", "CUDA error: unspecified launch failure")
    world.run(world.now + 10.0)
    _decide(world, reject=True)
    world.hang_rank("gpt-a", 0)
    world.run(world.now + 20.0)
    world.cut("n2", 2.0)
    world.run(world.now + 5.0)
    world.lose_node("n4")
    world.run(world.now + 8.0)
    world.post(LossDecided(*_WHO, NodeId("n4"), is_lost=True))
    _decide(world)
    world.run(world.now + 10.0)
    rank = next(iter(state.tasks[A].ranks.values()))
    world.post(RankVanished(rank.worker.node, A, state.tasks[A].generation, 0, world.now - 3.0))
    world.run(world.now + 10.0)
    _rehearse(world)
    _change_members(world)
    world.post(UncordonRequested(*_WHO, NodeId("n3"), is_forced=True))
    world.restore_node("n4")
    world.run(world.now + 20.0)
    world.kill_controller(2.0)
    world.run(world.now + 20.0)
    return world


def _decide(world: World, *, reject: bool = False) -> None:
    pending = world.machine.state.plans.pending()
    if pending is None:
        world.post(PlanApproved(*_WHO, "P-99", 1))
        world.post(PlanRejected(*_WHO, "P-99", 1, "no"))
    elif reject:
        world.post(PlanRejected(*_WHO, pending.name, pending.revision, "no"))
    else:
        world.post(PlanApproved(*_WHO, pending.name, pending.revision))


def _rehearse(world: World) -> None:
    """One cure waits, and is approved; the next change of the policy ends the rehearsal."""
    state = world.machine.state
    world.post(PolicyChanged(replace(world.machine.policy, is_rehearsal=True)))
    name, task = next((name, task) for name, task in state.tasks.items() if task.is_active)
    world.kill_rank(name, min(task.ranks))
    world.run(world.now + 10.0)
    asked = next(each for each in state.incidents.open() if each.awaits_consent)
    assert asked.rehearsed is not None
    world.post(CureApproved(*_WHO, asked.name, asked.rehearsed.action))


def _change_members(world: World) -> None:
    state = world.machine.state
    spec = state.tasks[B].spec
    bodies: tuple[EventBody, ...] = (
        NodeAdded(replace(state.nodes[N1].spec, node=NodeId("n6"), address="n6:22")),
        TaskAdded(replace(spec, task=C, workers=2)),
        TaskChanged(replace(spec, weight=2.0)),
        PolicyChanged(Policy(is_auto_heal=True, uncorroborated_limit_s=4.0)),
        TaskSubmitted(*_WHO, (replace(spec, task=D, workers=2),)),
        TaskLimited(*_WHO, B, weight=3.0, max_workers=2),
        NodeOrdered(*_WHO, "cordon", N5, "new fan"),
        NodeOrdered(*_WHO, "drain", NodeId("n6")),
        NodeOrdered(*_WHO, "isolate", N5),
        NodeOrdered(*_WHO, "repair", NodeId("n6")),
        NodeOrdered(*_WHO, "return", NodeId("n6")),
        TaskOrdered(*_WHO, "stop", D),
        TaskOrdered(*_WHO, "start", D),
        TaskOrdered(*_WHO, "finish", D),
        TaskOrdered(*_WHO, "archive", D),
        PlanDeferred(*_WHO, "P-1", 1, 60.0),
        AutomationResumed(*_WHO),
        FileReloaded(*_WHO, ("node n6 joins",)),
        ShutdownRequested(*_WHO),
        NodeRemoved(N5),
        TaskRemoved(C),
    )
    for body in bodies:
        world.post(body)
        world.run(world.now + 2.0)
