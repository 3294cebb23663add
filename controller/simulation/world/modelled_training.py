"""Generations of tasks in the modelled cluster: they start, train, park, stop and prepare spares.

The durations are drawn from the scenario's laws. Only the first two iterations of a generation are
reported: they show the core that the task trains again.
"""

from functools import partial

from controller.core.events import HaltCarriedOut, StopCarriedOut
from controller.core.instructions import HaltRanks, PrepareSpares, StartRanks, StopRanks
from controller.core.rules.placement import Worker
from controller.simulation.world.modelled_generation import ModelledGeneration
from controller.simulation.world.modelled_nodes import AGENT_S, ModelledNodes, rank_fields
from nodeagent.protocol.ids import NodeId, TaskId
from nodeagent.protocol.observations import (
    IterationCommitted,
    RankDone,
    RankExited,
    RankHalted,
    RankJoined,
    RankRaised,
    RankStarted,
)
from nodeagent.protocol.regroup import StateSource


class ModelledTraining:
    """The processes of all tasks."""

    def __init__(self, site: ModelledNodes) -> None:
        self._site = site
        self._num_pids = 1000

    def start(self, start: StartRanks) -> None:
        """Begin a generation, or add missing ranks to one that is forming."""
        old = self._site.runs.get(start.task)
        if old is not None and old.start.generation == start.generation:
            self._report_waiting(old, tuple(start.parked_spares))
            if not start.global_ranks:
                return
            self._form_after(old, self._site.draw(self._site.values.steps.restart))
            return
        run = ModelledGeneration(start, self._site.profiles[start.task])
        run.alive = dict(enumerate(start.placement))
        nodes = {worker.node for worker in start.placement}
        run.slow_nodes = {n: speed for n, speed in self._site.slow.items() if n in nodes}
        self._site.runs[start.task] = run
        if old is not None:
            old.settle(self._site.clock.now_s)
            run.rerun_scale = run.iteration_s / old.iteration_s
            run.committed, run.is_saved = old.committed, old.is_saved
            run.debt_s = old.debt_s * run.rerun_scale
            self._hand_over(old, run)
        self._site.record_activity(run, "transition")
        self._form_after(run, self._duration_s(run, old))

    def _hand_over(self, old: ModelledGeneration, run: ModelledGeneration) -> None:
        """Pass processes from the old generation to the new one.

        Continued processes keep their state. On the nodes of the new generation, all others end.
        """
        old.stage = "over"
        kept = {ref.global_rank: new for new, ref in run.start.continues.items()}
        run.stateful = {new for number, new in kept.items() if number in old.stateful}
        parked_spares = run.start.parked_spares
        run.spares = {number: spare.worker for number, spare in parked_spares.items()}
        self._site.clock.after(AGENT_S, partial(self._report_waiting, run, tuple(parked_spares)))
        nodes = {worker.node for worker in (*run.start.placement, *run.spares.values())}
        staying = {*kept, *(spare.continues.global_rank for spare in parked_spares.values())}
        left = {n: w for n, w in (old.alive | old.spares).items() if n not in staying}
        for number, worker in left.items():
            if worker.node in nodes:
                self._site.clock.after(AGENT_S, partial(self._exit_of, old, number, worker))

    def _exit_of(self, run: ModelledGeneration, number: int, worker: Worker) -> None:
        exited = RankExited(**rank_fields(run, number), pid=number + 1, signal=9, is_expected=True)
        self._site.observe(worker.node, exited)

    def _duration_s(self, run: ModelledGeneration, old: ModelledGeneration | None) -> float:
        """Return the seconds until the generation has formed and has its state."""
        steps, start = self._site.values.steps, run.start
        num_new = run.num_workers - len(start.continues)
        if old is None or not start.continues:
            seconds = self._site.draw(steps.start)
        else:
            seconds = self._site.draw(steps.restart if num_new else steps.regroup)
        if any(shard.is_copy for shard in start.resume.shards):
            seconds += self._site.draw(steps.memory)
        elif start.resume.source == "disk" and old is not None:
            seconds += self._site.draw(steps.disk)
        return seconds

    def _form_after(self, run: ModelledGeneration, delay_s: float) -> None:
        run.stage = "forming"
        self._site.clock.after(delay_s, partial(self._form, run))

    def _form(self, run: ModelledGeneration) -> None:
        """Report all ranks as joined and begin to train, unless a node is down."""
        if run.stage != "forming" or self._site.runs.get(run.start.task) is not run:
            return
        if any(worker.node in self._site.down for worker in run.start.placement):
            return  # the loss of the node is reported on its own
        source: StateSource = run.start.resume.source
        if source == "disk" and not run.is_saved:
            run.debt_s = min(
                run.committed * run.iteration_s, run.debt_s + self._age_s() * run.rerun_scale
            )
        run.stateful = set(run.alive)
        for number, worker in list(run.alive.items()):
            if number not in run.start.continues:
                self._num_pids += 1
                started = RankStarted(
                    **rank_fields(run, number), pid=self._num_pids, warm=True, start_s=0.1
                )
                self._site.observe(worker.node, started)
        task, generation, iteration = run.start.task, run.start.generation, run.iteration
        for number, worker in list(run.alive.items()):
            if not run.is_in("forming"):
                return
            joined = RankJoined(
                task=task,
                generation=generation,
                global_rank=number,
                iteration=iteration,
                source=source,
                form_s=0.0,
                state_s=0.0,
            )
            self._site.observe(worker.node, joined)
        if not run.is_in("forming"):
            return
        run.unreported = [iteration + 1, iteration + 2]
        self.train(run)

    def _age_s(self) -> float:
        """Return the age of the newest checkpoint on disk."""
        return self._site.draw_fraction() * self._site.values.checkpoint_interval_s

    def train(self, run: ModelledGeneration) -> None:
        """Train from now on; recompute lost iterations first."""
        if not run.is_in("forming", "paused", "training"):
            return
        run.settle(self._site.clock.now_s)
        run.stage, run.is_saved = "training", False
        self._site.record_activity(run, "recomputation" if run.debt_s else "training")
        if run.debt_s:
            self._site.clock.after(run.debt_s, partial(self._end_debt, run))
        for number, iteration in enumerate(run.unreported, 1):
            commit = partial(self._commit, run, iteration)
            self._site.clock.after(number * run.iteration_s, commit)

    def _end_debt(self, run: ModelledGeneration) -> None:
        if run.stage == "training":
            run.settle(self._site.clock.now_s)
            if not run.debt_s:
                self._site.record_activity(run, "training")

    def _commit(self, run: ModelledGeneration, iteration: int) -> None:
        """Report one of the first iterations, which show that the task trains again."""
        if run.stage != "training" or 0 not in run.alive or iteration not in run.unreported:
            return
        run.unreported.remove(iteration)
        committed = IterationCommitted(
            **rank_fields(run, 0),
            iteration=iteration,
            loss=1.0,
            duration_s=run.iteration_s,
            num_tokens=0,
            grad_norm=1.0,
        )
        self._site.observe(run.alive[0].node, committed)

    def stall(self, run: ModelledGeneration) -> None:
        """Stall a generation after a fault: its collectives hang from now on."""
        if run.stage in {"training", "paused"}:
            run.settle(self._site.clock.now_s)
            if run.stage == "training":
                run.debt_s += (
                    self._site.draw_fraction() * run.iteration_s
                )  # the interrupted iteration
            self._site.record_activity(run, "detection")
        if run.stage in {"training", "paused", "forming"}:
            run.stage = "stalled"

    def halt(self, halt: HaltRanks) -> None:
        """Park ranks: at once, or at the end of the iteration."""
        run = self._of(halt.order.task, halt.order.generation)
        if run is None:
            return
        delay_s = self._site.draw(self._site.values.steps.park)
        if halt.order.at_boundary and run.stage == "training":
            delay_s += self._site.draw_fraction() * run.iteration_s
        else:
            self.stall(run)
            self._site.record_activity(run, "transition")
        self._site.clock.after(delay_s, partial(self._park, run, halt.nodes))

    def _park(self, run: ModelledGeneration, nodes: tuple[NodeId, ...]) -> None:
        if self._site.runs.get(run.start.task) is not run or run.stage == "over":
            return
        if run.stage != "parked":
            run.settle(self._site.clock.now_s)
            run.stage = "parked"
            self._site.record_activity(run, "transition")
        nodes_asked = set(nodes)
        # Nodes with ranks report by their ranks; only nodes without ranks answer the order itself.
        for node in sorted(nodes_asked - {worker.node for worker in run.alive.values()}):
            self._site.post_if_up(node, HaltCarriedOut(node, run.start.task, run.start.generation))
        task, generation = run.start.task, run.start.generation
        for number, worker in list(run.alive.items()):
            if worker.node in nodes_asked and number in run.alive and run.stage == "parked":
                position = run.position(number)
                halted = RankHalted(
                    task=task, generation=generation, global_rank=number, position=position
                )
                self._site.observe(worker.node, halted)
        if (
            run.is_in("parked")
            and self._site.machine.state.tasks[run.start.task].assignment.target is None
        ):
            self._site.record_activity(run, "waiting")  # for a plan, or for its approval

    def order_stop(self, stop: StopRanks) -> None:
        """Stop ranks: at once, or at the end of the iteration."""
        run = self._of(stop.order.task, stop.order.generation)
        if run is None:
            self._site.clock.after(AGENT_S, partial(self._report_stopped, stop))
            return
        if stop.order.only:
            numbers = [n for n in stop.order.only if n in run.alive or n in run.spares]
            self._site.clock.after(AGENT_S, partial(self._end_all, run, numbers, 0))
            return
        delay_s = AGENT_S
        if stop.order.is_graceful and run.stage == "training":
            delay_s += self._site.draw_fraction() * run.iteration_s
        else:
            self.stall(run)
            self._site.record_activity(run, "transition")
        self._site.clock.after(delay_s, partial(self._stop, run, stop))

    def _stop(self, run: ModelledGeneration, stop: StopRanks) -> None:
        run.settle(self._site.clock.now_s)
        run.is_saved = stop.order.is_graceful and run.is_in("training")
        nodes_asked = set(stop.nodes)
        self._report_stopped(stop)
        processes = run.alive | run.spares
        here = [n for n, worker in processes.items() if worker.node in nodes_asked]
        self._end_all(run, here, 0 if stop.order.is_graceful else 9)
        if not run.alive and self._site.runs.get(run.start.task) is run:
            run.stage = "over"
            self._site.ledger.task(self._site.clock.now_s, stop.order.task, "waiting", workers=0)

    def _report_stopped(self, stop: StopRanks) -> None:
        if not stop.order.is_graceful:
            for node in stop.nodes:
                self._site.post_if_up(
                    node, StopCarriedOut(node, stop.order.task, stop.order.generation)
                )

    def _end_all(self, run: ModelledGeneration, numbers: list[int], signal: int) -> None:
        for number in numbers:
            if not signal and number in run.alive and number in run.stateful:
                done = RankDone(
                    **rank_fields(run, number), iteration=run.committed, reason="stopped"
                )
                self._site.observe(run.alive[number].node, done)
            self.end_process(run, number, signal=signal, is_expected=True)

    def end_process(
        self, run: ModelledGeneration, number: int, *, signal: int, is_expected: bool
    ) -> None:
        """End a process, and report its exit."""
        worker = run.alive.pop(number, None) or run.spares.pop(number, None)
        run.stateful.discard(number)
        if worker is not None:
            exited = RankExited(
                **rank_fields(run, number),
                pid=number + 1,
                exit_code=None if signal else 0,
                signal=signal or None,
                is_expected=is_expected,
            )
            self._site.observe(worker.node, exited)

    def raise_in(
        self, run: ModelledGeneration, number: int, words: str, *, is_in_collective: bool
    ) -> None:
        """Report an exception of a rank. After a failed collective the rank is parked."""
        raised = RankRaised(
            **rank_fields(run, number),
            exception_type="RuntimeError",
            message=words,
            traceback="",
            is_in_collective=is_in_collective,
            iteration=run.committed + 1,
            position=run.position(number) if is_in_collective else None,
        )
        self._site.observe(run.alive[number].node, raised)

    def prepare(self, prepare: PrepareSpares) -> None:
        """Start spares, which build their models while training continues."""
        run = self._of(prepare.task, prepare.generation)
        if run is None:
            return
        for number, (worker, _) in prepare.spares.items():
            if worker.node not in self._site.down:
                run.spares[number] = worker
        delay_s = self._site.draw(self._site.values.steps.prepare)
        self._site.clock.after(delay_s, partial(self._report_ready, run, tuple(prepare.spares)))

    def _report_ready(self, run: ModelledGeneration, numbers: tuple[int, ...]) -> None:
        """Report spares that have built their models, unless they have ended meanwhile."""
        for number in numbers:
            worker = run.spares.get(number)
            if worker is None or run.is_in("over"):
                continue
            self._num_pids += 1
            started = RankStarted(
                **rank_fields(run, number), pid=self._num_pids, warm=True, start_s=0.1
            )
            self._site.observe(worker.node, started)
            self._report_waiting(run, (number,))

    def _report_waiting(self, run: ModelledGeneration, numbers: tuple[int, ...]) -> None:
        """Report that spares wait with their models built."""
        for number in numbers:
            worker = run.spares.get(number)
            if worker is not None and not run.is_in("over"):
                halted = RankHalted(**rank_fields(run, number), position=run.position(number))
                self._site.observe(worker.node, halted)

    def _of(self, task: TaskId, generation: int) -> ModelledGeneration | None:
        run = self._site.runs.get(task)
        return run if run is not None and run.start.generation == generation else None
