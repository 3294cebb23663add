"""The report about an incident. The text of ranks is one line and no markup."""

import re

from controller.api.views import ClusterView, EvidenceAnswer, EvidenceView, IncidentView
from controller.operate.post_mortem import (
    PostMortem,
    ReportedIteration,
    TimelineEntry,
    markdown,
    post_mortem,
)
from tests.fakes import cluster_views

HOSTILE = "x|y `z` <img src=x> [a](b) **b**\n# head\x1b[31m"


def report_of(
    incident: IncidentView, iterations: list[ReportedIteration] | None = None,
    lines: list[TimelineEntry] | None = None, view: ClusterView | None = None,
) -> PostMortem:  # fmt: skip
    view = view or cluster_views.healed()
    return post_mortem(view, incident, view.plans, lines or [], iterations)


def text_of(report: PostMortem) -> str:
    return "\n".join(markdown(report))


def iteration(at: float, number: int, loss: float | None, **more: object) -> ReportedIteration:
    return ReportedIteration.model_validate({"at": at, "iteration": number, "loss": loss, **more})


def test_times_cause_decision_and_cost_are_told() -> None:
    incident = cluster_views.lost_node()
    text = text_of(report_of(incident))
    assert text.startswith(f"# {incident.id}: {incident.status} of gpt-b on n4")
    for word in (
        "## Timeline (UTC)",
        "**the fault**",
        "**found**",
        "## Cause and evidence",
        "## Decision",
        "## Cost",
    ):
        assert word in text
    assert all(each in text for each in incident.evidence)
    plan = cluster_views.healed().plans[0]
    assert plan.trigger == incident.id
    assert f"### {plan.id} revision {plan.revision}: {plan.state}" in text
    assert "the losses are not known here" in text.lower()
    assert "stacks and lines of logs are not known here" in text


def test_nothing_in_a_traceback_ends_its_block() -> None:
    incident = cluster_views.killed_rank()
    detail = "```\n# not a heading\n````text\n<img src=x>"
    piece = EvidenceView(kind="exit", at=1.0, observed_at=1.0, summary="x", detail=detail)
    view = cluster_views.healed()
    answer = EvidenceAnswer(evidence=[piece], num_evidence=3)
    lines = list(markdown(post_mortem(view, incident, [], [], None, answer)))
    assert "2 later pieces of evidence are left out." in lines
    first = lines.index("`````text")
    assert lines[first + 1 : first + 6] == [*detail.splitlines(), "`````"]
    assert lines[first - 2] == "exit:"


def test_the_timeline_has_what_is_about_it_in_the_order_of_time() -> None:
    incident = cluster_views.killed_rank()
    at = incident.fault_at
    lines = [
        TimelineEntry(at=at + 1, source="gpt-a", text="its task"),
        TimelineEntry(at=at - 1, source=incident.node or "", text="its node"),
        TimelineEntry(at=at + 0.5, source="gpt-b", text="another task"),
        TimelineEntry(at=at - 100, source="gpt-a", text="long before"),
        TimelineEntry(at=at + 1000, source="gpt-a", text="long after"),
    ]
    report = report_of(incident, lines=lines)
    assert [line.text for line in report.lines] == ["its task", "its node"]
    rows = [line for line in markdown(report) if re.match(r"\| \d\d:", line)]
    assert rows == sorted(rows)
    assert rows[0].endswith("| -1.000 s | n1: its node |")


def test_losses_that_come_again_are_compared() -> None:
    incident = cluster_views.killed_rank()
    at = incident.fault_at
    first = [iteration(at - 10 + n, n, 5.0 - n / 10) for n in range(8)]
    again = [iteration(at + n, n, 5.0 - n / 10, is_rerun=True) for n in (6, 7)]
    new = [iteration(at + 3 + n, 8 + n, 4.0) for n in range(9)]
    report = report_of(incident, [*first, *again, *new])
    text = text_of(report)
    assert "No iteration is missing. 2 were run again; their losses differ by 0.0e+00" in text
    assert [each.iteration for each in report.iterations or ()] == [
        3,
        4,
        5,
        6,
        7,
        6,
        7,
        8,
        9,
        10,
        11,
        12,
    ]
    other = [*first, again[0], iteration(at + 7, 7, 4.4, is_rerun=True), *new]
    assert "differ by 2.3e-02" in text_of(report_of(incident, other))
    assert "Iterations are missing after 7." in text_of(report_of(incident, [*first, *new[2:]]))
    assert "None was run again. No new one has come since the fault." in text_of(
        report_of(incident, first)
    )


def test_nan_that_comes_again_is_no_difference() -> None:
    incident = cluster_views.killed_rank()
    at, nan = incident.fault_at, float("nan")
    rows = [iteration(at - 1, 3, nan), iteration(at + 1, 3, nan, is_rerun=True)]
    assert "differ by 0.0e+00" in text_of(report_of(incident, rows))


def test_what_is_not_known_is_said() -> None:
    incident = cluster_views.killed_rank().model_copy(
        update={"decided_at": None, "acting_at": None, "resolved_at": None, "recovery_s": None,
                "task": None, "node": None, "nodes": [], "rank": None, "reason": "", "action": ""}
    )  # fmt: skip
    text = text_of(report_of(incident))
    assert "not cured at" in text
    assert "The cause is not known yet." in text
    assert "Action: none yet." in text
    assert "The fault is of no task." in text


def test_text_of_ranks_is_one_line_and_no_markup() -> None:
    incident = cluster_views.killed_rank().model_copy(
        update={"reason": HOSTILE, "status": HOSTILE, "method": HOSTILE, "evidence": [HOSTILE],
                "resume": HOSTILE, "action": HOSTILE, "task": HOSTILE, "node": HOSTILE}
    )  # fmt: skip
    lines = [TimelineEntry(at=incident.fault_at, source=HOSTILE, text=HOSTILE)]
    told = list(markdown(report_of(incident, lines=lines)))
    assert not [line for line in told if "\n" in line or "\x1b" in line]
    text = "\n".join(told)
    assert not re.search(r"(?<!\\)[<`\[]", text.replace("[31m", ""))
    rows = [line for line in told if line.startswith("| ") and "after the fault" not in line]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {4}
