"""A working day and a night: tasks and nodes come and go, and no iteration is lost."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.api.views import TaskView
from controller.store.history import HISTORY_NAME, read_rows
from tests.fakes.cluster_runs import controller_of, end_everything_of, reach, view_of, write_cluster
from tests.fakes.demo_runs import demo_tasks
from tests.fakes.playgrounds import Playground, playground, unicron
from tests.fakes.polling import wait_until
from tests.fakes.prometheus import Prometheus, free_port, prometheus
from tests.fakes.webhooks import Webhook, webhook

pytestmark = [pytest.mark.drill, pytest.mark.ranks, pytest.mark.ssh, pytest.mark.timeout(600)]

_POLICY_OF_THE_NIGHT = """
[[approval]]
then = "ask"
auto_after_s = 4
severity = ["SEV1"]
"""
_ON_CALL = """
[[notify]]
name = "on-call"
url = "{url}"
"""


@pytest.fixture(scope="module")
def nodes(short_tmp: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    """Four nodes of two workers."""
    directory = tmp_path_factory.mktemp("nodes") / "play"
    with playground(short_tmp, directory, "--nodes", "4", "--workers-per-node", "2") as running:
        yield running
    end_everything_of(short_tmp, "day")


class Shell:
    """Commands about one cluster file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def do(self, *words: str, code: int = 0) -> str:
        """Run a command, which must end with ``code``; return what it printed."""
        done = subprocess.run(
            unicron(*words, "--cluster", str(self.path)),
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout or done.stderr

    def tasks(self) -> dict[str, TaskView]:
        return {each.name: each for each in view_of(self.path).tasks}

    def task_is(self, name: str, phase: str) -> None:
        wait_until(lambda: self.tasks()[name].phase == phase, limit_s=60)


def test_tasks_and_nodes_come_and_go_and_no_iteration_is_lost(
    nodes: Playground, tmp_path: Path
) -> None:
    path = write_cluster(nodes, tmp_path / "day", "day", demo_tasks(10_000, "gpt-a"))
    shell = Shell(path)
    whole = path.read_text()
    path.write_text(whole[: whole.rindex("[[nodes]]")] + whole[whole.index("[[task]]") :])
    with controller_of(path, "--auto-heal") as command:
        _morning(shell, whole, tmp_path / "more.toml")
        command.end(signal.SIGKILL)
    # The file changes while no controller runs: the next one takes that in.
    whole = whole.replace("weight = 1.5", "weight = 2.5", 1)
    path.write_text(whole)
    port = free_port()
    with (
        webhook() as hook,
        prometheus(tmp_path, f"127.0.0.1:{port}") as scraping,
        controller_of(path, "--auto-heal"),
    ):
        _afternoon(shell)
        assert view_of(path).incidents == []
        served = whole.replace("[cluster]", f'[cluster]\nmetrics = "127.0.0.1:{port}"')
        path.write_text(served + _POLICY_OF_THE_NIGHT + _ON_CALL.format(url=hook.url))
        _night(shell, nodes, hook, scraping, tmp_path / "late.toml")
        _graphs(shell, scraping)
        audit = [json.loads(line) for line in shell.do("audit", "--json").splitlines()]
    assert [(row["verb"], row["subject"], row["code"]) for row in audit] == [
        ("submit", "gpt-b", "ok"), ("reload", "", "ok"), ("drain", "n1", "ok"),
        ("repair", "n1", "ok"), ("stop", "none", "unknown"), ("repair --done", "n1", "ok"),
        ("weight", "gpt-b", "ok"), ("stop", "gpt-a", "ok"), ("start", "gpt-a", "ok"),
        ("finish", "gpt-b", "ok"), ("archive", "gpt-b", "ok"), ("reload", "", "ok"),
        ("limits", "gpt-a", "ok"), ("submit", "gpt-c", "ok"),
    ]  # fmt: skip
    history = path.parent / "run" / HISTORY_NAME
    for name in ("gpt-a", "gpt-b", "gpt-c"):
        rows = list(read_rows(history, "iterations", name=name, limit=10**6))
        assert [row["iteration"] for row in rows] == list(range(1, len(rows) + 1)), name
        assert not any(row["is_rerun"] for row in rows)


def _morning(shell: Shell, whole: str, more: Path) -> None:
    """A task and a node come, and a node is repaired."""
    path = shell.path
    reach(path, 3)
    more.write_text(demo_tasks(10_000, "gpt-b"))
    assert shell.do("submit", str(more)) == "queued: gpt-b for 4 workers; a plan decides\n"
    path.write_text(whole)
    told = "node n4 joins, with 2 workers\n"
    assert shell.do("reload", "--dry-run") == told
    assert shell.do("reload").startswith(told)
    wait_until(lambda: sum(each.workers for each in shell.tasks().values()) == 8, limit_s=60)
    shell.task_is("gpt-b", "running")
    shell.do("drain", "n1", "--wait", "--reason", "new fan")
    assert "n1 is under repair" in shell.do("repair", "n1")
    shell.do("stop", "none", code=4)
    assert shell.do("repair", "n1", "--done") == "n1 is back in service\n"
    shell.do("weight", "gpt-b", "3")
    reach(path, 6)


def _afternoon(shell: Shell) -> None:
    """Another controller: what was ordered holds. A task pauses, another one ends."""
    reach(shell.path, 8)
    tasks = shell.tasks()
    assert (tasks["gpt-b"].weight, set(tasks)) == (3.0, {"gpt-a", "gpt-b"})
    assert tasks["gpt-a"].weight == 2.5
    shell.do("stop", "gpt-a")
    shell.task_is("gpt-a", "stopped")
    shell.do("start", "gpt-a")
    shell.task_is("gpt-a", "running")
    done = shell.tasks()["gpt-a"].iteration
    wait_until(lambda: shell.tasks()["gpt-a"].iteration > done + 3, limit_s=60)
    shell.do("finish", "gpt-b")
    shell.task_is("gpt-b", "finished")
    shell.do("archive", "gpt-b")
    assert set(shell.tasks()) == {"gpt-a"}


def _night(
    shell: Shell, nodes: Playground, hook: Webhook, scraping: Prometheus, late: Path
) -> None:
    """A node is lost while people sleep. They are told, and nobody has to get up."""
    told = shell.do("reload")
    assert told.splitlines()[:3] == [
        "policy approvals: plans of SEV1 wait for an operator's approval, 4 s at most",
        "channel on-call: added",
        next(line for line in told.splitlines() if line.startswith("metrics are served at")),
    ]
    shell.do("limits", "gpt-a", "--min", "4", "--keeps-running", "yes")
    # What was decided before the first look at the cluster is not counted.
    assert scraping.wait_for("unicron_build_info")
    lost = next(node.node for node in view_of(shell.path).nodes if node.workers[0].task)
    nodes.lose(lost)
    wait_until(lambda: "is applied at" in hook.text, limit_s=60)
    assert f"node {lost}" in hook.text
    assert "unicron reject P-" in hook.text
    (incident,) = wait_until(lambda: view_of(shell.path).incidents, limit_s=5)
    wait_until(lambda: view_of(shell.path).incidents[0].state == "resolved", limit_s=60)
    plan = view_of(shell.path).plans[-1]
    assert (plan.trigger, plan.approved_by) == (incident.id, "policy auto_after_s")
    assert plan.decided_at - plan.created_at >= 4
    text = demo_tasks(8, "gpt-b").replace('"gpt-b"', '"gpt-c"')
    late.write_text(text.replace("min_workers = 2", "min_workers = 4"))
    shell.do("submit", str(late))
    assert shell.tasks()["gpt-c"].note == (
        "queued: it needs 4 workers and 2 are free; 2 more make room, of further nodes or of gpt-a (4)"
    )
    nodes.restore()
    shell.task_is("gpt-c", "finished")
    wait_until(lambda: f"{incident.id} SEV1" in hook.text and "is over" in hook.text, limit_s=10)


def _graphs(shell: Shell, scraping: Prometheus) -> None:
    """What Prometheus has of the night."""
    iteration = scraping.wait_for("unicron_task_iteration")["task=gpt-a"]
    assert 0 < iteration <= shell.tasks()["gpt-a"].iteration
    lost = scraping.wait_for("unicron_incidents_total")
    assert lost == {"severity=SEV1, status=lost_connection, task=gpt-a": 1}
    buckets = scraping.wait_for("unicron_lost_gpu_seconds_total")
    # It waited for the countdown on four workers.
    assert buckets["bucket=waiting_for_person, task=gpt-a"] > 4
    assert 0 < scraping.wait_for("unicron_task_ettr_ratio")["task=gpt-a"] < 1
