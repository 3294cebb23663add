"""A report about one incident, for the meeting after it: as Markdown for people, or as JSON.

What a rank or a node has said is not trusted. Control characters are escaped, and so are the signs
of code, tables, links and HTML.
"""

import math
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

from pydantic import Field

from controller.api.views import (
    ClusterView,
    EvidenceAnswer,
    EvidenceView,
    IncidentView,
    PlanView,
    TaskView,
    TransitionView,
    View,
)
from profiles.records import on_one_line

BEFORE_S: Final = 30.0
AFTER_S: Final = 30.0
"""How much of the event stream before the fault and after the cure is in the timeline."""
_NUM_AROUND: Final = 5
_TICKS: Final = re.compile("`+")
_SPECIAL: Final = re.compile(r"([\\`*<|\[\]])")


class TimelineEntry(View):
    """One line of the timeline."""

    at: float
    """Seconds since the start of the run."""
    source: str
    text: str


class ReportedIteration(View):
    """An iteration that a task has committed; again, if ``is_rerun``."""

    at: float
    iteration: int
    generation: int | None = None
    loss: float | None = None
    duration_s: float | None = None
    is_rerun: bool = False


class PostMortem(View):
    """All that is known of an incident.

    ``lines`` are those of the event stream about it, its plans, its task and its nodes.
    ``iterations`` are those of its task around it; None if nobody has them.
    """

    cluster: str
    started_wall_s: float
    as_of: float
    """When this was asked, seconds since the start of the run, as all times here."""
    incident: IncidentView
    evidence: EvidenceAnswer | None = None
    """With tracebacks, stacks and lines of logs; None if they are no longer kept."""
    plans: list[PlanView] = Field(default_factory=list)
    transition: TransitionView | None = None
    """How its task was brought to train again, if that is its newest transition."""
    num_workers: int | None = None
    """Workers of its task before a plan changed them; None if there is no task."""
    lines: list[TimelineEntry] = Field(default_factory=list)
    iterations: list[ReportedIteration] | None = None


def window_of(incident: IncidentView, now: float) -> tuple[float, float]:
    """Return from when until when lines and iterations belong to the report."""
    until = incident.resolved_at if incident.resolved_at is not None else now
    return incident.fault_at - BEFORE_S, until + AFTER_S


def post_mortem(
    view: ClusterView,
    incident: IncidentView,
    plans: Sequence[PlanView],
    lines: Sequence[TimelineEntry],
    iterations: Sequence[ReportedIteration] | None,
    evidence: EvidenceAnswer | None = None,
) -> PostMortem:
    """Return the report about an incident.

    Args:
        view: The cluster now.
        incident: The incident.
        plans: Plans of the run; those that the incident has caused are taken.
        lines: Lines of the event stream; those about it are taken.
        iterations: Iterations of its task; those around it are taken.
        evidence: Its evidence with all that was seen; None if nobody has that.
    """
    own = [plan for plan in plans if plan.trigger == incident.id]
    task = next((each for each in view.tasks if each.name == incident.task), None)
    about = {incident.id, incident.task, incident.node, *incident.nodes, *(p.id for p in own)}
    since, until = window_of(incident, view.now)
    before = next(
        (
            p.assignments_before[task.name]
            for p in own
            if task and task.name in p.assignments_before
        ),
        None,
    )
    return PostMortem(
        cluster=view.cluster,
        started_wall_s=view.started_wall_s,
        as_of=view.now,
        incident=incident,
        evidence=evidence,
        plans=own,
        transition=_transition_of(task, incident, until) if task else None,
        num_workers=before if before is not None else task.workers if task else None,
        lines=[line for line in lines if line.source in about and since <= line.at <= until],
        iterations=None if iterations is None else _around(iterations, incident, since, until),
    )


def _transition_of(task: TaskView, incident: IncidentView, until: float) -> TransitionView | None:
    transition = task.transition
    if transition is None or transition.decided_at is None:
        return None
    return transition if incident.fault_at <= transition.decided_at <= until else None


def _around(
    iterations: Sequence[ReportedIteration], incident: IncidentView, since: float, until: float
) -> list[ReportedIteration]:
    """Return the iterations of the report, in their order.

    Shown are the last before the fault, and the first new ones after it. An iteration that ran
    again is there twice, for comparison.
    """
    there = [each for each in iterations if since <= each.at <= until]
    before = [each for each in there if each.at < incident.fault_at]
    after = [each for each in there if each.at >= incident.fault_at]
    again = [each for each in after if each.is_rerun]
    # What is run again is compared with the first time, however long ago that was.
    wanted = {each.iteration for each in again}
    kept = {id(each) for each in before[-_NUM_AROUND:]}
    kept |= {id(each) for each in before if each.iteration in wanted}
    kept |= {id(each) for each in [each for each in after if not each.is_rerun][:_NUM_AROUND]}
    kept |= {id(each) for each in again}
    return [each for each in there if id(each) in kept]


