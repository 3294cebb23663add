"""Each planted misfit is found, and nothing else is."""

from dataclasses import replace

import pytest

from controller.bootstrap.node_facts import NodeFacts
from controller.check.check_findings import merged
from controller.check.fleet_findings import Survey, check_nodes, check_ring
from controller.check.host_check import check_limits
from controller.core.rules.policy import Policy
from profiles.command_task import CommandTask
from profiles.layout import Layout
from profiles.task_profiles import TaskProfile
from profiles.throughput import ThroughputPoint, ThroughputTable

FACTS = NodeFacts(
    (3, 12, 3), "x86_64", {"pydantic": "2.11", "torch": "2.13.0", "megatron-core": "0.16.1"}
)
GOOD = Survey(
    facts=FACTS,
    wanted_gpus=8,
    clock_ahead_s=0.02,
    clock_error_s=0.01,
    files=(1024, 524288),
    state_dir="/home/train",
    is_writable=True,
    free_bytes=50_000_000_000,
    gpus=8,
    reads_kernel_log=True,
)
FLEET = {f"n{number}": GOOD for number in range(1, 5)}


def with_package(name: str, version: str) -> NodeFacts:
    return replace(FACTS, packages={**FACTS.packages, name: version})


PLANTED = {
    "no room": ({"free_bytes": 5_000_000}, "error", "disk", "0.0 GB are free at /home/train"),
    "little room": ({"free_bytes": 1_500_000_000}, "warning", "disk", "1.5 GB are free"),
    "not writable": ({"is_writable": False}, "error", "disk", "can't be written by this user"),
    "clock behind": ({"clock_ahead_s": -300.0}, "warning", "clock", "300.0 s behind"),
    "clock ahead": ({"clock_ahead_s": 300.0}, "warning", "clock", "300.0 s ahead of"),
    "a GPU less": ({"gpus": 7}, "error", "gpus", "shows 7 GPUs, the cluster file gives it 8"),
    "driver hangs": ({"gpus": None}, "error", "gpus", "nvidia-smi does not answer"),
    "few files": ({"files": (256, 1024)}, "warning", "open files", "1024 files at most"),
    "no kernel log": ({"reads_kernel_log": False}, "warning", "kernel log", "faults are not seen"),
    "ends with its login": (
        {"ends_with_login": "KillUserProcesses=yes in logind.conf"}, "error", "login",
        "an agent that a login starts ends with it: KillUserProcesses=yes",
    ),
    "no data": ({"missing_paths": ("/data/text",)}, "error", "data", "there is no /data/text"),
    "other torch": (
        {"facts": with_package("torch", "2.12.0")}, "error", "versions",
        "torch 2.12.0, and torch 2.13.0 on n1 and 2 more",
    ),
    "other megatron": (
        {"facts": with_package("megatron-core", "0.19.0")}, "error", "versions", "megatron-core 0.19.0",
    ),
    "other Python": (
        {"facts": replace(FACTS, python=(3, 11, 7))}, "error", "versions", "Python 3.11, and Python 3.12",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "level", "subject", "text"), PLANTED.values(), ids=PLANTED)
def test_one_misfit_on_one_node_is_found_there_alone(
    changes: dict[str, object], level: str, subject: str, text: str
) -> None:
    fleet = {**FLEET, "n3": replace(GOOD, **changes)}  # type: ignore[arg-type]
    [found] = check_nodes(fleet, clock_limit_s=1.0)
    assert (found.level, found.subject, found.nodes) == (level, subject, ("n3",))
    assert text in found.text
    assert found.advice


def test_a_good_fleet_has_no_findings() -> None:
    assert list(check_nodes(FLEET, clock_limit_s=1.0)) == []
    patched = replace(GOOD, facts=replace(FACTS, python=(3, 12, 9)))
    assert list(check_nodes({**FLEET, "n2": patched}, clock_limit_s=1.0)) == []


def test_the_same_on_several_nodes_is_one_finding() -> None:
    blind = replace(GOOD, reads_kernel_log=False)
    fleet = {**FLEET, "n1": blind, "n4": replace(blind, free_bytes=1)}
    found = merged(check_nodes(fleet, clock_limit_s=1.0))
    assert [(each.subject, each.nodes) for each in found] == [
        ("kernel log", ("n1", "n4")), ("disk", ("n4",)),
    ]  # fmt: skip


