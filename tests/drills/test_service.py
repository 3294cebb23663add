"""``unicron run``: controllers of cluster files over nodes that they did not start."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import psutil
import pytest

from controller.store.run_file import read_run
from tests.fakes.cluster_runs import (
    controller_of,
    end_everything_of,
    outcome_of,
    pids_of,
    reach,
    view_of,
    write_cluster,
)
from tests.fakes.demo_runs import DemoRun, demo_tasks, processes_under
from tests.fakes.playgrounds import Foreground, Playground, playground, unicron
from tests.fakes.polling import wait_until

pytestmark = [
    pytest.mark.drill,
    pytest.mark.ranks,
    pytest.mark.ssh,
    pytest.mark.timeout(600),
]

REPOSITORY = Path(__file__).parents[2]
NUM_ITERATIONS = 40
"""Tasks outlast both kills: a controller may take seconds to start, and training does not wait."""
SEED = 40


@pytest.fixture(scope="module")
def nodes(short_tmp: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    """Two nodes of six workers behind hardened servers; each test has a cluster of its own."""
    directory = tmp_path_factory.mktemp("nodes") / "play"
    sizes = ("--nodes", "2", "--workers-per-node", "6")
    lines = ("--sshd-config", "DisableForwarding yes", "--sshd-config", "MaxSessions 1")
    with playground(short_tmp, directory, *sizes, *lines) as running:
        yield running


@pytest.fixture(autouse=True)
def _trains_no_longer(short_tmp: Path) -> Iterator[None]:
    """No test has to train beside the ranks that the one before has left behind."""
    yield
    end_everything_of(short_tmp, *"abefouw")


@pytest.mark.thorough  # test_working_day kills a controller, test_takeover sees every process
def test_killed_controllers_cost_no_iteration_and_a_cluster_beside_them_nothing(
    nodes: Playground, tmp_path: Path, undisturbed: DemoRun
) -> None:
    path = write_cluster(nodes, tmp_path / "a", "a", demo_tasks(NUM_ITERATIONS, floor_s=0.4))
    beside = write_cluster(nodes, tmp_path / "b", "b", demo_tasks(NUM_ITERATIONS, "gpt-a", 0.4))
    first, second = sorted(random.Random(SEED).sample(range(2, 14), 2))
    with controller_of(beside, "--auto-heal", "--until-done") as other:
        with controller_of(path, "--auto-heal") as command:
            reach(path, first)
            before = pids_of(path)
            command.end(signal.SIGKILL)
        with controller_of(path, "--auto-heal") as command:
            command.says("has taken over (term 2)")
            reach(path, second)
            wait_until(lambda: pids_of(path) == before, limit_s=60)
            command.end(signal.SIGKILL)
        with controller_of(path, "--auto-heal", "--until-done") as command:
            assert command.process.wait(120) == 0
        assert other.process.wait(60) == 0
    assert before is not None
    assert len(before) == 8
    losses, losses_beside = outcome_of(path), outcome_of(beside)
    for task in undisturbed.outcome["tasks"]:  # type: ignore[attr-defined]
        expected = {int(number): loss for number, loss in task["losses"].items()}
        found = losses[task["name"]]
        assert {number: found[number] for number in expected} == pytest.approx(expected, abs=1e-4)
        assert sorted(found) == list(range(1, NUM_ITERATIONS + 1))
    assert losses_beside["gpt-a"] == pytest.approx(losses["gpt-a"], abs=1e-4)


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_twenty_upgrades_of_the_agents_cost_no_iteration(nodes: Playground, tmp_path: Path) -> None:
    path = write_cluster(
        nodes, tmp_path / "u", "u", demo_tasks(10_000, floor_s=0.4, is_light=False)
    )
    with controller_of(path, "--auto-heal"):
        reach(path, 3)
        before = pids_of(path)
        assert before
        processes = [psutil.Process(pid) for pid in before.values()]
        state_dirs = {Path(each.environ()["UNICRON_STATE_DIR"]) for each in processes}
        for number in range(20):
            for state_dir in sorted(state_dirs):
                upgrade(state_dir, f"v{number}")
            at = max(task.iteration for task in view_of(path).tasks)
            reach(path, at + 2)
            wait_until(lambda: pids_of(path) == before, limit_s=20)
        assert view_of(path).incidents == []
        losses = outcome_of(path)
    for found in losses.values():
        assert sorted(found) == list(range(1, max(found) + 1))


def upgrade(state_dir: Path, version: str) -> None:
    """Have an agent of other code take over on a node, as a bootstrap does."""
    code = state_dir / "agent"
    given = next(each for each in code.iterdir() if (each / "__main__.py").exists())
    shutil.copytree(given, code / version)
    options = ("--state-dir", str(state_dir), "--node", state_dir.name, "--num-workers", "6")
    words = [sys.executable, str(code / version), "start", *options]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["is_new"]


OWN_DIRECTORY = """\
#!/bin/sh
[ "$INSIDE" ] || INSIDE=1 exec unshare -m --propagation private "$0" "$@"
mkdir -p {place} && mount -t tmpfs tmpfs {place} && exec {python} "$@"
"""
"""An interpreter on a node whose checkpoint directory is its own."""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a mount namespace")
def test_a_node_with_a_checkpoint_directory_of_its_own_trains_heals_and_is_told(
    nodes: Playground, tmp_path: Path
) -> None:
    path = write_cluster(nodes, tmp_path / "o", "o", demo_tasks(60, "gpt-a", 0.1))
    python = tmp_path / "o" / "python"
    place = tmp_path / "o" / "checkpoints"
    python.write_text(OWN_DIRECTORY.format(place=place, python=sys.executable))
    python.chmod(0o755)
    text = path.read_text().replace("workers = 6", "workers = 2")
    second = text.index("[[nodes]]", text.index("[[nodes]]") + 1)
    own = text[second:].replace("[[nodes]]\n", f'[[nodes]]\npython = "{python}"\n', 1)
    path.write_text(text[:second] + own)
    with controller_of(path, "--auto-heal", "--until-done") as command:
        said = command.says("is not the same directory as on n1: where a task (gpt-a) runs on both")
        assert "unicron checkpoints on n2" in " ".join(said.split())
        line = command.says("no checkpoint of iteration")
        assert f"does not see what rank 0 writes to {place}/gpt-a" in line
        assert "Name one that all nodes share as checkpoint_dir" in line
        victim = (pids_of(path) or {})["gpt-a", 3]
        psutil.Process(victim).kill()
        command.says("trains again")
        assert command.process.wait(90) == 0
    missed = [line for line in command.lines if "no checkpoint of" in line]
    assert len(missed) == 1, "it is said once"
    machine, _ = read_run(path.parent / "run")
    [task] = machine.state.tasks.values()
    assert sorted(task.progress.losses) == list(range(1, 61))


def test_all_kinds_of_tasks_train_and_an_edited_line_of_a_folder_counts_from_the_next_start(
    nodes: Playground, tmp_path: Path
) -> None:
    tasks = demo_tasks(10_000, "gpt-a")
    for name in ("own_loop", "command"):
        shutil.copytree(REPOSITORY / "examples" / name, tmp_path / "w" / name)
        text = (tmp_path / "w" / name / "tasks.toml").read_text()
        if name == "own_loop":  # the other is slow by itself
            text = text.replace("[[task]]\n", "[[task]]\niteration_floor_s = 0.2\n")
        tasks += text.replace("[[task]]\n", f'[[task]]\nworkdir = "{name}"\n')
    path = write_cluster(nodes, tmp_path / "w", "w", tasks)
    with controller_of(path, "--auto-heal") as command:
        reach(path, 3)
        before = pids_of(path)
        assert before
        folders = {key: psutil.Process(pid).cwd() for key, pid in before.items()}
        assert "/w/n" in folders["command", 0]
        assert (path.parent / "checkpoints" / "command").is_dir()
        check_status(path)
        check_logs(path)
        command.end(signal.SIGKILL)
    script = tmp_path / "w" / "command" / "train.py"
    script.write_text(f'print("the new line", flush=True)\n{script.read_text()}')
    with controller_of(path, "--auto-heal") as command:
        command.says("its program has changed")
        reach(path, 4)
        wait_until(lambda: pids_of(path) == before, limit_s=60)
        psutil.Process(before["command", 1]).kill()

        def has_new_ranks() -> bool:
            found = pids_of(path) or {}
            return len(found) == 8 and before["command", 1] not in found.values()

        wait_until(has_new_ranks, limit_s=60)
        found = pids_of(path)
        assert found
        old = Path(folders["command", 0])
        # The pid is known a moment before the process goes to its folder.
        process = psutil.Process(found["command", 0])
        wait_until(lambda: Path(process.cwd()).parent == old.parent, limit_s=10)
        folder = process.cwd()
        assert folder != str(old)
        assert "the new line" in (Path(folder) / "train.py").read_text()
        assert found["own", 0] == before["own", 0]
        check_former_logs(path)


def check_status(path: Path) -> None:
    words = unicron("status", "--cluster", str(path), "--json")
    shown = subprocess.run(words, capture_output=True, text=True, check=True)
    status = json.loads(shown.stdout)
    ranks = {task["name"]: len(task["ranks"]) for task in status["tasks"]}
    assert ranks == {"command": 2, "gpt-a": 4, "own": 2}
    assert status["incidents"] == []
    assert status["controller"]["term"] == 1


def check_logs(path: Path) -> None:
    read = subprocess.run(
        unicron("logs", "command:1", "--tail", "3", "--json", "--cluster", str(path)),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = [json.loads(each) for each in read.stdout.splitlines()]
    assert [each["rank"] for each in lines] == [1, 1, 1]
    assert any("iteration" in each["line"] for each in lines)
    of_all = subprocess.run(
        unicron("logs", "command", "--tail", "1", "--cluster", str(path)),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    [line] = of_all.stdout.splitlines()
    assert line.startswith("   1 | "), "rank 0 of the example says nothing"
    for ranks_of, told in {
        "command:2": "command has no rank 2: it has 2 ranks",
        "none": "there is no task none: ",
    }.items():
        refused = subprocess.run(
            unicron("logs", ranks_of, "--cluster", str(path)),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert refused.returncode == 4
        assert told in refused.stderr


def check_former_logs(path: Path) -> None:
    """The output of a process that was replaced can be read, and what never was is said."""
    read = subprocess.run(
        unicron("logs", "command:1", "--previous", "--tail", "3", "--json", "--cluster", str(path)),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = [json.loads(each)["line"] for each in read.stdout.splitlines()]
    assert any("iteration" in line for line in lines)
    none = subprocess.run(
        unicron("logs", "own:0", "--previous", "--cluster", str(path)),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert none.returncode == 1
    assert "no output of a process before this one of the rank is kept" in none.stderr
    for words, told in (
        (["--node", "none"], "there is no node none"),
        (["--previous", "--follow"], "--previous has an end: it can't be followed"),
    ):
        refused = subprocess.run(
            unicron("logs", "command:1", *words, "--cluster", str(path)),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert refused.returncode != 0
        assert told in refused.stderr


def test_a_folder_too_large_is_refused_before_anything_starts(tmp_path: Path) -> None:
    folder = tmp_path / "big"
    folder.mkdir()
    with (folder / "weights.bin").open("wb") as file:
        file.truncate(300_000_000)
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(tmp_path / "k")
    (tmp_path / "cluster.toml").write_text(
        '[cluster]\nname = "big"\nrun_dir = "run"\ncheckpoint_dir = "c"\n[[nodes]]\nhosts = "h"\n'
        'workers = 2\nidentity = "k"\n[[task]]\nname = "c"\nweight = 1\nworkers = 1\nmin_workers = 1\n'
        'workdir = "big"\n[task.command]\nargv = ["true"]\n[task.throughput]\n'
        "points = [{ workers = 1, flops_per_s = 1.0, layout = { tp = 1, pp = 1, dp = 1 } }]\n"
    )
    for option in ("--dry-run", "--auto-heal"):
        words = unicron("run", str(tmp_path / "cluster.toml"), option)
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode in {1, 2}
        assert "unicron run: task c: workdir: " in done.stderr
        assert "The largest: weights.bin (300 MB)" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "run" / "journal.jsonl").exists()


def test_a_second_controller_is_refused_and_the_file_may_change_while_none_runs(
    nodes: Playground, tmp_path: Path
) -> None:
    """One of each: weight, policy, program, node and task less, node and task more."""
    tasks = demo_tasks(10_000, "gpt-a")
    path = write_cluster(nodes, tmp_path / "e", "e", tasks)
    whole = path.read_text()
    # Each node has as many workers as the task, so that it runs on the first one alone.
    first = whole.index("[[nodes]]")
    second = whole.index("[[nodes]]", first + 1)
    end = whole.index("[[task]]")
    n1, n2, head = whole[first:second], whole[second:end], whole[:first]
    path.write_text(head + n1 + tasks)
    with controller_of(path, "--auto-heal") as command:
        reach(path, 2)
        before = pids_of(path)
        check_second_is_refused(path, command)
        check_end_is_said(path, command)
    assert view_of(path) is None
    assert (path.parent / "run").stat().st_mode & 0o777 == 0o700
    changed = tasks.replace("weight = 1.5", "weight = 2.5")
    changed = changed.replace("learning_rate = 1e-3", "learning_rate = 2e-3")
    more = tasks.replace('"gpt-a"', '"gpt-new"').replace("workers = 4\n", "workers = 2\n", 1)
    path.write_text(head + "[policy]\nrestarts = 7\n" + n1 + n2 + changed + more)
    with controller_of(path, "--auto-heal") as command:
        command.says("has taken over (term 2)")
        command.says("gpt-a  its program has changed")
        command.says("policy the policy has changed")
        found = wait_until(
            lambda: found if len(found := pids_of(path) or {}) == 8 else None, limit_s=60
        )
        view = view_of(path)
        assert {key: pid for key, pid in found.items() if key[0] == "gpt-a"} == before
        [task] = [task for task in view.tasks if task.name == "gpt-a"]
        assert (task.weight, "its program has changed" in task.note) == (2.5, True)
        reach(path, 3)
        assert command.end(signal.SIGTERM) == 0
    path.write_text(head + n2 + changed)
    check_takes_in_what_is_gone(path)
    assert list(outcome_of(path)["gpt-a"]) == sorted(outcome_of(path)["gpt-a"])
    log = (path.parent / "run" / "events.jsonl").read_text()
    assert "has taken over (term 2)" in log
    assert '"iteration":1,' in log


def check_takes_in_what_is_gone(path: Path) -> None:
    """The first node and the second task are gone: the first task moves to the second node."""
    with controller_of(path, "--auto-heal") as command:
        command.says("n1     has left the cluster")
        wait_until(
            lambda: (
                (view := view_of(path)) is not None
                and [task.name for task in view.tasks] == ["gpt-a"]
                and view.tasks[0].phase == "running"
            ),
            limit_s=60,
        )
        view = view_of(path)
        assert [node.node for node in view.nodes] == ["n2"]
        assert view.incidents == []
        at = view.tasks[0].iteration
        reach(path, at + 2)


def check_second_is_refused(path: Path, running: Foreground) -> None:
    refused = subprocess.run(unicron("run", str(path)), capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert f"process {running.process.pid} on" in refused.stderr
    assert "since 20" in refused.stderr


def check_end_is_said(path: Path, running: Foreground) -> None:
    assert running.end(signal.SIGINT) == 0
    assert running.lines[-2].endswith("the controller ends: stopped by SIGINT")
    assert running.lines[-1].endswith(
        f"training continues; the next controller takes over: unicron run {path}"
    )


def test_a_cluster_is_brought_down_and_continues_in_a_new_run(
    nodes: Playground, short_tmp: Path, tmp_path: Path
) -> None:
    path = write_cluster(nodes, tmp_path / "f", "f", demo_tasks(10_000, "gpt-a"))
    words = ("down", str(path))
    with controller_of(path, "--auto-heal") as command:
        reach(path, 4)
        asked = subprocess.run(
            unicron(*words), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        assert asked.returncode == 2
        assert "  task gpt-a: running, iteration" in asked.stderr
        assert asked.stderr.splitlines()[-1].endswith("add --yes to stop this without being asked")
        assert view_of(path) is not None
        done = subprocess.run(unicron(*words, "--yes"), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert command.process.wait(30) == 0
        command.says("the cluster is down")
    wait_until(lambda: not processes_under(short_tmp, "/f/"), limit_s=10)
    assert not (path.parent / "run" / "journal.jsonl").exists()
    assert (path.parent / "run" / "journal.1.jsonl").exists()
    with controller_of(path) as command:
        wait_until(lambda: (view := view_of(path)) and view.tasks[0].iteration > 4, limit_s=60)
        command.says("state from disk")
        before = pids_of(path)
        command.end(signal.SIGKILL)
    assert before
    living = [psutil.Process(pid) for pid in before.values()]
    elsewhere = path.with_name("elsewhere.toml")
    elsewhere.write_text(path.read_text().replace('run_dir = "run"', 'run_dir = "empty"'))
    with controller_of(elsewhere) as command:
        line = command.says("the agent on n1 refuses")
        assert "rank(s) of another run live here" in line
        assert "of the controller that was process" in line
        assert "unicron down" in line
    # A controller that does not know the ranks ends none of them.
    assert [found.pid for found in living if not found.is_running()] == []
    # No controller runs. So ``down`` starts one, and that ends the ranks and agents.
    done = subprocess.run(unicron(*words, "--yes"), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: not processes_under(short_tmp, "/f/"), limit_s=10)


def test_a_broken_file_starts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text('[cluster]\nnam = "x"\nrun_dir = "run"\n')
    done = subprocess.run(unicron("run", str(path)), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"{path}:1: has no [[nodes]]: write a [[nodes]] table for each group of nodes",
        f"{path}:1: has no [[task]]: write a [[task]] table for each, or include a file",
        f"{path}:2: cluster: unknown key nam; did you mean 'name'?",
    ]
    assert list(tmp_path.iterdir()) == [path]