def markdown(report: PostMortem) -> Iterator[str]:
    """Yield the lines of the report."""
    incident = report.incident
    drill = " (a drill)" if incident.is_drill else ""
    yield f"# {incident.id}: {_plain(incident.status)}{_where(incident)}{drill}"
    yield ""
    yield _summary(report)
    yield ""
    yield from _timeline(report)
    yield from _cause(report)
    yield from _decision(report)
    yield from _cost(report)
    yield from _training(report)


def _summary(report: PostMortem) -> str:
    incident = report.incident
    found = f"found after {_seconds(incident.detected_at - incident.fault_at)}"
    if incident.resolved_at is not None:
        outcome = f"cured {_seconds(incident.resolved_at - incident.fault_at)} after the fault"
    else:
        outcome = f"not cured at {_clock(report, report.as_of)}: {incident.state}"
    return (
        f"{incident.severity} on cluster {_plain(report.cluster)}, {_day(report, incident.fault_at)} UTC:"
        f" {found}, {outcome}. {_plain(incident.reason) or 'The cause is not known yet.'}"
    )


def _timeline(report: PostMortem) -> Iterator[str]:
    incident = report.incident
    steps = (
        ("the fault", incident.fault_at), ("found", incident.detected_at),
        ("the cause was named and the action chosen", incident.decided_at),
        ("the cure began", incident.acting_at), ("cured", incident.resolved_at),
    )  # fmt: skip
    rows = [(at, f"**{what}**") for what, at in steps if at is not None]
    rows += [(line.at, f"{_plain(line.source)}: {_plain(line.text)}") for line in report.lines]
    yield "## Timeline (UTC)"
    yield ""
    yield "| time | after the fault | what |"
    yield "|---|---:|---|"
    for at, text in sorted(rows, key=lambda row: row[0]):
        yield f"| {_clock(report, at)} | {at - incident.fault_at:+.3f} s | {text} |"
    yield ""


def _cause(report: PostMortem) -> Iterator[str]:
    incident = report.incident
    yield "## Cause and evidence"
    yield ""
    yield f"- {_plain(incident.status)}, {incident.severity}, found by {_plain(incident.method) or 'nothing yet'}"
    yield from (f"- {_plain(each)}" for each in incident.evidence)
    yield ""
    if report.evidence is None:
        yield "Tracebacks, stacks and lines of logs are not known here: the newest incidents of a run have theirs."
        yield ""
        return
    for each in report.evidence.evidence:
        if each.detail:
            yield from _detail(each)
    if report.evidence.num_left_out:
        yield f"{report.evidence.num_left_out} later pieces of evidence are left out."
        yield ""


def _detail(evidence: EvidenceView) -> Iterator[str]:
    """Yield what was seen as a block of code, which ends at no sign in its text."""
    rank = f" of rank {evidence.rank}" if evidence.rank is not None else ""
    node = f" on {_plain(evidence.node)}" if evidence.node else ""
    log = f", from {_plain(evidence.log)}" if evidence.log else ""
    yield f"{_plain(evidence.kind)}{rank}{node}{log}:"
    yield ""
    runs = _TICKS.findall(evidence.detail)
    fence = "`" * max(3, 1 + max(map(len, runs), default=0))
    yield f"{fence}text"
    yield from (on_one_line(line) for line in evidence.detail.splitlines())
    yield fence
    yield ""


def _decision(report: PostMortem) -> Iterator[str]:
    incident = report.incident
    yield "## Decision"
    yield ""
    yield f"Action: {_plain(incident.action) or 'none yet'}. {_plain(incident.reason)}".rstrip()
    yield ""
    for plan in report.plans:
        by = f" by {_plain(plan.approved_by)}" if plan.approved_by else ""
        yield f"### {plan.id} revision {plan.revision}: {plan.state}{by}"
        yield ""
        yield f"{_plain(plan.seen)}. {_plain(plan.why)}."
        yield ""
        for change in plan.changes:
            verb = "moves" if change.moves else "stays"
            yield f"- {_plain(change.task)} {verb}: {change.workers_before} to {change.workers_after} workers"
        found = plan.explanation
        for other in found.alternatives if found else ():
            yield f"- instead {_sizes(other.differs)}: {_plain(other.verdict)}"
        if found is None:
            yield "- what else was possible is not recorded"
        yield ""


