"""A scripted demo cluster as views: four nodes, two tasks, and what happens to them.

The scenes follow the main job: everything trains; a rank is killed and heals; a node is lost and a
plan waits; the plan is applied. All times are fixed, so pictures of them can be compared.
"""

from controller.api.views import (
    ClusterView,
    DrillView,
    IncidentState,
    IncidentView,
    LayoutView,
    LogLevel,
    LogLine,
    NodeCondition,
    NodeView,
    PaceView,
    PlanState,
    PlanView,
    StepView,
    TaskChangeView,
    TaskPhase,
    TaskView,
    TransitionView,
    WorkerView,
)

STARTED_WALL_S = 1_767_189_600.0
"""2025-12-31 14:00:00 UTC."""

DRILLS = [
    DrillView(
        kind="kill-rank",
        title="Kill the process of one rank",
        target="rank",
        expectation="The agent reports the exit, a new process takes its place.",
    ),
    DrillView(
        kind="exception",
        title="Raise an exception inside one rank",
        target="rank",
        expectation="The rank reports its traceback, the task restarts from its checkpoint.",
    ),
    DrillView(
        kind="lose-node",
        title="Take a whole node away",
        target="node",
        expectation="The node is unreachable, then lost; a plan is proposed and waits.",
    ),
    DrillView(
        kind="kill-agent",
        title="Kill a node's agent",
        target="node",
        expectation="Training goes on; the next agent adopts the running ranks.",
    ),
    DrillView(
        kind="kill-ssh",
        title="Cut the SSH connection to a node",
        target="node",
        expectation="Training goes on; the node is presumed training until it is back.",
    ),
]


def nodes(now: float, *, lost: str | None = None) -> list[NodeView]:
    """Return n1 to n4 with two workers each: gpt-a on n1 and n2, gpt-b on n3 and n4."""
    made = []
    for number in range(4):
        name = f"n{number + 1}"
        is_lost = name == lost
        task = "gpt-a" if number < 2 else "gpt-b"
        first = 2 * (number % 2)
        made.append(
            NodeView(
                node=name,
                address=f"127.0.0.1:{22000 + number}",
                condition=NodeCondition.LOST if is_lost else NodeCondition.HEALTHY,
                note="link lost 9 s ago, peers' collectives failed" if is_lost else "",
                agent_pid=None if is_lost else 4100 + number,
                agent_rss_bytes=None if is_lost else (38 + number) * 2**20,
                heartbeat_at=now - (9.2 if is_lost else 0.3 + number / 10),
                workers=[
                    WorkerView(worker=slot)
                    if is_lost
                    else WorkerView(
                        worker=slot,
                        task=task,
                        global_rank=first + slot,
                        pid=4200 + 10 * number + slot,
                        iteration=118,
                        rss_bytes=420 * 2**20,
                    )
                    for slot in range(2)
                ],
            )
        )
    return made


def task(name: str, iteration: int, **changes: object) -> TaskView:
    """Return a running task whose loss has fallen for ``iteration`` iterations."""
    first = max(1, iteration - 119)
    task_view = TaskView(
        name=name,
        weight=2.0 if name == "gpt-a" else 1.0,
        phase=TaskPhase.RUNNING,
        generation=1,
        workers=4,
        layout=LayoutView(tp=1, pp=1, dp=4) if name == "gpt-a" else LayoutView(tp=2, pp=1, dp=2),
        iteration=iteration,
        checkpoint_iteration=iteration // 5 * 5,
        target_iterations=300,
        loss=2.0 + 3.5 / (1 + iteration / 20),
        tokens_per_s=6_240.0 if name == "gpt-a" else 3_870.0,
        flops_per_s=3.1e9,
        losses={number: 2.0 + 3.5 / (1 + number / 20) for number in range(first, iteration + 1)},
        pace=PaceView(
            durations_s=[0.4 + 0.002 * (number % 7) for number in range(32)],
            average_s=0.406,
            late_s=0.447,
            hang_s=1.406,
        ),
    )
    return task_view.model_copy(update=changes)