def test_a_slow_answer_is_no_wrong_clock() -> None:
    slow = replace(GOOD, clock_ahead_s=4.0, clock_error_s=3.5)
    assert list(check_nodes({"n1": slow}, clock_limit_s=1.0)) == []


def command(**changes: object) -> TaskProfile:
    point = ThroughputPoint(workers=1, flops_per_s=1.0, layout=Layout())
    return TaskProfile(
        name="c",
        weight=1,
        workers=1,
        min_workers=1,
        command=CommandTask(argv=("true",), **changes),  # type: ignore[arg-type]
        throughput=ThroughputTable(points=(point,)),
    )


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ({"judge_interval_s": 0.5}, "judge_interval_s = 0.5: an unreachable node is judged before"),
        ({"refusal_grace_s": 1.0}, "refusal_grace_s = 1: a node whose SSH server restarts"),
        ({"unreachable_limit_s": 8.0}, "unreachable_limit_s = 8: a node that answers is given up"),
        ({"uncorroborated_limit_s": 50.0}, "uncorroborated_limit_s = 50: a node of which nothing"),
        ({"takeover_grace_s": 1.0}, "takeover_grace_s = 1: a new controller gives nodes up"),
        ({"join_limit_s": 4.0}, "join_limit_s = 4: a new node is lost before"),
    ],
)
def test_limits_of_nodes_that_do_not_fit(policy: dict[str, float], text: str) -> None:
    [found] = check_limits(Policy(**policy), [], "gloo")  # type: ignore[arg-type]
    assert text in found.text
    assert found.advice.startswith("policy: ")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"hang_limit_s": 900.0}, "hang_limit_s = 900: torch ends a collective after 600 s (nccl)"),
        ({"env": {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "60"}}, "NCCL's watchdog ends the process"),
        ({"start_limit_s": 2.0}, "a start is given up before"),
    ],
)
def test_limits_of_a_command_that_do_not_fit(changes: dict[str, object], text: str) -> None:
    [found] = check_limits(Policy(), [command(**changes)], "nccl")
    assert text in found.text


def test_the_limits_that_nobody_changed_fit() -> None:
    for backend in ("gloo", "nccl"):
        assert list(check_limits(Policy(), [command()], backend)) == []


PLACES = {f"n{number}": f"10.1.0.{number}" for number in range(1, 5)}
RING = [("n1", "n2"), ("n2", "n3"), ("n3", "n4"), ("n4", "n1")]
ALL = [*RING, *((target, source) for source, target in RING)]


@pytest.mark.parametrize(
    ("failing", "nodes", "text"),
    [
        ([("n2", "n3"), ("n4", "n3")], ("n3",), "n2 and n4 can't connect to it at 10.1.0.3: refused"),
        ([("n3", "n2"), ("n3", "n4")], ("n3",), "it can't connect to n2 and n4; they can"),
        (
            [("n2", "n3"), ("n4", "n3"), ("n3", "n2"), ("n3", "n4")], ("n3",),
            "n2 and n4 can't connect to it at 10.1.0.3, nor it to them: refused",
        ),
        ([("n1", "n2")], ("n1", "n2"), "n1 can't connect to n2 at 10.1.0.2: refused; n2 can to n1"),
        ([("n1", "n2"), ("n2", "n1")], ("n1", "n2"), "refused; nor n2 to n1"),
        (ALL, ("n1", "n2", "n3", "n4"), "no node can connect to another one: refused"),
    ],
)  # fmt: skip
def test_the_ring_says_which_direction_fails(
    failing: list[tuple[str, str]], nodes: tuple[str, ...], text: str
) -> None:
    outcomes = {pair: "refused" if pair in failing else "" for pair in ALL}
    [found] = check_ring(outcomes, PLACES)
    assert (found.level, found.subject, found.nodes) == ("error", "training network", nodes)
    assert text in found.text


def test_a_ring_that_is_whole_or_has_two_nodes() -> None:
    assert list(check_ring(dict.fromkeys(ALL, ""), PLACES)) == []
    [found] = check_ring({("n1", "n2"): "", ("n2", "n1"): "refused"}, PLACES)
    assert found.text == "n2 can't connect to n1 at 10.1.0.1: refused; n1 can to n2"
    two = check_ring(
        {pair: "refused" if "n2" in pair or pair[1] == "n4" else "" for pair in ALL}, PLACES
    )
    assert [each.nodes for each in two] == [("n2",), ("n4",)]