def _cost(report: PostMortem) -> Iterator[str]:
    incident, workers = report.incident, report.num_workers
    yield "## Cost"
    yield ""
    if incident.recovery_s is not None:
        yield f"- {_seconds(incident.recovery_s)} from the fault to the next new iteration"
        if workers:
            yield f"- {workers * incident.recovery_s:.1f} worker-seconds, with {workers} workers"
    elif incident.is_recovery_unseen:
        yield "- how long the task did not train is not known: it prints no iterations"
    else:
        yield "- no new iteration has come yet"
    yield (
        f"- {incident.saved_micro_batches} micro-batches kept, {incident.recomputed_micro_batches}"
        " computed again"
    )
    if incident.resume:
        yield f"- resumed: {_plain(incident.resume)}"
    if report.transition is not None:
        yield from _steps(report.transition)
    yield ""


def _steps(transition: TransitionView) -> Iterator[str]:
    yield ""
    yield f"Steps of the {_plain(transition.kind)}:"
    yield ""
    yield "| step | predicted | took |"
    yield "|---|---:|---:|"
    for step in transition.steps:
        took = "not yet" if step.actual_s is None else _seconds(step.actual_s)
        yield f"| {_plain(step.name)} | {_seconds(step.predicted_s)} | {took} |"


def _training(report: PostMortem) -> Iterator[str]:
    yield "## Training before and after"
    yield ""
    if report.incident.task is None:
        yield "The fault is of no task."
    elif report.iterations is None:
        yield "The losses are not known here: ask the controller of the run, or play its journal back with its history."
    elif not report.iterations:
        yield "No iteration is known around the fault."
    else:
        yield _proof(report.iterations, report.incident)
        yield ""
        yield "| time | iteration | loss | took | |"
        yield "|---|---:|---:|---:|---|"
        for each in report.iterations:
            took = "" if each.duration_s is None else _seconds(each.duration_s)
            loss = "" if each.loss is None else f"{each.loss:.6f}"
            again = "run again" if each.is_rerun else ""
            yield f"| {_clock(report, each.at)} | {each.iteration} | {loss} | {took} | {again} |"


def _proof(iterations: Sequence[ReportedIteration], incident: IncidentView) -> str:
    """Return whether the training has continued as if nothing had happened."""
    first = {each.iteration: each for each in iterations if not each.is_rerun}
    again = [each for each in iterations if each.is_rerun]
    fresh = [each for each in iterations if not each.is_rerun]
    gaps = [
        (one.iteration, two.iteration)
        for one, two in pairwise(fresh)
        if two.iteration != one.iteration + 1
    ]
    told = [
        "No iteration is missing." if not gaps else f"Iterations are missing after {gaps[0][0]}."
    ]
    pairs = [(each.loss, first[each.iteration].loss) for each in again if each.iteration in first]
    known = [(one, two) for one, two in pairs if one is not None and two is not None]
    if not again:
        told.append("None was run again.")
    elif not known:
        told.append(f"{len(again)} were run again; their first losses are not known.")
    else:
        worst = max(_difference(one, two) for one, two in known)
        told.append(
            f"{len(again)} were run again; their losses differ by {worst:.1e} of the first ones at most."
        )
    if not any(each.at >= incident.fault_at for each in fresh):
        told.append("No new one has come since the fault.")
    return " ".join(told)


def _difference(loss: float, first: float) -> float:
    if loss == first or (math.isnan(loss) and math.isnan(first)):
        return 0.0
    return abs(loss - first) / max(abs(first), 1e-12)


def _where(incident: IncidentView) -> str:
    rank = f" rank {incident.rank}" if incident.rank is not None else ""
    task = f" of {_plain(incident.task)}{rank}" if incident.task else ""
    nodes = ", ".join(incident.nodes or filter(None, [incident.node]))
    return f"{task} on {_plain(nodes)}" if nodes else task


def _plain(text: str | None) -> str:
    return _SPECIAL.sub(r"\\\1", on_one_line(text or ""))


def _sizes(sizes: dict[str, int]) -> str:
    return ", ".join(f"{_plain(task)} {workers}" for task, workers in sizes.items())


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else f"{seconds:.1f} s"


def _moment(report: PostMortem, at: float) -> datetime:
    return datetime.fromtimestamp(report.started_wall_s + at, tz=UTC)


def _clock(report: PostMortem, at: float) -> str:
    return _moment(report, at).strftime("%H:%M:%S.%f")[:-3]


def _day(report: PostMortem, at: float) -> str:
    return _moment(report, at).strftime("%Y-%m-%d %H:%M:%S")


def entries_in(rows: Any) -> list[TimelineEntry]:  # noqa: ANN401 - JSON
    """Return lines of a run's history."""
    return [TimelineEntry.model_validate(row) for row in rows]


def iterations_in(rows: Any) -> list[ReportedIteration]:  # noqa: ANN401 - JSON
    """Return iterations of a run's history."""
    return [ReportedIteration.model_validate(row) for row in rows]
