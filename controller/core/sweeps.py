"""The sweeps over the state after every event: a table, and the pass that runs it.

An event is first taken in by the room of its subject, which records facts and opens incidents. Then
the sweeps compare the present state with the wanted state and cause the instructions. They are
level-based: a sweep with nothing to do changes nothing, so an event needs no list of its
consequences.

Each sweep states which sweeps must have run before it, and which instructions it may emit. Tests
check both: the order of the table against ``needs``, and every emitted instruction against
``may_emit``.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from controller.core.incidents.resolution import close_cured_incidents
from controller.core.instructions import (
    Announce,
    DisconnectNode,
    DropRendezvous,
    HaltRanks,
    Instruction,
    PrepareSpares,
    RecordIterations,
    SetTimer,
    StartRanks,
    StopRanks,
)
from controller.core.lifecycle.spares import drop_useless_spares
from controller.core.lifecycle.start_stop import leave_behind_unreachable, start_what_can_start
from controller.core.measuring.sizes import advance_measurement
from controller.core.membership.node_membership import let_nodes_leave
from controller.core.membership.node_upkeep import note_drained, return_repaired
from controller.core.membership.task_arrivals import settle_specs
from controller.core.membership.wanted_plans import ask_for_wanted_plans
from controller.core.nodes.bursts import count_change, end_gathering, end_returns
from controller.core.nodes.contact import lose_absent_nodes
from controller.core.planning.plans import advance_plan, make_requested_plans, reconsider
from controller.core.recovery.generations import continue_parked, park_what_moves
from controller.core.state.phases import InvariantViolationError
from controller.core.state.turn import Turn

_PLAN: Final = frozenset[type[Instruction]]({Announce, DropRendezvous, SetTimer, StopRanks})
_PARK: Final = frozenset[type[Instruction]](
    {Announce, DropRendezvous, HaltRanks, PrepareSpares, SetTimer, StopRanks}
)
_CONTINUE: Final = frozenset[type[Instruction]](
    {Announce, DropRendezvous, HaltRanks, SetTimer, StartRanks, StopRanks}
)


@dataclass(frozen=True, slots=True)
class Sweep:
    """One pass over the state.

    Attributes:
        name: Its name in the table.
        run: The function that runs it.
        needs: Sweeps that must have run before it.
        why: What goes wrong if it runs earlier.
        may_emit: Types of the instructions that it may cause.
    """

    name: str
    run: Callable[[Turn], object]
    needs: frozenset[str]
    why: str
    may_emit: frozenset[type[Instruction]] = field(repr=False)


def num_settled(turn: Turn) -> int:
    """Return how many tasks have left their workers; ``plan after a finish`` compares it."""
    # Before every event, so without a generator.
    return [task.has_settled for task in turn.state.tasks.values()].count(True)


def _plan_after_finish(turn: Turn) -> None:
    # ``finish`` runs when the last rank of a task is gone, and can't plan: rooms of the core are
    # layered, and lifecycle is below planning. One event may also finish several tasks, for
    # instance an inventory. A plan made here counts the free workers of all of them.
    if num_settled(turn) > turn.num_settled_before:
        reconsider(turn, trigger="a finished task", seen="a task has left its workers")


def _act_on_named_causes(turn: Turn) -> None:
    # A parked task may have got its cause, and so a plan, only in ``continue``. Without this second
    # pass the task would stay parked until the next event. Tasks may be halted a second time in one
    # turn, as the new plan may move tasks that still train. A parked task is not halted again.
    if make_requested_plans(turn):
        park_what_moves(turn)
        continue_parked(turn)


SWEEPS: Final = (
    Sweep(
        "settle specs",
        settle_specs,
        frozenset(),
        "the event may have ended the last rank of a task that was changed: plans see what it is now",
        frozenset(),
    ),
    Sweep(
        "ask for wanted plans",
        ask_for_wanted_plans,
        frozenset({"settle specs"}),
        "tasks that were added again want a plan once they are settled",
        frozenset(),
    ),
    Sweep(
        "lose absent nodes",
        lose_absent_nodes,
        frozenset(),
        "a node that never came is a loss like others",
        _PLAN,
    ),
    Sweep(
        "gather losses",
        end_gathering,
        frozenset({"lose absent nodes"}),
        "it is before all plans: losses of nodes that came together request one plan",
        frozenset(),
    ),
    Sweep(
        "gather returns",
        end_returns,
        frozenset({"gather losses"}),
        "nodes that came together request one plan, which also sees what was lost",
        frozenset(),
    ),
    Sweep(
        "return repaired",
        return_repaired,
        frozenset(),
        "nodes that come back request a plan, too",
        frozenset({Announce}),
    ),
    Sweep(
        "plan",
        make_requested_plans,
        frozenset({"ask for wanted plans", "gather losses", "gather returns", "return repaired"}),
        "the event may have requested a plan, and every later sweep follows targets",
        _PLAN,
    ),
    Sweep(
        "leave behind",
        leave_behind_unreachable,
        frozenset({"plan"}),
        "a plan may have taken a task away from an unreachable node",
        _PLAN,
    ),
    Sweep(
        "plan after a finish",
        _plan_after_finish,
        frozenset({"plan"}),
        "a plan that was requested for another reason already counts the free workers",
        _PLAN,
    ),
    Sweep(
        "measurement",
        advance_measurement,
        frozenset({"plan", "plan after a finish"}),
        "a measurement must not take workers that a plan has just assigned",
        _PLAN | {StartRanks, RecordIterations},
    ),
    Sweep(
        "drop spares",
        drop_useless_spares,
        frozenset({"plan", "leave behind"}),
        "the target decides which spares are needed",
        frozenset({Announce, StopRanks}),
    ),
    Sweep(
        "park",
        park_what_moves,
        frozenset({"plan", "drop spares"}),
        "a task parks for its target; useless spares would count as ready",
        _PARK,
    ),
    Sweep(
        "continue",
        continue_parked,
        frozenset({"park"}),
        "a task that just parked without ranks to wait for continues in the same turn",
        _CONTINUE,
    ),
    Sweep(
        "act on named causes",
        _act_on_named_causes,
        frozenset({"continue"}),
        "causes are named in ``continue``, once all ranks have parked",
        _CONTINUE | _PARK | _PLAN,
    ),
    Sweep(
        "count change",
        count_change,
        frozenset({"act on named causes"}),
        "the plan for a change was prepared with the rate of changes before it",
        frozenset(),
    ),
    # After both passes that continue parked tasks: the plan for a named cause may give a waiting
    # task another target, and a parked task occupies its new workers only once it continues.
    Sweep(
        "start",
        start_what_can_start,
        frozenset({"act on named causes"}),
        "a task may only start on workers that no parked task takes in this turn",
        frozenset({Announce, SetTimer, StartRanks}),
    ),
    Sweep(
        "advance plan",
        advance_plan,
        frozenset({"start"}),
        "a plan is applied once its tasks are at their targets",
        frozenset({Announce}),
    ),
    Sweep(
        "let nodes leave",
        let_nodes_leave,
        frozenset({"advance plan"}),
        "a node leaves once no task has a process there, or a target",
        frozenset({Announce, DisconnectNode}),
    ),
    Sweep(
        "note drained",
        note_drained,
        frozenset({"advance plan"}),
        "a node is drained once no task has a process there, or a target",
        frozenset({Announce}),
    ),
    # The last one: an earlier sweep of the same turn may park a task or take its target away. An
    # incident that was closed before it would be announced as cured while its task does not train.
    Sweep(
        "close incidents",
        close_cured_incidents,
        frozenset({"advance plan"}),
        "an incident is cured once its task is where the plan wants it",
        frozenset({Announce}),
    ),
)


def run_sweeps(turn: Turn, *, is_checked: bool = False) -> None:
    """Run all sweeps in the order of the table.

    Args:
        turn: The event being handled.
        is_checked: Whether to compare emitted instructions with the table; for tests.

    Raises:
        InvariantViolationError: A sweep emitted an instruction that the table does not allow.
    """
    for sweep in SWEEPS:
        # Sweeps share one list of instructions, so only its new part belongs to this sweep.
        num_before = len(turn.instructions)
        sweep.run(turn)
        if is_checked:
            for instruction in turn.instructions[num_before:]:
                if type(instruction) not in sweep.may_emit:
                    raise InvariantViolationError(f"sweep {sweep.name!r} emitted {instruction}")
