"""The matrix and the catalogue as text, as JSON, and on a page."""

import json
from pathlib import Path

import pytest

from controller.drill_matrix.drill_options import check_minutes, choose_drills
from controller.drill_matrix.matrix_table import (
    BEGIN,
    END,
    PageError,
    drill_json,
    drills_text,
    report,
    section,
    summary,
    write_section,
)
from controller.drill_matrix.row import DrillObservation, MatrixRow, RowTarget
from controller.drills.drill_arguments import DrillArgumentError
from nodeagent.protocol.ids import NodeId, TaskId
from profiles.drills.drill_catalogue import DRILL_BY_KIND, DRILLS

KILL = DRILL_BY_KIND["kill-rank"]
GOOD = MatrixRow(
    KILL,
    RowTarget(NodeId("n1"), TaskId("gpt-a"), 1),
    DrillObservation(
        "exited_abnormally",
        "SEV2",
        "process supervision",
        "restart",
        "rank 1 of gpt-a on n1",
        is_culprit_right=True,
        ending="resolved",
        detection_s=0.04321,
        recovery_s=0.9,
        incidents=("I-1 exited_abnormally",),
    ),
)
STOP = DRILL_BY_KIND["freeze-rank"]
BAD = MatrixRow(
    STOP,
    GOOD.target,
    DrillObservation("none", "none", "", "none", "", is_culprit_right=False, ending="x"),
)
NOT_RUN = {"partition": "not here: no namespaces"}


def test_every_drill_is_explained_with_what_should_be_seen() -> None:
    text = drills_text(DRILLS)
    for drill in DRILLS:
        assert drill.kind in text
        assert drill.breaks in text
    assert text.count("    expected: ") == len(DRILLS)


def test_the_list_as_json_has_every_expectation() -> None:
    one = json.loads(json.dumps(drill_json(KILL)))
    assert one["expected"]["status"] == "exited_abnormally"


def test_the_report_counts_what_agrees_and_names_what_was_not_run() -> None:
    found = json.loads(json.dumps(report([GOOD, BAD], NOT_RUN, 12.34)))
    assert (found["num_rows"], found["num_agreeing"], found["duration_s"]) == (2, 1, 12.3)
    assert [row["agrees"] for row in found["rows"]] == [True, False]
    assert found["rows"][0]["detection_s"] == 0.043
    assert found["not_run"] == [{"kind": "partition", "reason": "not here: no namespaces"}]


def test_the_summary_says_what_differs() -> None:
    text = summary([GOOD, BAD], NOT_RUN, 12.3)
    assert "DISAGREES freeze-rank" in text
    assert "status: none instead of task_hang" in text
    assert "not run   partition: not here: no namespaces" in text
    assert "1 of 2 rows agree" in text


def test_the_section_replaces_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_section(page, section([GOOD, BAD], DRILLS, NOT_RUN, 12.3, "2026-01-02"))
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n| drill |")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    assert "| `kill-rank` | SEV2 exited_abnormally | process supervision | restart | rank |" in text
    assert "- `freeze-rank`: status: none instead of task_hang" in text
    assert "- `partition` was not run: not here: no namespaces." in text
    assert "2026-01-02: 1 of 2 rows agree" in text


@pytest.mark.parametrize("content", [None, "no markers here", f"only\n{BEGIN}\n"])
def test_a_page_without_a_place_for_the_table_is_left_alone(
    tmp_path: Path, content: str | None
) -> None:
    page = tmp_path / "page.md"
    if content is not None:
        page.write_text(content)
    with pytest.raises(PageError, match="--write-docs "):
        write_section(page, "table")
    assert not page.exists() or page.read_text() == content


def test_drills_are_chosen_by_kind_or_family_in_the_order_of_the_catalogue() -> None:
    assert choose_drills([]) == list(DRILLS)
    assert [drill.kind for drill in choose_drills(["nan:times=2", "kill-rank"])] == [
        "kill-rank",
        "nan:times=2",
    ]
    assert len(choose_drills(["exception"])) > 10


def test_wrong_options_are_one_line_each() -> None:
    with pytest.raises(
        DrillArgumentError, match="--only earthquake: unknown drill; families are kill-rank, "
    ):
        choose_drills(["earthquake"])
    for minutes in (0, -1, float("nan"), float("inf")):
        with pytest.raises(DrillArgumentError, match="must be a finite number above 0"):
            check_minutes(minutes)
