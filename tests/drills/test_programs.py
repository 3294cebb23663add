"""The examples in the manner of nanoGPT, of HF Trainer and of Lightning, broken and healed.

Each goes on from its own checkpoint. So the losses of iterations that run again are the same, and
those of the whole run are the losses under torchrun, which nothing disturbs.
"""

import functools
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from profiles.progress.progress_reader import ProgressReader
from profiles.task_profiles import load_task_profiles
from tests.fakes.demo_runs import DemoRun, run_demo

pytestmark = [pytest.mark.drill, pytest.mark.ranks, pytest.mark.ssh, pytest.mark.timeout(600)]

EXAMPLES = Path(__file__).parents[2] / "examples"
LIMIT_S = 400.0
SAVE_INTERVAL = 20
"""So many iterations last so long that a drill surely comes before the next checkpoint."""
FIRST_AT, SECOND_AT, END = 22, 42, 48
END_OF_SHORT_RUN = 26
KILL_AT = 6
"""Before there is a checkpoint: it begins anew."""


@dataclass(frozen=True)
class Program:
    """One of the examples, and how its options are called."""

    folder: str
    task: str
    last: str = "--max_steps"
    save_interval: str = "--save_steps"
    directory: str = "--output_dir"

    @property
    def tasks(self) -> Path:
        return EXAMPLES / self.folder / "tasks.toml"

    @property
    def script(self) -> Path:
        return EXAMPLES / self.folder / "train.py"

    def table(self, num_ranks: int = 2) -> str:
        """Return its task for a file elsewhere, with a checkpoint every ``SAVE_INTERVAL``."""
        words = f'"{self.script}", "{self.save_interval}={SAVE_INTERVAL}",'
        text, num = re.subn('"train.py",', words, self.tasks.read_text())
        assert num == 1
        text, num = re.subn(r"(?m)^workers = 2$", f"workers = {num_ranks}", text)
        assert num == 1
        return text


PROGRAMS = [
    Program("nanogpt", "nanogpt", "--max_iters", "--eval_interval", "--out_dir"),
    Program("hf_trainer", "hf-trainer"),
    Program("lightning_fabric", "lightning-fabric", directory="--out_dir"),
    Program("lightning_trainer", "lightning-trainer", directory="--out_dir"),
]
KILLED = PROGRAMS[0]
"""Killed too, and the one with two ranks."""
CASES = [(each, num_nodes) for num_nodes in (1, 2) for each in PROGRAMS]


def losses(run: DemoRun, program: Program, generation: int) -> dict[int, float]:
    """Return the loss of each iteration of a generation, as the controller has seen it."""
    return {
        int(str(event["iteration"])): float(str(event["loss"]))
        for event in run.of_kind("iteration")
        if (event["source"], event["generation"]) == (program.task, generation)
    }


def check_that_it_goes_on(
    run: DemoRun, program: Program, num_generations: int, end: int = END
) -> None:
    """Check that each generation begins after the newest checkpoint of the one before it."""
    before = losses(run, program, 1)
    assert sorted(before) == list(range(1, len(before) + 1))
    for generation in range(2, num_generations + 1):
        seen = losses(run, program, generation)
        first, last = min(seen), max(seen)
        assert sorted(seen) == list(range(first, last + 1)), generation
        assert first == max(before) // SAVE_INTERVAL * SAVE_INTERVAL + 1
        again = seen.keys() & before.keys()
        assert {each: seen[each] for each in again} == {each: before[each] for each in again}
        assert again
        before = seen
    assert max(before) >= end


@functools.cache
def undisturbed(program: Program) -> dict[int, float]:
    """Return the losses of the same program with two ranks under torchrun."""
    [profile] = load_task_profiles(program.tasks)
    assert profile.command is not None
    with tempfile.TemporaryDirectory() as directory:
        options = {program.last: END, program.save_interval: SAVE_INTERVAL}
        words = [f"{name}={value}" for name, value in options.items()]
        finished = subprocess.run(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
                *("--nproc-per-node=2", str(program.script), *words),
                f"{program.directory}={directory}",
            ],
            env={**os.environ, **profile.command.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    assert finished.returncode == 0, finished.stdout
    reader = ProgressReader(profile.command.progress)
    found = [reader.take(line) for line in re.split(r"[\r\n]", finished.stdout)]
    return {each.iteration: each.loss or 0.0 for each in found if each is not None}


def test_each_program_goes_on_from_its_own_checkpoint_after_a_hang_and_one_after_a_kill(
    short_tmp: Path, tmp_path: Path
) -> None:
    """One of them has two ranks, the others one: imports are most of the work. One rank a node."""
    tasks = tmp_path / "tasks.toml"
    tasks.write_text(
        "\n".join(program.table(2 if program is KILLED else 1) for program in PROGRAMS)
    )
    drills = [
        word
        for program in PROGRAMS
        for word in ("--drill", f"freeze-rank@{FIRST_AT}:task={program.task}")
    ]
    drills += ["--drill", f"kill-rank@{KILL_AT}:task={KILLED.task}"]
    run = run_demo(
        short_tmp, tmp_path / "events.jsonl", "--auto-heal", "--tasks", str(tasks),
        "--nodes", str(len(PROGRAMS) + 1), "--workers-per-node", "1",
        "--iterations", str(END_OF_SHORT_RUN), *drills, limit_s=LIMIT_S,
    )  # fmt: skip
    assert run.code == 0, run.stderr
    expected = {(program.task, "task_hang") for program in PROGRAMS}
    expected.add((KILLED.task, "exited_abnormally"))
    assert {(each["task"], each["status"]) for each in run.incidents} == expected
    assert len(run.incidents) == len(expected)
    for incident in run.incidents:
        assert (incident["action"], incident["state"]) == ("restart", "resolved")
    for program in PROGRAMS:
        num_generations = 3 if program is KILLED else 2
        check_that_it_goes_on(run, program, num_generations, END_OF_SHORT_RUN)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("program", "num_nodes"),
    CASES,
    ids=[f"{each.folder}-{num_nodes}" for each, num_nodes in CASES],
)
def test_a_kill_and_a_hang_change_no_loss(
    short_tmp: Path, tmp_path_factory: pytest.TempPathFactory, program: Program, num_nodes: int
) -> None:
    directory = tmp_path_factory.mktemp(program.folder)
    tasks = directory / "tasks.toml"
    tasks.write_text(program.table())
    run = run_demo(
        short_tmp, directory / "events.jsonl", "--auto-heal", "--tasks", str(tasks),
        "--nodes", str(num_nodes), "--workers-per-node", str(2 // num_nodes),
        "--iterations", str(END), "--drill", f"kill-rank@{FIRST_AT}",
        "--drill", f"freeze-rank@{SECOND_AT}", limit_s=LIMIT_S,
    )  # fmt: skip
    assert run.code == 0, run.stderr
    killed, hung = run.incidents
    assert (killed["status"], killed["state"]) == ("exited_abnormally", "resolved")
    assert (hung["status"], hung["rank"], hung["state"]) == ("task_hang", 1, "resolved")
    check_that_it_goes_on(run, program, 3)
    found = {
        iteration: loss
        for generation in (1, 2, 3)
        for iteration, loss in losses(run, program, generation).items()
        if iteration < END
    }
    expected = undisturbed(program)
    assert found == {iteration: expected[iteration] for iteration in range(1, END)}
