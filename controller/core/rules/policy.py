"""What an operator may decide in advance: time limits, and what needs an approval."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.core.rules.transitions import Step


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings of the core's decisions. Times are seconds.

    Attributes:
        is_auto_heal: Whether plans are applied without an approval.
        settle_s: How long evidence of a fault is collected before its cause is named. A dead
            rank's peers report within milliseconds, and in any order.
            Where everything is clear before, nobody waits for it.
        symptom_patience_s: How long failed collectives alone wait for a cause: longer than it
            takes to notice a silent node.
        judge_interval_s: Time between two looks at an unreachable node; longer than a probe takes.
        stall_factor: Iterations count as stopped after this multiple of their mean duration.
        stall_floor_s: And never before this.
        hang_floor_s: An iteration is never overdue before this much over the average.
        recovering_limit_s: Shortest time after which the first iterations of a generation are
            overdue, which hold the recovery; the very first one has ``start_limit_s``.
        long_limit_s: What an iteration may take longer that saves a checkpoint or evaluates, until
            one has been seen.
        slow_factor: Ranks that still begin new micro-batches, or keep a generation from forming or from
            its last save, hang after this multiple of the limit.
        answer_limit_s: How long a rank of a stalled task may take to say where it stands.
        inspection_limit_s: How long all looks at such ranks may take together, per node.
        late_factor: Iterations are late, and a rank a straggler, above this multiple of what is usual.
        late_iterations: Iterations whose median is called late, so that noise is no alarm.
        straggler_beats: Heartbeats in which a rank must have been slower than its peers.
        spike_factor: Losses and gradient norms spike at this multiple of their level.
        spike_iterations: Iterations in a row that make a spike.
        refusal_grace_s: A node whose SSH port refuses its peers is lost after this, where nothing
            tells whether its ranks live. For as long a parked task of which nobody else is left waits
            for ranks on a node that went out of contact, before it stops.
        unreachable_limit_s: A node whose SSH port answers but whose agent can't be reached, while
            its tasks suffer, is lost after this.
        takeover_grace_s: No node is lost within this after a controller has taken over: each has time
            to be reached, although a fault may have waited for the controller.
        uncorroborated_limit_s: A node is lost after this, or the operator asked, where nobody can
            tell whether its tasks train: they live there alone, and no peer finds it gone.
        asks_before_loss: Whether the operator is asked about such a node also under auto-heal;
            without auto-heal, and while no other node is in contact, that is always so.
        vanished_after_s: A rank that its node does not list any more is gone after this, if no
            exit was reported.
        look_interval_s: While a generation forms, or ends, its ranks are looked at this often, and one
            that is stopped is replaced.
        start_limit_s: A generation must commit its first iteration within this. The save after its last
            one may take as long.
        command_settle_s: A command that has never printed an iteration counts as running after this.
        command_proof_s: And is taken to make progress after this.
        stop_limit_s: At a graceful stop ranks must come to the end of their iteration within this, or
            within ``stall_factor`` iterations if that is longer, and save within ``stall_factor``
            times the longest checkpoint so far (``start_limit_s`` before the first); then they
            are killed.
        halt_limit_s: Ranks that were told to park must have done so within this, or within
            ``stall_factor`` iterations if that is longer; who has not, hangs.
        prepare_limit_s: How long a task that is to grow trains on while its new ranks build their
            models; then it grows with ranks that are not prepared.
        capacity_limit_s: How long a parked task waits for workers that other tasks are to free,
            before it goes on without them.
        max_recoveries: Recoveries of a task without a new iteration between them, after which it
            is handed to the operator.
        verify_iterations: A fault is cured once an iteration is back within its band; after this many
            iterations it counts as cured all the same, and the task as slower.
        network_alerts: Network faults of one node within ``network_window_s`` that isolate it.
        network_window_s: How long a network fault counts.
        network_merge_s: Network faults of a node within this of the first one are the same: its
            kernel speaks at once, its links are looked at every 30 s, and its ranks fail in between.
        restarts: SEV2 faults on one node within ``restart_window_s`` that isolate it.
        gpu_faults: CUDA errors and illegal memory accesses on one GPU that isolate that GPU alone.
        restart_window_s: How long a SEV2 fault counts.
        correlation_s: What a node's probes find within this of a fault there belongs to it.
        drill_window_s: A fault that shows within this of a drill, on the same node or in the same task,
            is the drill's; the first one alone.
        clock_limit_s: A node whose wall clock is off the controller's by more is told to operators.
        counts_drills: Whether faults made by drills speak against a node like real ones.
        worker_mtbf_s: Mean time between faults of one worker that force a reconfiguration.
        step_s: Expected duration of each step of a transition, until a task has taught better.
    """

    is_auto_heal: bool = False
    settle_s: float = 0.25
    symptom_patience_s: float = 6.0
    judge_interval_s: float = 1.0
    stall_factor: float = 3.0
    stall_floor_s: float = 1.5
    hang_floor_s: float = 0.5
    recovering_limit_s: float = 10.0
    long_limit_s: float = 10.0
    slow_factor: float = 2.0
    answer_limit_s: float = 0.3
    inspection_limit_s: float = 1.0
    late_factor: float = 1.1
    late_iterations: int = 5
    straggler_beats: int = 3
    spike_factor: float = 5.0
    spike_iterations: int = 2
    refusal_grace_s: float = 10.0
    unreachable_limit_s: float = 60.0
    takeover_grace_s: float = 5.0
    uncorroborated_limit_s: float = 300.0
    asks_before_loss: bool = False
    vanished_after_s: float = 4.0
    look_interval_s: float = 5.0
    start_limit_s: float = 120.0
    command_settle_s: float = 30.0
    command_proof_s: float = 600.0
    stop_limit_s: float = 30.0
    halt_limit_s: float = 2.0
    prepare_limit_s: float = 60.0
    capacity_limit_s: float = 2.0
    max_recoveries: int = 3
    verify_iterations: int = 10
    network_alerts: int = 2
    network_window_s: float = 300.0
    network_merge_s: float = 35.0
    restarts: int = 3
    gpu_faults: int = 2
    restart_window_s: float = 3600.0
    correlation_s: float = 10.0
    drill_window_s: float = 60.0
    clock_limit_s: float = 1.0
    counts_drills: bool = False
    worker_mtbf_s: float = 2000 * 3600.0
    step_s: Mapping[Step, float] = field(
        default_factory=lambda: {
            "park": 0.5,
            "stop": 5.0,
            "start": 3.0,
            "form": 0.5,
            "state": 2.0,
            "first iteration": 4.0,
        }
    )