def killed_rank(*, resolved_at: float | None = 41.9) -> IncidentView:
    """Return the incident of a killed rank."""
    return IncidentView(
        id="INC-1",
        task="gpt-a",
        node="n1",
        rank=1,
        status="exited abnormally",
        severity="SEV2",
        method="process supervision",
        action="restart",
        state=IncidentState.ACTING if resolved_at is None else IncidentState.RESOLVED,
        evidence=["rank 1 exited: signal 9"],
        reason="rank 1 was killed by signal 9; a replica holds its state",
        fault_at=37.2,
        detected_at=37.5,
        resolved_at=resolved_at,
    )


def lost_node(*, state: IncidentState = IncidentState.DECIDED) -> IncidentView:
    """Return the incident of a lost node, whose cure waits for a plan."""
    return IncidentView(
        id="INC-2",
        task="gpt-b",
        node="n4",
        rank=None,
        status="lost connection",
        severity="SEV1",
        method="node health monitoring",
        action="reconfigure",
        state=state,
        evidence=["link closed", "port 22003 refused"],
        reason="n4's SSH port is refused and gpt-b's collectives failed",
        fault_at=122.0,
        detected_at=127.6,
        resolved_at=140.0 if state is IncidentState.RESOLVED else None,
    )


def plan(**changes: object) -> PlanView:
    """Return the plan that follows the loss of n4: gpt-b goes on with two workers."""
    made = PlanView(
        id="P-2",
        revision=1,
        trigger="INC-2",
        seen="n4 is lost: its SSH port is refused and gpt-b's collectives failed",
        why=(
            "6 workers are left. gpt-a keeps 4: it has twice the weight, and moving it would pause "
            "both tasks. gpt-b fits on 2 as tp2 pp1 dp1 and keeps half its throughput."
        ),
        state=PlanState.PENDING,
        created_at=128.0,
        waf_before=3.0e9,
        waf_now=2.0e9,
        waf_after=2.5e9,
        assignments={"gpt-a": 4, "gpt-b": 2},
        assignments_before={"gpt-a": 4, "gpt-b": 4},
        changes=[
            TaskChangeView(
                task="gpt-a",
                workers_before=4,
                workers_after=4,
                layout_after=LayoutView(tp=1, pp=1, dp=4),
                waf_before=2.0e9,
                waf_after=2.0e9,
                is_faulted=False,
                moves=False,
                placement_before=["n1:0-1", "n2:0-1"],
                placement_after=["n1:0-1", "n2:0-1"],
            ),
            TaskChangeView(
                task="gpt-b",
                workers_before=4,
                workers_after=2,
                layout_after=LayoutView(tp=2, pp=1, dp=1),
                waf_before=1.0e9,
                waf_after=0.5e9,
                is_faulted=True,
                moves=True,
                placement_before=["n3:0-1", "n4:0-1"],
                placement_after=["n3:0-1"],
            ),
        ],
        steps=[
            "isolate n4",
            "stop the ranks of gpt-b that are left on n3",
            "start gpt-b on n3 as tp2 pp1 dp1 from checkpoint 115",
        ],
        isolated_nodes=["n4"],
    )
    return made.model_copy(update=changes)


def calm(now: float = 100.0) -> ClusterView:
    """Return the cluster while everything trains."""
    return ClusterView(
        cluster="demo",
        now=now,
        started_wall_s=STARTED_WALL_S,
        is_auto_heal=False,
        waf=3.0e9,
        waf_full=3.0e9,
        nodes=nodes(now),
        tasks=[task("gpt-a", 118), task("gpt-b", 74)],
        incidents=[killed_rank()],
        plans=[],
        drills=DRILLS,
    )


def waiting(now: float = 131.0) -> ClusterView:
    """Return the cluster after the loss of n4, while the plan waits."""
    return calm(now).model_copy(
        update={
            "waf": 2.0e9,
            "nodes": nodes(now, lost="n4"),
            "tasks": [
                task("gpt-a", 139),
                task(
                    "gpt-b",
                    88,
                    phase=TaskPhase.WAITING,
                    generation=2,
                    tokens_per_s=None,
                    note="n4 is lost, waits for plan P-2",
                ),
            ],
            "incidents": [killed_rank(), lost_node()],
            "plans": [plan()],
        }
    )


