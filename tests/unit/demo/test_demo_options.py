"""The demo's command line: defaults, and one clear line for every mistake."""

import argparse
from pathlib import Path

import pytest

from controller.demo.demo_arguments import add_arguments
from controller.demo.demo_options import DemoOptions, OptionError, check
from controller.demo.playground import demo_cluster
from controller.drills.drill_arguments import DrillArgumentError
from controller.localcluster.local_node import LocalNode, ServerKind
from controller.server.cluster_config import cluster_config
from controller.server.controller_config import ControllerConfig
from controller.settings.settings_file import SettingsError
from nodeagent.protocol.ids import NodeId, TaskId
from profiles.corpus import DataError
from profiles.task_profiles import ProfileError

EXAMPLES = Path(__file__).parents[3] / "examples"
WIDE = """\
[[task]]
name = "wide"
weight = 1.0
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


def options(*words: object) -> DemoOptions:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return check(parser.parse_args([str(word) for word in words]))


def config_of(chosen: DemoOptions, nodes: list[LocalNode], root: Path) -> ControllerConfig:
    return cluster_config(demo_cluster(chosen, nodes, root), chosen.policy)


def refusal(*words: str) -> str:
    with pytest.raises(OptionError) as caught:
        options(*words)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_defaults_are_four_nodes_of_two_workers_that_wait_for_an_operator() -> None:
    plain = options()
    assert (plain.num_nodes, plain.workers_per_node) == (4, 2)
    assert [profile.name for profile in plain.profiles] == ["gpt-a", "gpt-b"]
    assert (plain.seed, plain.num_iterations, plain.data_path) == (1, None, "")
    assert (plain.is_headless, plain.policy.is_auto_heal, plain.is_json) == (False, False, False)
    assert (plain.drills, plain.base_port, plain.sshd) == ([], None, "auto")
    assert plain.network == "loopback"
    assert (plain.event_log, plain.serve, plain.time_limit_s) == (None, None, None)


def test_a_headless_run_ends_without_being_told_when() -> None:
    assert options("--headless").num_iterations == 30
    assert options("--headless", "--iterations", "7").num_iterations == 7


def test_everything_that_is_given_is_taken(tmp_path: Path) -> None:
    tasks, text = tmp_path / "tasks.toml", tmp_path / "text.txt"
    tasks.write_text(WIDE)
    text.write_text("To be, or not to be. " * 20)
    given = options(
        "--nodes", "3", "--workers-per-node", "5", "--base-port", "2200", "--sshd", "asyncssh",
        "--tasks", str(tasks), "--data", str(text), "--seed", "7", "--iterations", "9",
        "--auto-heal", "--headless", "--json", "--drill", "lose-node@3:node=n3", "--drill",
        "kill-rank@5:rank=3", "--event-log", str(tmp_path / "events"), "--serve",
        str(tmp_path / "api.sock"), "--time-limit", "60.5",
    )  # fmt: skip
    assert (given.num_nodes, given.workers_per_node, given.base_port) == (3, 5, 2200)
    assert (given.sshd, given.data_path, given.seed) == ("asyncssh", str(text), 7)
    assert (given.num_iterations, given.time_limit_s) == (9, 60.5)
    assert given.policy.is_auto_heal
    assert given.is_headless
    assert given.is_json
    assert [profile.name for profile in given.profiles] == ["wide"]
    assert [(drill.kind, drill.task) for drill in given.drills] == [
        ("lose-node", TaskId("wide")),
        ("kill-rank", TaskId("wide")),
    ]
    assert given.drills[0].node == NodeId("n3")
    assert (given.event_log, given.serve) == (tmp_path / "events", tmp_path / "api.sock")


def test_a_relative_data_path_is_made_absolute_for_the_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text("To be, or not to be. " * 20)
    monkeypatch.chdir(tmp_path)
    assert options("--data", "text.txt").data_path == str(tmp_path / "text.txt")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--nodes", "0"), "--nodes 0: must be 1 to 64"),
        (("--nodes", "65"), "--nodes 65: must be 1 to 64"),
        (("--workers-per-node", "0"), "--workers-per-node 0: must be 1 to 16"),
        (("--workers-per-node", "17"), "--workers-per-node 17: must be 1 to 16"),
        (("--iterations", "0"), "--iterations 0: must be 1 to 1000000000"),
        (("--base-port", "1023"), "--base-port 1023: must be 1024 to 65531"),
        (("--base-port", "65532"), "--base-port 65532: must be 1024 to 65531"),
        (("--time-limit", "0"), "--time-limit 0.0: must be above 0"),
        (("--time-limit", "-1"), "--time-limit -1.0: must be above 0"),
        (("--time-limit", "nan"), "--time-limit nan: must be above 0"),
        (("--json",), "--json prints the outcome of a headless run: add --headless"),
        (("--nodes", "3"), "the tasks want 8 workers (gpt-a 4, gpt-b 4), but 3 nodes of 2 have 6"),
        (("--nodes", "8", "--workers-per-node", "1"), "raise --nodes or --workers-per-node"),
    ],
)
def test_an_option_out_of_range_is_named_with_what_is_allowed(
    words: tuple[str, ...], text: str
) -> None:
    assert text in refusal(*words)


def test_a_command_whose_directory_is_not_there_is_refused(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.toml"
    example = (EXAMPLES / "command" / "tasks.toml").read_text()
    tasks.write_text(example.replace("# cwd = ", "cwd = ").replace('cwd = "."', 'cwd = "code"'))
    with pytest.raises(ProfileError) as refused:
        options("--tasks", tasks)
    message = f"{tasks}: task 'command': command.cwd: there is no directory {tmp_path / 'code'}"
    assert str(refused.value).startswith(message)
    (tmp_path / "code").mkdir()
    options("--tasks", tasks)


def test_tasks_that_fit_in_number_but_in_no_node_are_refused(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.toml"
    tasks.write_text(WIDE + WIDE.replace('"wide"', '"wider"'))
    words = ("--tasks", str(tasks), "--nodes", "3", "--workers-per-node", "3")
    text = refusal(*words)  # 9 workers for 8 ranks, but only three pairs
    assert "do not fit into the nodes" in text
    assert text.endswith("raise --nodes or --workers-per-node")


def test_files_are_kept_only_in_a_new_or_an_empty_directory(tmp_path: Path) -> None:
    assert options("--keep", tmp_path / "kept").keep == tmp_path / "kept"
    (tmp_path / "file").touch()
    assert refusal("--keep", str(tmp_path)) == (
        f"--keep {tmp_path}: is not empty; choose an empty or a new directory"
    )


@pytest.mark.parametrize("option", ["--event-log", "--serve"])
def test_a_path_that_can_not_be_made_is_found_before_anything_starts(
    tmp_path: Path, option: str
) -> None:
    missing = tmp_path / "missing" / "file"
    assert refusal(option, str(missing)) == (
        f"{option} {missing}: there is no directory {missing.parent}; create it or choose another"
    )
    assert (
        refusal(option, str(tmp_path)) == f"{option} {tmp_path}: is a directory; give a file name"
    )


def test_mistakes_in_files_and_drills_have_errors_of_their_own(tmp_path: Path) -> None:
    with pytest.raises(ProfileError):
        options("--tasks", str(tmp_path / "none.toml"))
    with pytest.raises(DataError):
        options("--data", str(tmp_path / "none.txt"))
    with pytest.raises(DrillArgumentError, match="must come before the last iteration, 30"):
        options("--headless", "--drill", "kill-rank@30")
    with pytest.raises(DrillArgumentError, match="there are n1, n2, n3, n4"):
        options("--drill", "lose-node@3:node=n5")


def test_nodes_can_be_given_networks_of_their_own_and_then_be_cut_off() -> None:
    own = options("--namespaces", "--headless", "--drill", "partition@5")
    assert own.network == "namespaces"
    assert [drill.kind for drill in own.drills] == ["partition"]


def test_failure_domains_come_from_the_settings_and_name_nodes_that_there_are(
    tmp_path: Path,
) -> None:
    settings = tmp_path / "cluster.toml"
    settings.write_text('[failure_domains]\nrack-1 = ["n1", "n4"]\n')
    chosen = options("--settings", settings)
    assert chosen.failure_domains == {NodeId("n1"): "rack-1", NodeId("n4"): "rack-1"}
    with pytest.raises(SettingsError, match="no node 'n4'; nodes: n1, n2"):
        options("--settings", settings, "--nodes", "2", "--workers-per-node", "4")


def test_the_iterations_that_a_task_names_are_long_beside_those_that_follow_checkpoints(
    tmp_path: Path,
) -> None:
    tasks = tmp_path / "tasks.toml"
    tasks.write_text(WIDE.replace("workers = 4", "workers = 4\nlong_intervals = [30, 100]", 1))
    [spec] = config_of(options("--tasks", tasks), [], tmp_path).tasks
    assert spec.long_intervals == (5, 30, 100)
    assert spec.is_long(31)
    assert not spec.is_long(33)


@pytest.mark.parametrize(
    ("tasks", "has_template"),
    [("tasks.toml", True), ("command/tasks.toml", False)],
)
def test_where_all_tasks_are_commands_no_agent_starts_a_template(
    tmp_path: Path, tasks: str, *, has_template: bool
) -> None:
    node = LocalNode(
        NodeId("n1"), "127.0.0.1", 22, tmp_path, "me", tmp_path / "key", "ssh-ed25519 AAAA",
        ServerKind.OPENSSH, 2,
    )  # fmt: skip
    config = config_of(options("--tasks", EXAMPLES / tasks), [node], tmp_path)
    assert [address.has_template for address in config.addresses] == [has_template]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--nodes-only"], "--nodes-only writes a cluster file: add --dir DIR"),
        (["--dir", "new"], "--dir is for --nodes-only; --keep DIR keeps the files of a whole demo"),
        (
            ["--nodes-only", "--dir", "new", "--auto-heal"],
            "--auto-heal: --nodes-only starts no controller; give it to `unicron run`, or leave it out",
        ),
        (
            ["--sshd-config", "A b", "--sshd", "asyncssh"],
            "--sshd-config: asyncssh's server reads no sshd_config; leave --sshd out",
        ),
        (
            ["--sshd-config", "A b\nC d"],
            "--sshd-config: give one line; the option may be repeated",
        ),
    ],
)
def test_options_of_nodes_without_a_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError) as refused:
        options(*words)
    assert str(refused.value) == expected
