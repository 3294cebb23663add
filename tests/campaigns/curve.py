"""``make scale ARGS=--curve``: what the core takes by the size of the fleet, in one process.

No SSH and no disk: events go into the machine, heartbeats into their watch. 20 tasks have all
workers, so their ranks grow with the fleet. Each size has a process of its own.
"""

import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields

from controller.api.projection import Frame
from controller.api.view_keeper import ViewKeeper
from controller.core.events import Event, NodeAttached, TimerFired
from controller.core.heartbeats.heartbeat_watch import HeartbeatWatch
from controller.core.instructions import StartRanks
from controller.core.timers import SettleIncident
from nodeagent.protocol.ids import AgentId, NodeId
from nodeagent.protocol.observations import RankExited
from tests.fakes.fleets import WORKERS, Fleet

SIZES = (100, 300, 1000, 3000, 10_000)
_NUM_TASKS = 20
_NUM_TIMED = 200


@dataclass(frozen=True)
class Costs:
    """Medians for one size; times in the unit of the name.

    Attributes:
        attach_us: A node attaches while the fleet starts.
        report_us: A rank reports that it has started, or has its state.
        commit_us: An iteration is committed.
        beat_us: A heartbeat of eight ranks that says nothing new.
        fault_us: A rank is killed: its exit, and the halt of its task.
        view_ms: A snapshot for clients after an event of one node.
        whole_view_ms: One in which every node has changed.
        memory_mb: Of the whole process.
    """

    nodes: int
    attach_us: float
    report_us: float
    commit_us: float
    beat_us: float
    fault_us: float
    view_ms: float
    whole_view_ms: float
    memory_mb: float


def curve(sizes: Iterable[int] = SIZES) -> list[Costs]:
    """Measure every size."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        return pool.map(_measure, sizes, chunksize=1)


def table(rows: list[Costs]) -> str:
    """Return the costs as a table of Markdown."""
    names = [each.name for each in fields(Costs)]
    lines = [
        "| " + " | ".join(name.replace("_", " ") for name in names) + " |",
        "|" + "---|" * len(names),
    ]
    for row in rows:
        cells = (f"{getattr(row, name):,.1f}".removesuffix(".0") for name in names)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _timed_s(action: Callable[..., object], *arguments: object) -> float:
    begin_s = time.perf_counter()
    action(*arguments)
    return time.perf_counter() - begin_s


def _measure(num_nodes: int) -> Costs:
    fleet = Fleet(num_nodes, _NUM_TASKS, num_nodes * WORKERS // _NUM_TASKS // WORKERS * WORKERS)
    state = fleet.machine.state
    starts: list[StartRanks] = []

    def attach(name: NodeId) -> None:
        found = fleet.handle(NodeAttached(name, AgentId(name), 1, ()))
        starts.extend(each for each in found if isinstance(each, StartRanks))

    attach_s = [_timed_s(attach, name) for name in list(state.nodes)]
    report_s = [_timed_s(fleet.handle, report) for start in starts for report in fleet.form(start)]
    commit_s, tasks = list[float](), list(state.tasks.values())
    for iteration in range(1, 1 + _NUM_TIMED // _NUM_TASKS):
        fleet.now += 1.0
        for task in tasks:
            commit_s.append(_timed_s(fleet.handle, fleet.commit(task, iteration)))
    watch, policy = HeartbeatWatch(state), fleet.machine.policy
    for name in state.nodes:
        watch.take(name, fleet.beat(name), fleet.now, fleet.now, policy)
    beats = [(name, fleet.beat(name)) for name in list(state.nodes)[:_NUM_TIMED]]
    now = fleet.now
    beat_s = [_timed_s(watch.take, name, beat, now, now, policy) for name, beat in beats]
    keeper, frame = ViewKeeper(state), Frame("c", 0.0, is_auto_heal=True, pulses=watch.pulses)

    def view() -> None:
        keeper.view(fleet.now, frame).model_dump_json()

    whole_view_s = _timed_s(view)
    view_s = []
    for task in tasks:
        body = fleet.commit(task, 1 + _NUM_TIMED // _NUM_TASKS)
        keeper.note(Event(1, fleet.now, body), fleet.handle(body))
        view_s.append(_timed_s(view))
    fault_s = []
    for task in tasks:
        ended = RankExited(
            task=task.spec.task, generation=task.generation, global_rank=3, pid=1,
            exit_code=None, signal=9, stderr_tail="",
        )  # fmt: skip
        report = fleet.report(task.ranks[3].worker.node, ended)
        fault_s.append(_timed_s(fleet.handle, report))
        [incident] = [each for each in state.incidents.open() if each.task == task.spec.task]
        fleet.handle(TimerFired(SettleIncident(incident.name)))
    medians_us = [
        1e6 * statistics.median(each) for each in (attach_s, report_s, commit_s, beat_s, fault_s)
    ]
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    view_ms, whole_view_ms = 1e3 * statistics.median(view_s), 1e3 * whole_view_s
    attach_us, report_us, commit_us, beat_us, fault_us = medians_us
    return Costs(
        num_nodes, attach_us, report_us, commit_us, beat_us, fault_us, view_ms, whole_view_ms,
        memory_mb,
    )  # fmt: skip