def asking(now: float = 500.0, *, asked_at: float | None = 480.0) -> ClusterView:
    """n3 and n4 are out of contact, nobody sees gpt-b, and the operator is asked about n4."""
    away = nodes(now)
    for place, asked in ((2, None), (3, asked_at)):
        note = "presumed training: its SSH port answers n1"
        if asked is not None:
            note = "lost? its SSH port answers n1, and nobody has seen gpt-b for 320 s"
        away[place] = away[place].model_copy(
            update={"condition": NodeCondition.UNREACHABLE, "note": note, "asked_at": asked}
        )
    return calm(now).model_copy(update={"nodes": away})


def healed(now: float = 150.0) -> ClusterView:
    """Return the cluster after the plan was applied."""
    return waiting(now).model_copy(
        update={
            "waf": 2.5e9,
            "tasks": [
                task("gpt-a", 152),
                task(
                    "gpt-b",
                    96,
                    generation=3,
                    workers=2,
                    layout=LayoutView(tp=2, pp=1, dp=1),
                    num_rerun_iterations=3,
                ),
            ],
            "incidents": [killed_rank(), lost_node(state=IncidentState.RESOLVED)],
            "plans": [plan(state=PlanState.APPLIED, approved_by="alex", decided_at=134.0)],
        }
    )


def parking_task(now: float = 37.9) -> ClusterView:
    """Return the cluster while gpt-a replaces a killed rank: it forms its groups."""
    transition = TransitionView(
        decided_at=37.6,
        kind="restart",
        steps=[
            StepView(name="park", predicted_s=0.1, actual_s=0.022),
            StepView(name="start", predicted_s=0.2, actual_s=0.31),
            StepView(name="form", predicted_s=0.05),
            StepView(name="state", predicted_s=0.02),
            StepView(name="first iteration", predicted_s=1.2),
        ],
        predicted_s=1.57,
        actual_s=0.332,
        is_done=False,
    )
    incident = killed_rank(resolved_at=None).model_copy(
        update={
            "saved_micro_batches": 8,
            "recomputed_micro_batches": 4,
            "state_source": "peer",
            "resume": "reuse: 3 of 4 replicas keep 8 micro-batches, 4 are computed again",
        }
    )
    regrouped = task("gpt-a", 36, phase=TaskPhase.STARTING, generation=2, transition=transition)
    return calm(now).model_copy(
        update={"tasks": [regrouped, task("gpt-b", 22)], "incidents": [incident]}
    )


def log(count: int = 12) -> list[LogLine]:
    """Return the story so far as event lines, repeated with rising numbers up to ``count``."""
    story = [
        (2.1, LogLevel.INFO, "n1", "agent ready, pid 4100"),
        (2.2, LogLevel.INFO, "n2", "agent ready, pid 4101"),
        (8.4, LogLevel.GOOD, "gpt-a", "generation 1 committed its first iteration, loss 5.54"),
        (9.0, LogLevel.GOOD, "gpt-b", "generation 1 committed its first iteration, loss 5.54"),
        (37.1, LogLevel.DRILL, "gpt-a", "drill kill-rank: process 4201 killed"),
        (37.5, LogLevel.ERROR, "INC-1", "rank 1 of gpt-a exited abnormally: signal 9 (SEV2)"),
        (37.6, LogLevel.INFO, "gpt-a", "generation 2: restart of 4 ranks from checkpoint 35"),
        (41.9, LogLevel.GOOD, "INC-1", "resolved after 4.7 s"),
        (122.4, LogLevel.WARNING, "n4", "link lost; presumed training"),
        (127.6, LogLevel.ERROR, "INC-2", "n4 is lost: port refused, collectives of gpt-b failed"),
        (128.0, LogLevel.WARNING, "P-2", "waits for approval: WAF 67% now, 83% after"),
        (128.1, LogLevel.INFO, "gpt-a", "untouched, goes on"),
    ]
    return [
        LogLine(seq=number + 1, at=at, level=level, source=source, text=text)
        for number in range(count)
        for at, level, source, text in [story[number % len(story)]]
    ]
