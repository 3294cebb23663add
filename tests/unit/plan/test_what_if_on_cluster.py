"""``unicron plan what-if`` on a cluster: a saved run's, and a live one's through its socket."""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from controller.api.server import ApiServer
from controller.api.wire import AskWhatIf, Command, DescribeCluster, Reply
from controller.cli import main
from controller.plan.questions import answer
from controller.store.run_file import decode_spec
from tests.fakes import cluster_views
from tests.fakes.api_server import running_server
from tests.fakes.clusters import demo_machine, spec_of
from tests.fakes.saved_runs import save_run
from tests.fakes.world import World
from tests.fakes.world_queries import all_run


@pytest.fixture
def world() -> World:
    """Both tasks of the demo train; every plan waits for an operator."""
    world = World(demo_machine(is_auto_heal=False), num_iterations=10**6)
    world.run_until(lambda: all_run(world))
    return world


@pytest.fixture
def run(world: World, tmp_path: Path) -> Path:
    """The same, saved."""
    return save_run(world, tmp_path)


Asking = Callable[..., Any]


@pytest.fixture
def asked(run: Path, capsys: pytest.CaptureFixture[str]) -> Asking:
    """Ask a saved run."""

    def ask(*words: str) -> Any:  # noqa: ANN401 - JSON
        assert main(["plan", "what-if", "--state", str(run), "--json", *words]) == 0
        return json.loads(capsys.readouterr().out)

    return ask


def by_task(answer: Any) -> Any:  # noqa: ANN401 - JSON
    return {task["name"]: task for task in answer["tasks"]}


def test_a_saved_run_answers_with_terms_and_with_places(asked: Asking) -> None:
    answer = asked("--lose-node", "n4")
    assert answer["supposed"] == "n4 lost"
    assert answer["changes_anything"]
    assert answer["workers"] == 6
    assert answer["assignments"] == {"gpt-a": 4, "gpt-b": 2}
    b = by_task(answer)["gpt-b"]
    assert (b["workers_before"], b["workers"], b["faulted"], b["moves"]) == (4, 2, True, True)
    assert (b["layout_before"], b["layout"]) == ("tp2 pp1 dp2", "tp2 pp1 dp1")
    assert b["placement_before"] == ["n3:0", "n3:1", "n4:0", "n4:1"]
    assert b["placement"] == ["n3:0", "n3:1"]
    a = by_task(answer)["gpt-a"]
    assert not a["moves"]
    assert a["placement"] == a["placement_before"] == ["n1:0", "n1:1", "n2:0", "n2:1"]
    terms = sum(task["earned"] - task["forgone"] for task in answer["tasks"])
    assert answer["objective"] == pytest.approx(terms)
    assert answer["waf_after"] == pytest.approx(1.5 * 18.9e9 + 3.6e9)
    assert answer["steps"][0] == "isolate n4"


def test_every_option_reaches_the_core(asked: Asking) -> None:
    assert asked("--lose-node", "n1", "--lose-node", "n2")["workers"] == 4
    assert asked("--add", "5")["workers"] == 13
    assert asked("--add-node", "n9", "--add-node", "n8=4")["workers"] == 14
    weights = asked("--weight", "gpt-b=50", "--lose-node", "n1")
    assert weights["assignments"] == {"gpt-a": 2, "gpt-b": 4}
    assert set(asked("--finish", "gpt-a")["assignments"]) == {"gpt-b"}
    assert by_task(asked("--fault", "gpt-b"))["gpt-b"]["faulted"]
    heavy = ("--weight", "gpt-a=9000", "--lose-node", "n3", "--lose-node", "n1")
    assert asked(*heavy)["assignments"] == {"gpt-a": 4, "gpt-b": 0}
    kept = asked(*heavy, "--keeps-running", "gpt-b", "--explain")
    assert kept["assignments"] == {"gpt-a": 2, "gpt-b": 2}
    assert kept["supposed"].endswith("gpt-b keeps running")
    assert kept["floors"]["differs"] == {"gpt-a": 4, "gpt-b": 0}
    may_stop = asked("--keeps-running", "gpt-a=no")
    assert may_stop["supposed"] == "gpt-a may be stopped"
    nothing = asked()
    assert not nothing["changes_anything"]
    assert nothing["why"] == "no plan would change anything"
    assert not any(task["moves"] for task in nothing["tasks"])


