"""Tasks that are commands, as their file describes them."""

from pathlib import Path

import pytest

from profiles.task_profiles import ProfileError, load_task_profiles

EXAMPLES = Path(__file__).parents[3] / "examples"
GOOD = """
[[task]]
name = "mine"
weight = 1
workers = 2
min_workers = 2

[task.command]
argv = ["python", "train.py"]
env = { A = "1" }
cwd = "code"

[task.throughput]
points = [{ workers = 2, flops_per_s = 1.0, layout = { tp = 1, pp = 1, dp = 2 } }]
"""


def load(tmp_path: Path, text: str) -> str:
    """Return the message with which ``text`` is refused."""
    path = tmp_path / "tasks.toml"
    path.write_text(text)
    with pytest.raises(ProfileError) as refused:
        load_task_profiles(path)
    message = str(refused.value)
    assert "\n" not in message
    return message.removeprefix(f"{path}: task 'mine': ")


def test_a_command_is_read_and_its_directory_is_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tasks.toml"
    path.write_text(GOOD)
    [profile] = load_task_profiles(path)
    assert profile.command is not None
    assert profile.command.argv == ("python", "train.py")
    assert profile.command.env == {"A": "1"}
    assert profile.command.cwd == str(tmp_path / "code")
    path.write_text(GOOD.replace('cwd = "code"', ""))
    [profile] = load_task_profiles(path)
    assert profile.command is not None
    assert profile.command.cwd == str(tmp_path)


@pytest.mark.parametrize("name", ["command", "attached"])
def test_the_examples_load_and_their_programs_are_there(name: str) -> None:
    [profile] = load_task_profiles(EXAMPLES / name / "tasks.toml")
    assert profile.command is not None
    assert (Path(profile.command.cwd) / profile.command.argv[1]).is_file()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('["python", "train.py"]', "[]", "command.argv: must begin with a program"),
        (
            '["python", "train.py"]',
            '"python train.py"',
            "command.argv = 'python train.py': must be",
        ),
        ('["python", "train.py"]', '["a\\u0000"]', "NUL character"),
        ('{ A = "1" }', '{ RANK = "1" }', "command.env: RANK is set by the agent, for each rank"),
        ('{ A = "1" }', '{ "A=B" = "1" }', "'A=B' can't be the name of a variable"),
        ('{ A = "1" }', "{ A = 1 }", "command.env.A = 1: must be a valid string"),
        (
            '["python", "train.py"]',
            '["python", "--dir={taskdir}"]',
            "argv 2 = '--dir={taskdir}': {taskdir} is no name that is filled in; did you mean {task_d",
        ),
        (
            '{ A = "1" }',
            "{ A = '{\"x\": 1}' }",
            'command.env.A = \'{"x": 1}\': {"x": 1} is no name that is filled in; known: {task_dir},',
        ),
        (
            "cwd =",
            "progress = 'step (.*)'\ncwd =",
            "command.progress = 'step (.*)': needs the group",
        ),
        ('{ A = "1" }', '{ A = "a}" }', "command.env.A = 'a}': has a single '}'; write }} for a"),
        ('{ A = "1" }', '{ A = "{micro_batches}" }', "num_micro_batches is missing: the command"),
        (
            "min_workers = 2",
            "min_workers = 2\nnum_micro_batches = 3",
            "num_micro_batches = 3: must be a multiple of dp 2",
        ),
        ("cwd =", "cdw =", "unknown key command.cdw; did you mean 'cwd'?"),
        (
            "min_workers = 2",
            "min_workers = 2\nlearning_rate = 0.1",
            "learning_rate: a command trains",
        ),
        ("[task.command]", "[task.commando]", "unknown key commando; did you mean 'command'?"),
    ],
)
def test_a_mistake_is_named_with_its_place(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    assert expected in load(tmp_path, GOOD.replace(old, new))


def test_micro_batches_of_a_replica_may_be_an_argument(tmp_path: Path) -> None:
    path = tmp_path / "tasks.toml"
    argv = '["python", "--accumulate={micro_batches}", "{{}}"]'
    text = GOOD.replace('["python", "train.py"]', argv)
    path.write_text(text.replace("min_workers = 2", "min_workers = 2\nnum_micro_batches = 6"))
    [profile] = load_task_profiles(path)
    assert profile.command is not None
    assert profile.command.placeholders == {"micro_batches"}
    assert profile.num_micro_batches == 6


def test_a_task_without_a_command_needs_a_model(tmp_path: Path) -> None:
    begin, end = GOOD.index("[task.command]"), GOOD.index("[task.throughput]")
    assert load(tmp_path, GOOD[:begin] + GOOD[end:]) == "model is missing"
