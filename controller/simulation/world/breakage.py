"""Breaks parts of the modelled cluster, reports the symptoms to the core, and repairs the parts."""

from collections.abc import Collection
from functools import partial
from typing import Final

from controller.core.events import ContactLost, NodeAttached, UncordonRequested
from controller.core.heartbeats.heartbeat_watch import HeartbeatWatch
from controller.core.rules.placement import Worker
from controller.simulation.world.event_sequence import SimulatedEvent
from controller.simulation.world.modelled_generation import ModelledGeneration
from controller.simulation.world.modelled_nodes import AGENT_S, ModelledNodes
from controller.simulation.world.modelled_training import ModelledTraining
from nodeagent.protocol.findings import NodeFinding
from nodeagent.protocol.ids import AgentId, NodeId, TaskId
from nodeagent.protocol.messages import Heartbeat
from nodeagent.protocol.rank_status import RankStatus

_HEARTBEAT_S: Final = 2.0


class Breakage:
    """Applies events to the nodes and processes of the modelled cluster."""

    def __init__(self, site: ModelledNodes, training: ModelledTraining) -> None:
        self._site = site
        self._training = training
        self._heartbeats = HeartbeatWatch(site.machine.state)

    def apply(self, event: SimulatedEvent) -> None:
        """Apply an event at its time."""
        node = self._site.names[event.node]
        if event.kind == "manual":
            self._change_by_hand(event)
        elif node in self._site.down or node in self._site.in_repair:
            return
        elif event.kind == "node_lost":
            self._lose_node(node, event)
        elif event.kind == "slow":
            self._slow_node(node, event)
        else:
            self._break_rank(node, event)

    def return_node(self, number: int) -> None:
        """Attach a node that was absent."""
        node = self._site.names[number]
        if node in self._site.down:
            self._site.down.discard(node)
            self._site.record_service()
            self._site.post(NodeAttached(node, AgentId(f"{node}-1"), 1, ()))

    def _lose_node(self, node: NodeId, event: SimulatedEvent) -> None:
        self._site.down.add(node)
        hit = [run for run in self._site.runs.values() if run.num_on(node)]
        for run in hit:
            self._site.ledger.num_incidents += 1
            self._training.stall(run)
            for number in [n for n, worker in run.alive.items() if worker.node == node]:
                del run.alive[number]
                run.stateful.discard(number)
        for run in self._site.runs.values():
            run.spares = {n: worker for n, worker in run.spares.items() if worker.node != node}
        self._site.record_service()
        self._site.clock.after(event.detected_s, partial(self._notice_loss, node, hit))
        if event.away_s is not None:
            back_s = max(event.away_s, event.detected_s + AGENT_S)
            self._site.clock.after(back_s, partial(self.repair, node))

    def _notice_loss(self, node: NodeId, hit: list[ModelledGeneration]) -> None:
        for run in hit:
            survivor = next(iter(run.alive), None)
            if survivor is not None and run.stage == "stalled":
                words = "Connection closed by peer"
                self._training.raise_in(run, survivor, words, is_in_collective=True)
        self._site.post(ContactLost(node, self._site.clock.now_s, "no heartbeat"))

    def repair(self, node: NodeId) -> None:
        """Attach a node if it was away, and uncordon it and its GPUs if they were isolated."""
        was_down = node in self._site.down
        self._site.down.discard(node)
        self._site.slow.pop(node, None)
        self._site.in_repair.discard(node)
        state = self._site.machine.state.nodes[node]
        for run in self._site.runs.values():
            run.slow_nodes.pop(node, None)
        if was_down:
            agent = AgentId(f"{node}-{self._site.num_events}")
            self._site.post(NodeAttached(node, agent, 1, ()))
            self._send_heartbeat(node)
        if state.service.isolated or state.service.isolated_gpus:
            request = self._site.next_request()
            self._site.post(UncordonRequested(request, "repair", node, is_forced=True))
        self._site.record_service()

    def _send_heartbeat(self, node: NodeId) -> None:
        """Send heartbeats of a node until the core expects no process there that has ended.

        Only a heartbeat shows that a rank has ended while its node was out of contact.
        """
        living = {
            (run.start.task, run.start.generation, number): worker
            for run in self._site.runs.values()
            for number, worker in (run.alive | run.spares).items()
            if worker.node == node
        }
        now_s = self._site.clock.now_s
        ranks = [
            RankStatus(
                task=task,
                generation=generation,
                global_rank=number,
                worker=worker.slot,
                pid=number + 1,
            )
            for (task, generation, number), worker in living.items()
        ]
        beat = Heartbeat(wall_s=now_s, rss_bytes=0, is_template_ready=True, ranks=ranks)
        policy = self._site.machine.policy
        if node not in self._site.down:
            for change in self._heartbeats.take(node, beat, now_s, now_s, policy):
                self._site.post(change)
        if node not in self._site.down and self._is_mistaken(node, living):
            self._site.clock.after(_HEARTBEAT_S, partial(self._send_heartbeat, node))

    def _is_mistaken(self, node: NodeId, living: Collection[tuple[TaskId, int, int]]) -> bool:
        """Return whether the core expects a process on the node that has ended."""
        for name, task in self._site.machine.state.tasks.items():
            own = {(task.generation, n): rank.worker for n, rank in task.living_ranks.items()}
            for (generation, number), worker in (own | task.leaving.workers).items():
                if worker.node == node and (name, generation, number) not in living:
                    return True
        return False

    def _slow_node(self, node: NodeId, event: SimulatedEvent) -> None:
        """Slow a node's task down until the fault is confirmed as broken hardware."""
        self._site.slow[node] = self._site.values.slow_speed
        for run in self._site.runs.values():
            if run.num_on(node):
                self._site.ledger.num_incidents += 1
                run.settle(self._site.clock.now_s)
                run.slow_nodes[node] = self._site.values.slow_speed
                self._site.record_activity(run, self._site.ledger.activity_of(run.start.task))
        self._site.clock.after(event.detected_s, partial(self._find_hardware, node, event))

    def _break_rank(self, node: NodeId, event: SimulatedEvent) -> None:
        victim = self._rank_at(node, event.slot)
        if victim is None:
            if event.kind == "hardware":
                self._site.clock.after(event.detected_s, partial(self._find_hardware, node, event))
            return
        run, number = victim
        self._site.ledger.num_incidents += 1
        self._training.stall(run)
        self._site.clock.after(event.detected_s, partial(self._notice_rank, run, number, event))

    def _notice_rank(self, run: ModelledGeneration, number: int, event: SimulatedEvent) -> None:
        worker = run.alive.get(number)
        if worker is None or self._site.runs.get(run.start.task) is not run:
            if event.kind == "hardware":  # the process has ended; the node's probe finds the fault
                self._find_hardware(self._site.names[event.node], event)
            return
        match event.kind:
            case "process":
                self._training.end_process(run, number, signal=9, is_expected=False)
            case "hardware":
                self._schedule_repair(worker.node, event)
                words = "CUDA error: uncorrectable ECC error encountered"
                self._training.raise_in(run, number, words, is_in_collective=False)
            case _:
                words = "Connection reset by peer"
                self._training.raise_in(run, number, words, is_in_collective=True)

    def _find_hardware(self, node: NodeId, event: SimulatedEvent) -> None:
        if node in self._site.down or node in self._site.in_repair:
            return
        self._schedule_repair(node, event)
        text = f"GPU {event.slot}: uncorrectable memory errors"
        finding = NodeFinding(probe="gpu", sign="gpu_ecc", subject=f"GPU {event.slot}", text=text)
        self._site.observe(node, finding)

    def _schedule_repair(self, node: NodeId, event: SimulatedEvent) -> None:
        self._site.in_repair.add(node)
        if event.away_s is not None:
            self._site.clock.after(max(event.away_s, 2 * AGENT_S), partial(self.repair, node))

    def _change_by_hand(self, event: SimulatedEvent) -> None:
        """Pause a task, since operators roll out a change; the core is not involved."""
        runs = [run for run in self._site.runs.values() if run.stage == "training"]
        if not runs:
            return
        run = runs[int(event.since_checkpoint * len(runs))]
        run.settle(self._site.clock.now_s)
        run.stage = "paused"
        self._site.record_activity(run, "manual")
        pause_s = self._site.draw(self._site.values.steps.manual)
        self._site.clock.after(pause_s, partial(self._end_pause, run))

    def _end_pause(self, run: ModelledGeneration) -> None:
        if run.stage == "paused":
            self._training.train(run)

    def _rank_at(self, node: NodeId, slot: int) -> tuple[ModelledGeneration, int] | None:
        worker = Worker(node, slot)
        for run in self._site.runs.values():
            for number, each in run.alive.items():
                if each == worker and run.stage in {"training", "paused", "forming"}:
                    return run, number
        return None
