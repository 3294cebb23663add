"""Commands to a running controller: their output, their effect and their exit codes."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from controller.core.events import PlanRejected, PlanRequested, TaskAdded
from controller.core.rules.evidence import Evidence
from controller.core.rules.policy import Policy
from controller.core.state.incident import Cause, Incident
from controller.core.state.phases import PlanState
from nodeagent.protocol.ids import NodeId, TaskId
from tests.fakes.node import until
from tests.fakes.served_clusters import a_task, command, served, with_a_waiting_plan

IS_ROOT = os.getuid() == 0
Capture = pytest.CaptureFixture[str]


async def test_each_kind_of_thing_is_a_table_and_json(tmp_path: Path, capsys: Capture) -> None:
    async with served(tmp_path) as server:
        plan = await with_a_waiting_plan(server)
        expected = {"tasks": "gpt-a", "nodes": "n2", "plans": f"{plan}:1"}
        for kind, word in expected.items():
            assert await command(tmp_path, kind) == 0
            assert word in capsys.readouterr().out
            assert await command(tmp_path, kind, "--json") == 0
            assert len(json.loads(capsys.readouterr().out)) == (2 if kind == "nodes" else 1)
        assert await command(tmp_path, "incidents") == 0
        assert capsys.readouterr().out == "open incidents: none\n"
        assert await command(tmp_path, "plans", "--name", "gpt-a", "--json") == 0
        assert len(json.loads(capsys.readouterr().out)) == 1


@pytest.mark.parametrize(
    "words", [("tasks", "gpt-z"), ("nodes", "n9"), ("plans", "--name", "x"), ("explain", "I-9")]
)
async def test_a_name_that_is_unknown_has_an_exit_code_of_its_own(
    tmp_path: Path, capsys: Capture, words: tuple[str, ...]
) -> None:
    async with served(tmp_path):
        assert await command(tmp_path, *words) == 4
    told = capsys.readouterr()
    assert told.out == ""
    assert words[-1] in told.err
    assert told.err.count("\n") == 1


async def test_an_approval_names_plan_and_revision(tmp_path: Path, capsys: Capture) -> None:
    async with served(tmp_path) as server:
        plan = await with_a_waiting_plan(server)
        assert await command(tmp_path, "approve", f"{plan}:7") == 5
        assert f"{plan} has changed: revision 1, not 7" in capsys.readouterr().err
        assert await command(tmp_path, "approve", "P-9:1") == 4
        assert "there is no plan P-9" in capsys.readouterr().err
        assert await command(tmp_path, "approve", f"{plan}:x") == 2
        assert "write PLAN:REVISION" in capsys.readouterr().err
        assert await command(tmp_path, "approve", plan) == 2
        assert f"{plan}:1 is the newest" in capsys.readouterr().err
        assert server.state.plans.pending() is not None
        assert await command(tmp_path, "approve", f"{plan}:1") == 0
        assert capsys.readouterr().out == f"{plan} is approved\n"
        assert await command(tmp_path, "reject", f"{plan}:1") == 5
        assert f"{plan} is approved already by" in capsys.readouterr().err
        assert await command(tmp_path, "reject", plan) == 5


async def test_a_rejection_is_recorded_and_another_plan_can_be_asked_for(
    tmp_path: Path, capsys: Capture
) -> None:
    async with served(tmp_path) as server:
        plan = await with_a_waiting_plan(server)
        assert await command(tmp_path, "reject", f"{plan}:1", "--reason", "too early") == 0
        assert await command(tmp_path, "propose") == 0
        assert server.state.plans.all[0].state is PlanState.REJECTED
        assert server.state.plans.pending() is not None
        assert await command(tmp_path, "propose", "--json") == 1
        capsys.readouterr()
        assert await command(tmp_path, "audit", "--json") == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [(row["verb"], row["code"]) for row in rows] == [
            ("reject", "ok"), ("propose", "ok"), ("propose", "pending"),
        ]  # fmt: skip
        assert rows[0]["asked"]["reason"] == "too early"
        assert await command(tmp_path, "audit") == 0
        assert "refused: P-2 waits for a decision already" in capsys.readouterr().out
        assert await command(tmp_path, "audit", "--name", "P-9") == 0
        assert capsys.readouterr().out == "nobody has asked for anything\n"


async def test_the_audit_outlives_the_controller(tmp_path: Path, capsys: Capture) -> None:
    async with served(tmp_path):
        assert await command(tmp_path, "propose") == 1
    async with served(tmp_path):
        capsys.readouterr()
        assert await command(tmp_path, "audit", "--json") == 0
    [row] = capsys.readouterr().out.splitlines()
    assert json.loads(row)["verb"] == "propose"


async def test_events_are_the_newest_lines(tmp_path: Path, capsys: Capture) -> None:
    async with served(tmp_path) as server:
        await with_a_waiting_plan(server)
        await until(lambda: server.view().plans, "the plan is shown")
        assert await command(tmp_path, "events", "--name", "gpt-a") == 0
        assert "wants 2 workers: a plan decides" in capsys.readouterr().out
        assert await command(tmp_path, "events", "--limit", "1", "--json") == 0
        [line] = capsys.readouterr().out.splitlines()
        assert {"time", "at", "level", "source", "text"} == json.loads(line).keys()
        assert await command(tmp_path, "events", "--level", "drill") == 0
        assert capsys.readouterr().out == ""


async def test_everything_can_be_explained(tmp_path: Path, capsys: Capture) -> None:
    async with served(tmp_path) as server:
        plan = await with_a_waiting_plan(server)
        for name, words in {
            plan: "gpt-a: moves, 0 -> 4 workers",
            "gpt-a": "gpt-a: stopped",
            "n1": "n1: healthy",
        }.items():
            assert await command(tmp_path, "explain", name) == 0
            assert words in capsys.readouterr().out
            assert await command(tmp_path, "explain", name, "--json") == 0
            told = json.loads(capsys.readouterr().out)
            assert name in {told.get("id"), told.get("name"), told.get("node")}


async def test_evidence_is_shown_in_full_and_its_text_paints_nothing(
    tmp_path: Path, capsys: Capture
) -> None:
    seen = 'Traceback:\n  File "x.py", line 1\n\x1b[31mValueError: bad\x1b[0m'
    evidence = [
        Evidence(
            "exception", 1.0, 0.9, NodeId("n1"), TaskId("gpt-a"), 3, "ValueError", detail=seen
        ),
        *(Evidence("exit", 1.0, 0.9, None, None, n, f"rank {n} exited") for n in range(40)),
    ]
    incident = Incident("I-1", TaskId("gpt-a"), {}, 1.0, Cause(1.0), evidence=evidence)
    async with served(tmp_path) as server:
        server.state.incidents.keep(incident)
        server.note("n1", "a new line")
        await until(lambda: server.view().incidents, "the incident is shown")
        assert await command(tmp_path, "explain", "I-1", "--evidence") == 0
        told = capsys.readouterr().out
        assert "evidence 1, exception of rank 3 on n1" in told
        assert '    |   File "x.py", line 1' in told
        assert "\x1b" not in told
        assert "9 later pieces of evidence are left out" in told
        assert await command(tmp_path, "explain", "I-1", "--evidence", "--json") == 0
        answer = json.loads(capsys.readouterr().out)
        assert len(answer["evidence"]) == 32
        assert answer["evidence"][0]["detail"] == seen
        assert await command(tmp_path, "explain", "n1", "--evidence") == 1
        assert "n1 is no incident" in capsys.readouterr().err
        assert await command(tmp_path, "post-mortem", "I-1") == 0
        report = capsys.readouterr().out
        assert '```text\nTraceback:\n  File "x.py", line 1\n\\x1b[31mValueError' in report


async def test_a_plan_that_is_no_longer_shown_is_explained_from_the_history(
    tmp_path: Path, capsys: Capture
) -> None:
    async with served(tmp_path) as server:
        first = await with_a_waiting_plan(server)
        assert await command(tmp_path, "reject", f"{first}:1") == 0
        for number in range(1, 103):
            server.post(PlanRequested(f"r{number}", "ann"))
            plan = await until(server.state.plans.pending, "a plan")
            server.post(PlanRejected(f"x{number}", "ann", plan.name, 1, "no"))
            await until(lambda: server.state.plans.pending() is None, "it is rejected")
        assert first not in {each.name for each in server.state.plans.all}
        capsys.readouterr()
        assert await command(tmp_path, "explain", first) == 0
        assert f"{first}:1: rejected" in capsys.readouterr().out


async def test_words_of_nodes_can_not_paint_on_the_terminal(
    tmp_path: Path, capsys: Capture
) -> None:
    async with served(tmp_path) as server:
        server.note("n1", "\x1b[31mred\nand a second line")
        assert await command(tmp_path, "events") == 0
        told = capsys.readouterr().out
        assert "\x1b" not in told
        assert "red" in told


async def test_another_users_socket_is_one_line(tmp_path: Path) -> None:
    # Root may connect to every socket, unless it gives that up.
    humbled = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-all"] if IS_ROOT else []
    words = ["-m", "controller.cli", "tasks", "--connect", str(tmp_path / "api.sock")]
    async with served(tmp_path):
        (tmp_path / "api.sock").chmod(0)
        done = await asyncio.to_thread(
            subprocess.run, [*humbled, sys.executable, *words],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 3
    assert done.stderr.endswith("api.sock: permission denied\n")
    assert done.stderr.count("\n") == 1


async def test_a_countdown_is_shown_and_deferred(tmp_path: Path, capsys: Capture) -> None:
    async with served(tmp_path, policy=Policy(auto_after_s=600.0)) as server:
        plan = await with_a_waiting_plan(server)
        assert await command(tmp_path, "plans") == 0
        assert "pending, applied in 6" in capsys.readouterr().out
        assert await command(tmp_path, "defer", f"{plan}:1", "--for", "2h") == 0
        told = capsys.readouterr().out
        assert told == f"{plan} is applied in 7200 s unless it is decided on before\n"
        assert await command(tmp_path, "defer", f"{plan}:2") == 5
        with pytest.raises(SystemExit):
            await command(tmp_path, "defer", f"{plan}:1", "--for", "soon")
        assert "write 90, 90s, 10m, 2h or 1d" in capsys.readouterr().err


async def test_a_storm_is_shown_and_ended(tmp_path: Path, capsys: Capture) -> None:
    async with served(tmp_path, policy=Policy(is_auto_heal=True, storm_plans=1)) as server:
        server.post(TaskAdded(a_task("gpt-a")))
        await until(lambda: server.state.automation.applied_at, "the first plan is applied")
        server.post(TaskAdded(a_task("gpt-b", weight=9.0)))
        await until(server.state.plans.pending, "the second one waits")
        assert await command(tmp_path, "status") == 0
        assert "resume" in capsys.readouterr().out
        assert await command(tmp_path, "status", "--json") == 0
        assert json.loads(capsys.readouterr().out)["automation_stopped"]
        assert await command(tmp_path, "resume") == 0
        assert server.state.plans.pending() is None
        assert await command(tmp_path, "resume") == 1
