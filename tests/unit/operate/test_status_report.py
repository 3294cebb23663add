"""``unicron status``: its JSON and its tables, from the views of the scripted cluster."""

import json
from pathlib import Path

import pytest

from controller.api.views import ClusterView, ControllerView
from controller.cli import main
from controller.operate.status_report import as_json, open_incidents, tables, waiting_plans
from tests.fakes import cluster_views

SOCKET = Path("/run/api.sock")
CONTROLLER = ControllerView(
    pid=7, host="ctl", term=2, since="2026-11-26T19:25:29+00:00", journal_bytes=1_500_000
)


def with_controller(view: ClusterView) -> ClusterView:
    return view.model_copy(update={"controller": CONTROLLER})


def test_the_report_has_what_scripts_look_for() -> None:
    report = json.loads(json.dumps(as_json(with_controller(cluster_views.calm()), SOCKET)))
    task = report["tasks"][0]
    assert (task["name"], task["phase"]) == ("gpt-a", "running")
    assert [rank["rank"] for rank in task["ranks"]] == list(range(task["workers"]))
    assert {"rank", "node", "pid"} <= set(task["ranks"][0])
    assert [node["name"] for node in report["nodes"]] == ["n1", "n2", "n3", "n4"]
    assert {node["condition"] for node in report["nodes"]} == {"healthy"}
    assert [incident["state"] for incident in report["incidents"]] == ["resolved"]
    assert report["plans"] == []
    assert report["controller"] == {**CONTROLLER.model_dump(), "socket": str(SOCKET)}


def test_a_lost_node_shows_as_an_open_incident_and_a_waiting_plan() -> None:
    view = with_controller(cluster_views.waiting())
    assert open_incidents(view)
    assert waiting_plans(view)
    found = {table.title: table.rows for table in tables(view, SOCKET)}
    assert list(found) == ["tasks", "nodes", "open incidents", "waiting plans", "controller"]
    assert any("SEV1" in row for row in found["open incidents"])
    assert found["controller"][0][1] == "7 on ctl"
    assert found["controller"][0][4] == "1.5 MB"
    report = as_json(view, SOCKET)
    assert [plan["state"] for plan in report["plans"]] == ["pending"]


def test_a_controller_of_an_older_version_names_no_process() -> None:
    view = cluster_views.calm()
    assert as_json(view, SOCKET)["controller"] == {"socket": str(SOCKET)}
    assert tables(view, SOCKET)[-1].rows[0][1] == ""


def test_every_row_has_a_cell_for_each_heading() -> None:
    for view in (cluster_views.calm(), cluster_views.waiting()):
        for table in tables(with_controller(view), SOCKET):
            assert all(len(row) == len(table.heads) for row in table.rows)


@pytest.mark.parametrize("words", [[], ["--watch"], ["--json"]])
def test_without_a_controller_it_is_said_how_to_start_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text('[cluster]\nname = "a"\nrun_dir = "run"\n')
    assert main(["status", "--cluster", str(path), *words]) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        f"unicron status: no controller runs {path} ({tmp_path}/run/api.sock: there is no controller's"
        f" socket); start one with: unicron run {path}\n"
    )
