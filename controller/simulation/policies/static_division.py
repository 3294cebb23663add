"""Runs a baseline: every task keeps its nodes and recovers by itself.

The fixed number of workers of every task comes from one of several rules, the static splits.
"""

from collections.abc import Callable
from functools import partial
from itertools import islice

from controller.simulation.policies.baselines import Baseline, Split
from controller.simulation.policies.static_job import StaticJob
from controller.simulation.scenarios.duration_laws import seeded_random
from controller.simulation.scenarios.estimated_tables import Profile, pipelined_profiles_of
from controller.simulation.scenarios.scenario import Values
from controller.simulation.world.event_sequence import EventSequence, SimulatedEvent
from controller.simulation.world.initial_setup import InitialSetup
from controller.simulation.world.virtual_clock import VirtualClock
from controller.simulation.world.worker_time import WorkerAccount, WorkerActivity, WorkerTimeLedger


def run_baseline(
    baseline: Baseline, setup: InitialSetup, sequence: EventSequence, seed: int
) -> WorkerAccount:
    """Run a baseline through the events; return the account."""
    return _Static(baseline, setup, sequence, seed).run()


def _listed(profile: Profile, workers: int) -> int:
    """Return the largest listed size of at most ``workers``; 0 if there is none."""
    sizes = [x for x in profile.table.sizes if profile.task.min_workers <= x <= workers]
    return max(sizes, default=0)


