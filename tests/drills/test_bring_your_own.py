"""The examples of commands and attached programs, end to end: they break, start anew, and go on."""

from pathlib import Path

import pytest

from tests.fakes.demo_runs import DemoRun, run_demo

pytestmark = [pytest.mark.drill, pytest.mark.ranks, pytest.mark.ssh, pytest.mark.timeout(600)]

EXAMPLES = Path(__file__).parents[2] / "examples"
SAVE_INTERVAL = 5


def run_example(short_tmp: Path, log: Path, name: str, *drills: str, num_nodes: int) -> DemoRun:
    words = [word for drill in drills for word in ("--drill", drill)]
    nodes = ("--nodes", str(num_nodes), "--workers-per-node", str(2 // num_nodes))
    cluster = (*nodes, "--iterations", "30")
    tasks = ("--tasks", str(EXAMPLES / name / "tasks.toml"))
    kept = ("--keep", str(log.with_name("kept")))  # for who looks why it failed
    return run_demo(short_tmp, log, "--auto-heal", *tasks, *cluster, *words, *kept)


@pytest.fixture(scope="module")
def command(short_tmp: Path, tmp_path_factory: pytest.TempPathFactory) -> DemoRun:
    """A rank of the command is killed, then a node is lost."""
    log = tmp_path_factory.mktemp("command") / "events.jsonl"
    return run_example(short_tmp, log, "command", "kill-rank@8", "lose-node@18", num_nodes=2)


@pytest.fixture(scope="module")
def attached(short_tmp: Path, tmp_path_factory: pytest.TempPathFactory) -> DemoRun:
    """The attached program raises an exception in one rank, then another rank is stopped."""
    log = tmp_path_factory.mktemp("attached") / "events.jsonl"
    return run_example(short_tmp, log, "attached", "exception@12", "freeze-rank@22", num_nodes=1)


def iterations(run: DemoRun, generation: int) -> list[int]:
    return [
        int(str(event["iteration"]))
        for event in run.of_kind("iteration")
        if event["generation"] == generation
    ]


def check_that_each_generation_goes_on_from_a_checkpoint(run: DemoRun, num: int) -> None:
    reached = 0
    for generation in range(1, num + 1):
        seen = iterations(run, generation)
        assert seen == list(range(seen[0], seen[-1] + 1))
        assert (seen[0] - 1) % SAVE_INTERVAL == 0
        assert seen[0] - 1 >= reached - SAVE_INTERVAL
        # The last lines of a node that was lost were seen by nobody; its checkpoints were saved.
        assert generation == num or seen[0] - 1 <= reached + SAVE_INTERVAL
        reached = seen[-1]
    assert reached >= 30


def test_a_killed_rank_and_a_lost_node_cost_a_command_what_its_checkpoints_do_not_hold(
    command: DemoRun,
) -> None:
    assert command.code == 0, command.stderr
    killed, lost = command.incidents
    assert (killed["status"], killed["action"], killed["state"]) == (
        "exited_abnormally", "restart", "resolved",
    )  # fmt: skip
    assert (lost["status"], lost["severity"], lost["state"]) == (
        "lost_connection", "SEV1", "resolved",
    )  # fmt: skip
    check_that_each_generation_goes_on_from_a_checkpoint(command, 3)


def test_a_command_is_shrunk_by_a_plan_to_a_size_that_it_lists(command: DemoRun) -> None:
    sizes = [event["workers"] for event in command.of_kind("start")]
    assert sizes == [2, 2, 1]


def test_no_process_of_a_command_is_ever_used_again(command: DemoRun) -> None:
    started = command.of_kind("rank_started")
    assert len({event["pid"] for event in started}) == len(started) == 5
    assert not any(event["is_warm"] for event in started)


def test_an_exception_of_an_attached_program_is_told_by_itself(attached: DemoRun) -> None:
    assert attached.code == 0, attached.stderr
    incident = attached.incidents[0]
    assert incident["method"] == "exception propagation"
    assert "DrillError" in incident["reason"]
    assert (incident["action"], incident["state"]) == ("restart", "resolved")
    check_that_each_generation_goes_on_from_a_checkpoint(attached, 3)


def test_a_hang_of_an_attached_program_names_the_rank_that_the_others_wait_for(
    attached: DemoRun,
) -> None:
    _, hang = attached.incidents
    assert (hang["status"], hang["rank"], hang["state"]) == ("task_hang", 1, "resolved")
    assert hang["method"] == "online statistical monitoring"


def test_a_program_that_can_not_start_is_held_and_its_log_is_named(
    short_tmp: Path, tmp_path: Path
) -> None:
    tasks = (EXAMPLES / "command" / "tasks.toml").read_text()
    mistyped = tasks.replace('"train.py"', '"trian.py"').replace(
        "workers = 2\n", "workers = 1\n", 1
    )
    (tmp_path / "tasks.toml").write_text(mistyped)
    kept = tmp_path / "kept"
    run = run_demo(
        short_tmp, tmp_path / "events.jsonl", "--auto-heal", "--tasks", str(tmp_path / "tasks.toml"),
        "--nodes", "2", "--workers-per-node", "1", "--iterations", "30", "--time-limit", "60",
        "--keep", str(kept),
    )  # fmt: skip
    assert run.code == 1, run.stderr
    # On a busy machine n2 may attach after the first start has failed: n1 is then tried again.
    [attached] = [
        e for e in run.events if e["source"] == "n2" and "agent attached" in str(e["text"])
    ]
    first, *between, second = run.incidents
    is_late = float(str(attached["at"])) > float(first["detected_at"])
    assert len(between) == (1 if is_late else 0), run.stderr
    assert "can't open file" in first["reason"]
    assert "trian.py" in second["reason"]
    assert "failed alike on n1, n2" in second["reason"]
    assert (second["state"], second["node"], second["action"]) == ("held", None, "none")
    assert not run.of_kind("isolated")
    logs = [Path(str(event["log"])) for event in run.of_kind("note") if "log" in event]
    assert [log.relative_to(kept).parts[1:] for log in logs] == [
        ("ranks", f"command.{number}.0.log") for number in range(1, len(run.incidents) + 1)
    ]
    assert all("trian.py" in log.read_text() for log in logs)


@pytest.mark.thorough  # unit/drills/test_drill_schedule and core/lifecycle/test_command_tasks
def test_a_drill_that_the_program_can_not_stage_ends_the_run(
    short_tmp: Path, tmp_path: Path
) -> None:
    run = run_example(short_tmp, tmp_path / "events.jsonl", "command", "exception@3", num_nodes=1)
    assert run.code == 2
    assert "drill exception@3 is refused: rank 1 of command is a command" in run.stderr
    assert not run.incidents