def test_the_problem_can_be_saved_and_solved(
    asked: Asking, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "problem.json"
    answer = asked("--lose-node", "n4", "--explain", "--save-problem", str(path))
    assert answer["waiting"]["weighted_flop_per_min"] > 0
    assert "sensitivity" in answer
    assert main(["plan", "solve", str(path), "--json"]) == 0
    solved = json.loads(capsys.readouterr().out)
    for key in ("assignments", "waf_before", "waf_after", "workers", "running_s"):
        assert solved[key] == answer[key]
    assert solved["objective"] == pytest.approx(answer["objective"])


def test_the_table_tells_who_goes_where(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "what-if", "--state", str(run), "--lose-node", "n4", "--explain"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    cost = r"waiting costs \d\.\d GPU-minutes \(\d+% of the cluster\)"
    assert re.search(cost, " ".join(printed.split()))
    assert "gpt-b (faulted)" in printed
    assert "gpt-a: tp1 pp1 dp4 on n1:0,1 n2:0,1\n" in printed
    assert "gpt-b: tp2 pp1 dp2 on n3:0,1 n4:0,1 -> tp2 pp1 dp1 on n3:0,1\n" in printed
    assert "step 1: isolate n4\n" in printed


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--state", "RUN", "--lose-node", "n7"], "there is no node 'n7'; there are n1, n2, n3, n4"),
        (["--state", "RUN", "--finish", "c"], "there is no task 'c'; there are gpt-a, gpt-b"),
        (["--state", "RUN", "--lose", "2"], "--lose is for problem files; name nodes with --lose-node"),
        (["--state", "RUN", "--add", "9999999"], "--add 9999999: must be 1000000 at most"),
        (["--state", "RUN/no"], "RUN/no: not a directory; name the directory of a controller's journal"),
        (["--state", "RUN", "--finish", "gpt-a", "--fault", "gpt-a"], "--fault: gpt-a finishes too; leave out --fault or --finish for it"),
        (["--state", "RUN", "--finish", "gpt-a", "--weight", "gpt-a=2"], "--weight: gpt-a finishes too; leave out --weight or --finish for it"),
        (["--connect", "RUN"], "RUN: is no socket; name a controller's"),
        (["--connect", "RUN/journal.jsonl"], "RUN/journal.jsonl: is no socket; name a controller's"),
        (["--connect", "RUN/no.sock"], "RUN/no.sock: there is no controller's socket"),
        ([], "give one of PROBLEM.json, --cluster FILE, --connect SOCKET and --state DIR"),
        (["p.json", "--state", "RUN"], "give one of PROBLEM.json, --cluster FILE, --connect SOCKET and --state DIR"),
        (["p.json", "--lose-node", "n1"], "--lose-node and --add-node are for clusters; a problem file has no nodes: use --lose and --add"),
        (["p.json", "--save-problem", "x"], "--save-problem is for clusters; leave it out"),
        (["--state", "RUN", "--save-problem", "RUN/journal.jsonl"], "--save-problem RUN/journal.jsonl: exists already; name another file"),
        (["--state", "RUN", "--weight", "gpt-a=2", "--weight", "gpt-a=3"], "--weight: gpt-a is given twice"),
        (["--state", "RUN", "--add-node", "n8=3", "--add-node", "n8=5"], "--add-node: n8 is given twice"),
        (["p.json", "--finish", "a", "--finish", "a"], "--finish: a is given twice"),
        (["--state", "RUN", "--save-problem", "RUN/a/b"], "--save-problem RUN/a/b: no such file or directory"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(
    words: list[str], told: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    placed = [word.replace("RUN", str(run)) for word in words]
    assert main(["plan", "what-if", *placed]) == (3 if "--connect" in words else 2)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"unicron plan: {told.replace('RUN', str(run))}\n"


@pytest.mark.parametrize(
    "word", ["=2", "n9=", "n9=x", "n9=0", "n9=08", "n9=٣", "n9=-1", "n9=2000000"]
)
def test_a_node_that_is_none_is_told_so(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "what-if", "--add-node", word])
    assert f"{word!r} is not NODE or NODE=WORKERS" in capsys.readouterr().err


@asynccontextmanager
async def served(world: World, path: Path) -> AsyncIterator[None]:
    """Serve the API of a world's machine, with nothing beside it but the answers to questions."""
    async with asyncio.TaskGroup() as group:

        async def reply(question: AskWhatIf | DescribeCluster) -> None:
            machine = world.machine
            server.answer(await answer(question, machine.state, machine.policy, world.now))

        def take(command: Command) -> None:
            assert isinstance(command, AskWhatIf | DescribeCluster)
            group.create_task(reply(command))

        server = ApiServer("world", lambda: cluster_views.waiting(0.0), take)
        async with running_server(server, path):
            yield


async def cli(*words: str) -> tuple[int, str, str]:
    """Run a command beside the server, as a user does."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "controller.cli", *words,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_a_live_controller_answers_as_its_saved_run_does(
    world: World, asked: Asking, tmp_path: Path
) -> None:
    path = tmp_path / "api.sock"
    words = ("--lose-node", "n4", "--weight", "gpt-b=2", "--add", "2", "--explain")
    async with served(world, path):
        code, out, err = await cli("plan", "what-if", "--connect", str(path), "--json", *words)
        refused = await cli("plan", "what-if", "--connect", str(path), "--lose-node", "n7")
    assert (code, err) == (0, "")
    live, saved = json.loads(out), asked(*words)
    assert live | {"solve_s": 0} == saved | {"solve_s": 0}
    told = "unicron plan: there is no node 'n7'; there are n1, n2, n3, n4\n"
    assert refused == (2, "", told)


async def test_a_live_controller_describes_its_cluster(world: World) -> None:
    question = DescribeCluster(request_id="1", actor="somebody")
    machine = world.machine
    reply = await answer(question, machine.state, machine.policy, world.now)
    assert isinstance(reply, Reply)
    assert reply.data is not None
    text = json.dumps(reply.data["spec"]).encode()
    assert decode_spec(text, "here") == spec_of(machine)


def test_without_any_node_every_task_is_stopped(asked: Asking) -> None:
    words = [word for node in ("n1", "n2", "n3", "n4") for word in ("--lose-node", node)]
    answer = asked(*words)
    assert answer["assignments"] == {"gpt-a": 0, "gpt-b": 0}
    assert answer["steps"][1:] == ["gpt-a: is stopped", "gpt-b: is stopped"]


def test_a_task_that_trains_saves_before_it_is_stopped_for_another(asked: Asking) -> None:
    answer = asked("--lose-node", "n1", "--lose-node", "n2", "--weight", "gpt-b=0")
    assert answer["assignments"] == {"gpt-a": 4, "gpt-b": 0}
    assert answer["steps"][-2:] == [
        "gpt-b: finish the iteration, save a checkpoint, stop",
        "gpt-b: stays stopped",
    ]