class _Static:
    def __init__(
        self, baseline: Baseline, setup: InitialSetup, sequence: EventSequence, seed: int
    ) -> None:
        self._baseline, self._sequence = baseline, sequence
        self._values: Values = setup.scenario.values
        values = self._values
        self._rng = seeded_random(setup.scenario.name, seed, baseline.seed_name or baseline.name)
        self._clock = VirtualClock()
        num_workers = sequence.num_nodes * values.workers_per_node
        names = [each.task.name for each in setup.profiles]
        self._ledger = WorkerTimeLedger(num_workers, values.gpus_per_worker, names)
        self._out: dict[int, int] = dict.fromkeys(sequence.absent, 1)
        """For each node, the number of open faults that keep it out of service."""
        self._jobs = self._place(setup)
        held = {node for job in self._jobs for node in job.workers_by_node}
        free = [n for n in range(sequence.num_nodes) if n not in held and n not in sequence.absent]
        self._free = free
        """Nodes in service that no task holds."""
        self._num_extra = 0 if free else baseline.num_standby_nodes
        """Standby nodes beyond the cluster; they are assumed never to fail."""

    def run(self) -> WorkerAccount:
        for job in self._jobs:
            job.size = self._possible_size(job)
            if job.size:
                self._begin(job, self._values.steps.start.draw(self._rng))
            else:
                self._record(job, "waiting")
        for event in self._sequence.events:
            self._clock.at(event.at_s, partial(self._apply, event))
        for at_s, node in self._sequence.returns:
            self._clock.at(at_s, partial(self._return, node))
        self._record_service()
        self._clock.run(self._sequence.duration_s)
        return self._ledger.close(self._sequence.duration_s)

    def _place(self, setup: InitialSetup) -> list[StaticJob]:
        """Give each task its nodes in turn. All sizes are whole nodes."""
        values, sequence = self._values, self._sequence
        profiles: dict[str, Profile] = {each.task.name: each for each in setup.profiles}
        num_workers = sequence.num_nodes * values.workers_per_node
        if self._baseline.is_pipelined:
            profiles = pipelined_profiles_of(setup.scenario, num_workers)
        num_held = (
            num_workers - (values.standby_nodes + len(sequence.absent)) * values.workers_per_node
        )
        split = split_of(self._baseline.split, setup, num_held)
        nodes = iter(n for n in range(sequence.num_nodes) if n not in sequence.absent)
        jobs = []
        for each in setup.profiles:
            name = each.task.name
            given = list(islice(nodes, split[name] // values.workers_per_node))
            by_node = dict.fromkeys(given, values.workers_per_node)
            jobs.append(StaticJob(name, profiles.get(name), by_node))
        return jobs

    # --- events ------------------------------------------------------------------------------

    def _apply(self, event: SimulatedEvent) -> None:
        if event.kind == "manual":
            self._change_by_hand(event)
            return
        if self._out.get(event.node):
            return
        job = next((each for each in self._jobs if event.node in each.workers_by_node), None)
        if event.kind in {"process", "network"}:
            if job is not None:
                self._hit(job, event)
        elif event.kind == "slow":
            if job is not None:
                job.slow_nodes.add(event.node)
                self._record(job, job.activity)
            self._clock.after(event.detected_s, partial(self._lose, event, job, is_slow=True))
        else:
            self._lose(event, job, is_slow=False)

    def _lose(self, event: SimulatedEvent, job: StaticJob | None, *, is_slow: bool) -> None:
        if self._out.get(event.node):
            return  # a slow node that was lost before it was detected
        self._out[event.node] = self._out.get(event.node, 0) + 1
        if event.node in self._free:
            self._free.remove(event.node)
        if job is not None:
            job.slow_nodes.discard(event.node)
            job.holders.pop(event.node, None)
            if event.node in job.workers_by_node:
                self._hit(job, event, notices_s=0.0 if is_slow else None)
        self._record_service()
        if event.away_s is not None:
            self._clock.after(event.away_s, partial(self._return, event.node))

    def _hit(self, job: StaticJob, event: SimulatedEvent, notices_s: float | None = None) -> None:
        """Apply a fault to a task. A fault during a recovery restarts the recovery."""
        is_of_process = event.kind in {"process", "network"}
        has_no_process = job.activity in {"detection", "waiting"} or (
            job.activity == "transition" and is_of_process
        )
        if job.profile is None or has_no_process:
            self._record(job, job.activity)  # the task does not train anyway
            return
        self._ledger.num_incidents += 1
        interval_s = self._values.checkpoint_interval_s
        job.interrupt(event.since_checkpoint, interval_s, self._clock.now_s)
        job.has_lost_node |= not is_of_process
        job.attempt += 1
        self._record(job, "detection")
        seconds = self._baseline.notices_s(event) if notices_s is None else notices_s
        self._clock.after(seconds, partial(self._if_now, job, job.attempt, self._recover))

    def _return(self, node: int) -> None:
        self._out[node] = max(0, self._out.get(node, 0) - 1)
        self._record_service()
        if self._out[node]:
            return
        if not any(node in job.workers_by_node for job in self._jobs):
            self._free.append(node)
        for job in self._jobs:
            if job.activity == "waiting":
                self._recover(job)
            elif job.activity in {"training", "recomputation"} and self._can_grow(job):
                job.settle(self._clock.now_s)
                self._recover(job)  # it saves a checkpoint first, so there is no recomputation

    def _change_by_hand(self, event: SimulatedEvent) -> None:
        training = [job for job in self._jobs if job.activity == "training"]
        if training:
            job = training[int(event.since_checkpoint * len(training))]
            job.attempt += 1
            self._record(job, "manual")
            seconds = self._baseline.change_s(self._values, self._rng)
            self._clock.after(seconds, partial(self._if_now, job, job.attempt, self._train))

    # --- recovery ----------------------------------------------------------------------------

    def _recover(self, job: StaticJob) -> None:
        """Recover from a detected fault, if the task has enough nodes."""
        self._replace(job)
        is_whole = not any(self._out.get(node) for node in job.workers_by_node)
        size = self._possible_size(job)
        if not size or not (is_whole or self._baseline.shrinks):
            self._record(job, "waiting")
            return
        seconds, from_disk = self._baseline.recovery_s(self._values, self._rng), False
        if self._baseline.finds_state:
            state_s, from_disk = self._state_s(job, size)
            seconds += state_s
        is_all_lost = from_disk or self._baseline.recomputes
        job.recompute_s += job.unsaved_s if is_all_lost else job.interrupted_s
        job.unsaved_s = job.interrupted_s = 0.0
        if job.profile is not None and job.size:
            job.recompute_s *= job.profile.iteration_s(size) / job.profile.iteration_s(job.size)
        job.size = size
        self._begin(job, seconds)

    def _state_s(self, job: StaticJob, size: int) -> tuple[float, bool]:
        """Return the seconds to get lost state, and whether it comes from disk.

        With state from disk all processes start anew, as in the modelled cluster.
        """
        if job.profile is None or not job.size:
            return 0.0, False
        before, after = job.profile.table.layout(job.size), job.profile.table.layout(size)
        num_here = self._values.workers_per_node
        if (before.tp, before.pp) == (after.tp, after.pp):
            has_process = before.dp > 1 or job.has_lost_node
            if has_process and job.holds_model(before, num_here, with_copies=False):
                return 0.0, False
            if (job.has_lost_node or job.trained_on > 1) and job.holds_model(before, num_here):
                return self._values.steps.memory.draw(self._rng), False
        steps = self._values.steps
        anew_s = max(0.0, steps.start.draw(self._rng) - steps.restart.draw(self._rng))
        return anew_s + steps.disk.draw(self._rng), True

    @property
    def _replaces(self) -> bool:
        """Whether it replaces absent nodes by free ones."""
        return self._baseline.shrinks or self._baseline.num_standby_nodes > 0

    def _can_grow(self, job: StaticJob) -> bool:
        """Return whether a task could train with more workers than now."""
        if not self._baseline.shrinks:
            return False
        is_short = any(self._out.get(node) for node in job.workers_by_node)
        return (is_short and bool(self._free)) or self._possible_size(job) > job.size

    def _replace(self, job: StaticJob) -> None:
        """Replace absent nodes by free ones."""
        if not self._replaces:
            return
        for node in [n for n in job.workers_by_node if self._out.get(n)]:
            if self._free:
                standby = self._free.pop()
            elif self._num_extra:
                self._num_extra -= 1
                standby = -1 - self._num_extra
            else:
                return
            job.workers_by_node[standby] = job.workers_by_node.pop(node)

    def _begin(self, job: StaticJob, seconds: float) -> None:
        job.attempt += 1
        self._record(job, "transition")
        self._clock.after(seconds, partial(self._if_now, job, job.attempt, self._resume))

    def _resume(self, job: StaticJob) -> None:
        there = [node for node in job.workers_by_node if not self._out.get(node)]
        job.hold_state(there, self._values.workers_per_node)
        if not job.recompute_s:
            self._train(job)
            return
        self._record(job, "recomputation")
        if self._can_grow(job):
            self._recover(job)  # a node came back meanwhile
            return
        self._clock.after(job.recompute_s, partial(self._if_now, job, job.attempt, self._train))

    def _train(self, job: StaticJob) -> None:
        job.recompute_s = 0.0
        job.began_s = self._clock.now_s if job.began_s is None else job.began_s
        self._record(job, "training")
        if self._can_grow(job):
            self._recover(job)  # a node came back meanwhile

    def _if_now(self, job: StaticJob, attempt: int, action: Callable[[StaticJob], None]) -> None:
        if job.attempt == attempt:
            action(job)

    def _possible_size(self, job: StaticJob) -> int:
        if job.profile is None:
            return 0
        there = sum(n for node, n in job.workers_by_node.items() if not self._out.get(node))
        return _listed(job.profile, there)

    # --- the account -------------------------------------------------------------------------

    def _record(self, job: StaticJob, activity: WorkerActivity) -> None:
        if activity != job.activity:
            job.activity, job.since_s = activity, self._clock.now_s
        # A standby node beyond the cluster is not in the account.
        there = sum(
            n for node, n in job.workers_by_node.items() if node >= 0 and not self._out.get(node)
        )
        waf = 0.0
        if job.profile is not None and job.size:
            waf = job.profile.task.weight * job.profile.table.flops_per_s(job.size)
        self._ledger.task(
            self._clock.now_s,
            job.name,
            activity,
            workers=min(there, job.size or there),
            waf=waf * self._baseline.speed(self._values),
            speed=self._values.slow_speed if job.slow_nodes else 1.0,
        )

    def _record_service(self) -> None:
        num_out = sum(1 for node, reasons in self._out.items() if reasons and node >= 0)
        self._ledger.out_of_service(self._clock.now_s, num_out * self._values.workers_per_node)
        for job in self._jobs:
            self._record(job, job.activity)


def split_of(split: Split, setup: InitialSetup, num_workers: int) -> dict[str, int]:
    """Return the workers of every task in a static split."""
    if split == "planner":
        return setup.split
    total = sum(_share(split, each) for each in setup.profiles)
    wanted = {each.task.name: num_workers * _share(split, each) / total for each in setup.profiles}
    sizes = {each.task.name: _listed_from(each, 1) for each in setup.profiles}
    # Each task begins with its smallest size. Then the task farthest below its share grows, until
    # none can.
    while True:
        free = num_workers - sum(sizes.values())
        growing = [
            (wanted[each.task.name] - sizes[each.task.name], each.task.name, larger)
            for each in setup.profiles
            if (larger := _listed_from(each, sizes[each.task.name] + 1))
            and larger - sizes[each.task.name] <= free
        ]
        if not growing:
            return sizes
        _, name, larger = max(growing)
        sizes[name] = larger


def _share(split: Split, profile: Profile) -> float:
    """Return a task's share; its unit depends on the rule."""
    match split:
        case "by-weight":
            return profile.task.weight
        case "by-size":
            return profile.flops_per_iteration / profile.task.global_batch
        case _:
            return 1.0


def _listed_from(profile: Profile, workers: int) -> int:
    """Return the smallest listed size of at least ``workers``; 0 if there is none."""
    least = max(workers, profile.task.min_workers)
    return min((x for x in profile.table.sizes if x >= least), default=0)
