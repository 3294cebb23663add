"""Task profiles: the demo's own, and one clear error for every mistake in a file."""

import re
from pathlib import Path

import pytest

from controller.server.cluster_config import task_spec
from profiles.layout import Layout
from profiles.task_profiles import ProfileError, default_task_profiles, load_task_profiles
from profiles.training_program import Program

GOOD = """\
[[task]]
name = "gpt"
weight = 1.5
workers = 4
min_workers = 2
num_micro_batches = 12

[task.model]
num_layers = 2
hidden_size = 64
num_attention_heads = 4
seq_length = 64

[task.throughput]
points = [
    { workers = 2, flops_per_s = 1.0e9, layout = { tp = 2, pp = 1, dp = 1 } },
    { workers = 4, flops_per_s = 1.8e9, layout = { tp = 2, pp = 1, dp = 2 } },
]
"""


def refusal(path: Path, content: str | bytes) -> str:
    """Return the error for a file with this content, without the path it begins with."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ProfileError) as caught:
        load_task_profiles(path)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(f"{path}: ")
    return text.removeprefix(f"{path}: ")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.toml"


def test_the_demo_has_two_tasks_that_fill_four_nodes_of_two() -> None:
    gpt_a, gpt_b = default_task_profiles()
    assert (gpt_a.name, gpt_a.weight, gpt_a.workers, gpt_a.min_workers) == ("gpt-a", 1.5, 4, 1)
    assert (gpt_b.name, gpt_b.weight, gpt_b.workers, gpt_b.min_workers) == ("gpt-b", 1.0, 4, 2)
    assert gpt_a.throughput.sizes == (1, 2, 3, 4)
    assert gpt_b.throughput.sizes == (2, 4)
    assert gpt_a.throughput.layout(4) == Layout(dp=4)
    assert gpt_b.throughput.layout(4) == Layout(tp=2, dp=2)


def test_a_task_may_keep_running(path: Path) -> None:
    path.write_text(GOOD)
    assert not load_task_profiles(path)[0].keeps_running
    path.write_text(GOOD.replace("min_workers = 2", "min_workers = 2\nkeeps_running = true"))
    [profile] = load_task_profiles(path)
    assert task_spec(profile, None).keeps_running
    wrong = GOOD.replace("min_workers = 2", 'min_workers = 2\nkeeps_running = "yes"')
    assert refusal(path, wrong).startswith("task 'gpt': keeps_running = 'yes': must be")


def test_a_good_file_is_read_with_defaults(path: Path) -> None:
    path.write_text(GOOD)
    [profile] = load_task_profiles(path)
    assert profile.model is not None
    assert profile.model.vocab_size == 256
    assert profile.checkpoint_interval == 5
    assert profile.throughput.flops_per_s(4) == 1.8e9


def test_tasks_keep_the_order_of_the_file(path: Path) -> None:
    path.write_text(GOOD.replace('"gpt"', '"z"') + GOOD.replace('"gpt"', '"a"'))
    assert [profile.name for profile in load_task_profiles(path)] == ["z", "a"]


MISTAKES = {
    "unknown key": (
        "weight = 1.5",
        "wieght = 1.5",
        "task 'gpt': unknown key wieght; did you mean 'weight'?",
    ),
    "unknown key of the model": (
        "hidden_size = 64",
        "hiden_size = 64",
        "task 'gpt': unknown key model.hiden_size; did you mean 'hidden_size'?",
    ),
    "unknown key of a layout": (
        "dp = 2 }",
        "dp = 2, ep = 2 }",
        "task 'gpt': unknown key throughput.points 2.layout.ep; known: dp, pp, tp",
    ),
    "unknown key like no other": (
        "weight = 1.5",
        "weight = 1.5\nzzz = 1",
        (
            "task 'gpt': unknown key zzz; known: checkpoint_dir, checkpoint_interval, checkpoints_kept, command,"
            " data, iteration_floor_s, keeps_running, learning_rate, long_intervals, memory_interval, micro_batch_size, min_workers, model, name,"
            " num_iterations, num_micro_batches, program, shard_optimizer, shared, throughput, weight, workdir,"
            " workers"
        ),
    ),
    "program without a function": (
        "[task.throughput]",
        '[task.program]\nfunction = "mine.py"\n[task.throughput]',
        "task 'gpt': program.function = 'mine.py': must be package.module:function",
    ),
    "unknown key of the program": (
        "[task.throughput]",
        '[task.program]\nfunktion = "mine:build"\n[task.throughput]',
        "task 'gpt': unknown key program.funktion; did you mean 'function'?",
    ),
    "option of a program that is a list": (
        "[task.throughput]",
        '[task.program]\nfunction = "mine:build"\noptions = { sizes = [1, 2] }\n[task.throughput]',
        "task 'gpt': program.options.sizes: must be text, a finite number, true or false",
    ),
    "option of a program that is not finite": (
        "[task.throughput]",
        '[task.program]\nfunction = "mine:build"\noptions = { std = inf }\n[task.throughput]',
        "task 'gpt': program.options.std = inf: must be text, a finite number, true or false",
    ),
    "missing key": ("min_workers = 2\n", "", "task 'gpt': min_workers is missing"),
    "missing key of the model": (
        "hidden_size = 64\n",
        "",
        "task 'gpt': model.hidden_size is missing",
    ),
    "missing layout": (
        "workers = 2, flops_per_s = 1.0e9, layout = { tp = 2, pp = 1, dp = 1 }",
        "workers = 2, flops_per_s = 1.0e9",
        "task 'gpt': throughput.points 1.layout is missing",
    ),
    "weight of zero": ("1.5", "0", "task 'gpt': weight = 0: must be greater than 0"),
    "infinite weight": ("1.5", "inf", "task 'gpt': weight = inf: must be a finite number"),
    "weight as text": ("1.5", '"1.5"', "task 'gpt': weight = '1.5': must be a valid number"),
    "weight as a date": (
        "1.5",
        "2026-01-01",
        "task 'gpt': weight = '2026-01-01': must be a valid number",
    ),
    "truth for a number": (
        "workers = 4\n",
        "workers = true\n",
        "task 'gpt': workers = True: must be a valid integer",
    ),
    "fraction of a worker": (
        "workers = 4\n",
        "workers = 4.0\n",
        "task 'gpt': workers = 4.0: must be a valid integer",
    ),
    "a name that is no file name": (
        '"gpt"',
        '"../gpt"',
        (
            "task '../gpt': name = '../gpt': must be 1 to 32 letters, digits, '-' or '_', and begin"
            " with a letter or digit"
        ),
    ),
    "model that is not a table": (
        "[task.model]",
        "model = 3\n[task.modle]",
        "task 'gpt': unknown key modle; did you mean 'model'?",
    ),
    "hidden size and heads": (
        "hidden_size = 64",
        "hidden_size = 66",
        "task 'gpt': model: hidden_size 66 is not a multiple of num_attention_heads 4",
    ),
    "heads and tp": (
        "num_attention_heads = 4",
        "num_attention_heads = 1",
        (
            "task 'gpt': throughput: layout tp2 pp1 dp1 does not fit the model: num_attention_heads 1"
            " is not a multiple of tp 2; tp must divide 1 and pp must divide 2"
        ),
    ),
    "vocabulary and tp": (
        "seq_length = 64",
        "seq_length = 64\nvocab_size = 257",
        (
            "task 'gpt': throughput: layout tp2 pp1 dp1 does not fit the model: vocab_size 257 is not"
            " a multiple of tp 2; tp must divide 1 and pp must divide 2"
        ),
    ),
    "micro-batches and dp": (
        "num_micro_batches = 12",
        "num_micro_batches = 13",
        (
            "task 'gpt': num_micro_batches = 13: must be a multiple of dp 2, the layout of 4 workers;"
            " 2 suits all sizes"
        ),
    ),
    "initial size not listed": (
        "workers = 4\n",
        "workers = 3\n",
        "task 'gpt': workers = 3: must be a listed size: 2, 4",
    ),
    "minimum not listed": (
        "min_workers = 2",
        "min_workers = 1",
        "task 'gpt': min_workers = 1: must be a listed size: 2, 4",
    ),
    "initial size below the minimum": (
        "workers = 4\nmin_workers = 2",
        "workers = 2\nmin_workers = 4",
        "task 'gpt': workers = 2: must be at least min_workers, 4",
    ),
    "size and layout differ": (
        "workers = 2, flops",
        "workers = 3, flops",
        (
            "task 'gpt': throughput.points 1: workers is 3, but tp2 pp1 dp1 makes 2: workers must be"
            " tp x pp x dp"
        ),
    ),
    "layout of zero": (
        "tp = 2, pp = 1, dp = 1",
        "tp = 2, pp = 1, dp = 0",
        "task 'gpt': throughput.points 1.layout: layout tp2 pp1 dp0 has a size below 1",
    ),
    "throughput that is not a number": (
        "1.8e9",
        "nan",
        "task 'gpt': throughput.points 2.flops_per_s = nan: must be a finite number",
    ),
}


@pytest.mark.parametrize(("old", "new", "expected"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_one_error_with_place_value_and_mend(
    path: Path, old: str, new: str, expected: str
) -> None:
    assert old in GOOD
    assert refusal(path, GOOD.replace(old, new, 1)) == expected


def test_layers_must_be_a_multiple_of_the_pipeline_stages(path: Path) -> None:
    deep = GOOD.replace("tp = 2, pp = 1", "tp = 1, pp = 2").replace("layers = 2", "layers = 3")
    assert "num_layers 3 is not a multiple of pp 2" in refusal(path, deep)


OWN = """
[task.program]
function = "mine.loop:build"
directory = "own"
options = { dtype = "bf16", layers = 2, std = 0.02, gated = true }
"""


def test_a_program_is_found_beside_its_file_and_keeps_the_types_of_its_options(path: Path) -> None:
    path.write_text(GOOD + OWN)
    [profile] = load_task_profiles(path)
    assert profile.program is not None
    assert profile.program.function == "mine.loop:build"
    assert profile.program.directory == str(path.parent / "own")
    told = Program.model_validate_json(profile.program.model_dump_json()).options
    assert told == {"dtype": "bf16", "layers": 2, "std": 0.02, "gated": True}
    assert [type(value) for value in told.values()] == [str, int, float, bool]


def test_which_layouts_fit_is_known_to_the_program_alone(path: Path) -> None:
    path.write_text(GOOD.replace("heads = 4", "heads = 1") + OWN)
    assert load_task_profiles(path)[0].throughput.layout(2) == Layout(tp=2)


def test_two_tasks_of_one_name_are_refused(path: Path) -> None:
    expected = "tasks 1 and 2 are both called 'gpt'; every task needs a name of its own"
    assert refusal(path, GOOD + GOOD) == expected


def test_a_task_without_a_name_is_named_by_its_number(path: Path) -> None:
    nameless = GOOD + GOOD.replace('name = "gpt"\n', "")
    assert refusal(path, nameless) == "task 2: name is missing"


def test_a_syntax_error_is_named_with_its_line(path: Path) -> None:
    text = refusal(path, GOOD.replace("weight = 1.5", "weight = "))
    assert text.startswith("not valid TOML: ")
    assert "at line 3" in text


def test_a_key_given_twice_is_a_syntax_error(path: Path) -> None:
    assert "not valid TOML" in refusal(path, GOOD.replace("weight = 1.5", "weight = 1\nweight = 2"))


@pytest.mark.parametrize("content", ["", "# nothing but a comment\n", "task = []\n"])
def test_a_file_without_tasks_is_refused(path: Path, content: str) -> None:
    assert refusal(path, content) == "no task in it: write one [[task]] table per task"


def test_one_table_in_place_of_a_list_is_refused(path: Path) -> None:
    text = refusal(path, GOOD.replace("[[task]]", "[task]"))
    assert text == "'task' must be a list of tables: write [[task]], not [task]"


@pytest.mark.parametrize("content", ["task = 3\n", "[[tasks]]\n", "task = [1]\n"])
def test_what_is_no_list_of_task_tables_is_refused(path: Path, content: str) -> None:
    assert "task" in refusal(path, content)


def test_a_file_that_is_not_utf8_is_refused_with_its_line(path: Path) -> None:
    text = refusal(path, b'[[task]]\nname = "caf\xe9"\n')
    assert text == "line 2 is not UTF-8 (byte 0xe9); save the file as UTF-8"


def test_a_number_of_endless_digits_is_refused(path: Path) -> None:
    assert "not valid TOML" in refusal(path, GOOD.replace("1.5", "9" * 5000))


@pytest.mark.parametrize(
    "key",
    ["workers", "num_layers", "hidden_size", "seq_length", "num_iterations", "micro_batch_size"],
)
def test_a_number_too_large_to_count_with_is_refused_in_a_short_line(path: Path, key: str) -> None:
    """No float would hold the product: a controller that took it in could not go on."""
    without = re.sub(rf"(?m)^{key} = .*\n", "", GOOD)
    table = "[task.model]\n" if f"\n{key}" in GOOD[GOOD.index("[task.model]") :] else "[[task]]\n"
    told = refusal(path, without.replace(table, f"{table}{key} = 1{'0' * 400}\n", 1))
    assert f"{key} = 1000" in told
    assert "less than or equal to 1000000000000" in told
    assert len(told) < 200, told


def test_a_layout_too_large_to_count_with_is_refused_in_a_short_line(path: Path) -> None:
    told = refusal(path, GOOD.replace("tp = 2", f"tp = 1{'0' * 400}", 1))
    assert "a size of a layout is above 1000000000000" in told
    assert len(told) < 200, told


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"none\.toml: no such file or directory; name a TOML"):
        load_task_profiles(tmp_path / "none.toml")


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="is a directory; name a TOML file"):
        load_task_profiles(tmp_path)


TABLE = """\
version = 1
title = "gpt, measured"
[[points]]
workers = 4
flops_per_s = 3.5e9
layout = { tp = 2, dp = 2 }
origin = "measured"
iterations = 12
"""
WITH_FILE = GOOD.replace("[task.throughput]", '[task.throughput]\nfile = "tables/gpt.toml"')


def test_a_table_in_a_file_beside_it_stands_for_the_points_of_its_sizes(path: Path) -> None:
    (path.parent / "tables").mkdir()
    (path.parent / "tables" / "gpt.toml").write_text(TABLE)
    path.write_text(WITH_FILE)
    (profile,) = load_task_profiles(path)
    assert profile.throughput.flops_per_s(2) == 1.0e9
    assert profile.throughput.flops_per_s(4) == 3.5e9
    assert profile.throughput.layout(4) == Layout(tp=2, dp=2)
    alone = WITH_FILE.partition("points")[0].replace("min_workers = 2", "min_workers = 4")
    path.write_text(alone)
    (profile,) = load_task_profiles(path)
    assert profile.throughput.sizes == (4,)


def test_a_bad_table_in_a_file_is_one_error_with_both_places(path: Path) -> None:
    table = path.parent / "tables" / "gpt.toml"
    assert refusal(path, WITH_FILE) == f"task 'gpt': {table}: no such file or directory"
    table.parent.mkdir()
    table.write_text(TABLE[:40])
    assert refusal(path, WITH_FILE).startswith(f"task 'gpt': {table}: ")
    table.write_text(TABLE.replace("dp = 2", "dp = 5").replace("workers = 4", "workers = 10"))
    assert refusal(path, WITH_FILE).startswith("task 'gpt': num_micro_batches = 12: ")
    assert refusal(path, WITH_FILE.replace('"tables/gpt.toml"', "3")) == (
        "task 'gpt': throughput.file = 3: must be the path of a table"
    )
    misspelt = WITH_FILE.replace("file =", "flie =")
    assert (
        refusal(path, misspelt) == "task 'gpt': unknown key throughput.flie; did you mean 'file'?"
    )
