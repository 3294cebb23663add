"""The settings that an operator can decide in advance: time limits and required approvals."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.core.rules.approval import ApprovalRule
from controller.core.rules.transitions import Step


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings of the core's decisions. Times are seconds.

    Attributes:
        is_auto_heal: Whether plans are applied without an approval.
        is_rehearsal: Whether each cure of a fault waits for an operator, with a record of what
            would have been done. What operators order is done as usual.
        auto_after_s: A plan that waits for an approval is applied after this time, unless an
            operator decides or defers it. 0: it waits.
        approvals: Rules about kinds of plans; the first that matches a plan comes before
            ``is_auto_heal`` and ``auto_after_s``. In a cluster file: ``[[approval]]``.
        storm_plans: So many plans that policy applies within an hour, and automation stops: each
            further plan waits for an operator. 0: there is no such limit.
        storm_lost_share: Automation stops too if more than this share of the workers is lost within
            an hour. 0: there is no such limit.
        settle_s: How long evidence of a fault is collected before its cause is named. The peers of
            a dead rank report within milliseconds, in any order. If the evidence is complete
            earlier, nothing waits.
        symptom_patience_s: How long failed collectives alone wait for a cause. Longer than it takes
            to notice a silent node.
        judge_interval_s: Time between two judgements of an unreachable node. Longer than a probe
            takes.
        probe_interval_s: A peer looks at the same node's SSH port once in this time at most. SSH
            servers shut out addresses that connect often and do not log in.
        stall_factor: Iterations count as stopped after this multiple of their mean duration.
        stall_floor_s: Iterations never count as stopped before this time.
        hang_floor_s: An iteration is never overdue before this time over the average.
        recovering_limit_s: Shortest limit for the first iterations of a generation, which include
            the recovery. The very first one has ``start_limit_s``.
        long_limit_s: Extra time of an iteration that saves a checkpoint or evaluates, until one has
            been seen.
        slow_factor: A rank that still begins micro-batches hangs after this multiple of the limit.
            The same holds for a rank that delays the forming of its generation, or the last save.
        answer_limit_s: How long a rank of a stalled task may take to report its position.
        inspection_limit_s: How long all looks at such ranks may take together, per node.
        late_factor: Above this multiple of the usual time, iterations are late and a rank is a
            straggler.
        late_iterations: Iterations whose median must be late, so that noise is no alarm.
        straggler_beats: Heartbeats in which a rank must have been slower than its peers.
        spike_factor: Losses and gradient norms spike at this multiple of their level.
        spike_iterations: Iterations in a row that make a spike.
        refusal_grace_s: A node whose SSH port refuses its peers is lost after this time, if nothing
            shows whether its ranks live. A parked task whose remaining ranks are all on a node out
            of contact waits as long before it stops.
        unreachable_limit_s: A node without a reachable agent is lost after this time, if its SSH
            port answers and its tasks suffer.
        join_limit_s: A node that was added and has never been in contact counts as lost after this
            time: its tasks start on what is there. When it comes, it joins.
        takeover_grace_s: No node is lost within this time after a controller has taken over,
            because each needs time to be reached.
        uncorroborated_limit_s: After this time an unreachable node is lost, or the operator is
            asked, if no other node can show whether its tasks train.
        asks_before_loss: Whether the operator is asked about such a node even with auto-heal.
            Without auto-heal, and while no other node is in contact, the operator is always asked.
        burst_s: Nodes that lose contact within this time are handled as one loss: the plan waits as
            long at most, while another node is out of contact or silent, or part of a failure
            domain is lost. Nodes that return are gathered too. 0 plans for each at once.
        vanished_after_s: A rank that its node no longer lists counts as gone after this time, if no
            exit was reported.
        look_interval_s: While a generation forms or ends, its ranks are inspected this often. A
            stopped rank is replaced.
        start_limit_s: A generation must commit its first iteration within this time. The save after
            its last iteration may take as long.
        command_settle_s: A command that has never printed an iteration counts as running after this
            time.
        command_proof_s: After this time such a command counts as making progress.
        stop_limit_s: Limit for ranks to end their iteration at a graceful stop, or ``stall_factor``
            iterations if that is longer. The save may take ``stall_factor`` times the longest
            checkpoint so far (``start_limit_s`` before the first). Then the ranks are killed.
        halt_limit_s: Ranks must be parked within this time after a halt, or within ``stall_factor``
            iterations if that is longer. A rank that is not hangs.
        prepare_limit_s: How long a task that is to grow trains on while its new ranks build their
            models. Then it grows with ranks that are not prepared.
        capacity_limit_s: How long a parked task waits for workers of other tasks before it
            continues without them.
        max_recoveries: Recoveries of a task without a new iteration between them, after which the
            task is held for the operator.
        held_retries: With auto-heal, how often a held task is tried again without progress, before
            only an operator can start it. Never if its settings are refused, or its loss is not
            finite again.
        held_pause_s: Time before the first of these tries; each further pause is five times longer.
        verify_iterations: A fault is cured once an iteration is back within its band. After this
            many iterations it counts as cured in any case, and the task as slower.
        network_alerts: Network faults of one node within ``network_window_s`` that isolate it.
        network_window_s: How long a network fault counts.
        network_merge_s: Network faults of a node within this time of the first one count as one.
            Its kernel reports at once, its links are checked every 30 s, and its ranks fail in
            between.
        restarts: SEV2 faults on one node within ``restart_window_s`` that isolate it.
        gpu_faults: CUDA errors and illegal memory accesses on one GPU that isolate only that GPU.
        restart_window_s: How long a SEV2 fault counts.
        correlation_s: Findings of a node's probes within this time of a fault there belong to it.
        drill_window_s: The first fault within this time of a drill, on the same node or in the same
            task, is attributed to the drill.
        clock_limit_s: A wall clock of a node that differs from the controller's by more is
            announced.
        counts_drills: Whether faults made by drills count against a node like real ones.
        worker_mtbf_s: Mean time between faults of one worker that force a reconfiguration.
        step_s: Expected duration of each step of a transition, until the task's own transitions are
            known.
    """

    is_auto_heal: bool = False
    is_rehearsal: bool = False
    auto_after_s: float = 0.0
    approvals: tuple[ApprovalRule, ...] = ()
    storm_plans: int = 0
    storm_lost_share: float = 0.0
    settle_s: float = 0.25
    symptom_patience_s: float = 6.0
    judge_interval_s: float = 1.0
    probe_interval_s: float = 6.5
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
    join_limit_s: float = 60.0
    takeover_grace_s: float = 5.0
    uncorroborated_limit_s: float = 300.0
    asks_before_loss: bool = False
    burst_s: float = 2.0
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
    held_retries: int = 3
    held_pause_s: float = 60.0
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

    @property
    def heals(self) -> bool:
        """Whether faults are cured without an operator."""
        return self.is_auto_heal and not self.is_rehearsal
