"""Saved runs: they are read as they were written, and a refusal is one line."""

from pathlib import Path

import pytest

from controller.core.cluster_spec import present_spec
from controller.core.rules.policy import Policy
from controller.core.state.phases import NodeCondition
from controller.store.run_file import RunError, decode_spec, encode_spec, read_run
from nodeagent.protocol.ids import NodeId
from tests.fakes.clusters import demo_machine, spec_of
from tests.fakes.saved_runs import save_run, with_crc
from tests.fakes.world import World
from tests.fakes.world_queries import all_run


@pytest.fixture
def world() -> World:
    world = World(
        demo_machine(policy=Policy(is_auto_heal=True, worker_mtbf_s=1e6 / 3)), num_iterations=10**6
    )
    world.run_until(lambda: all_run(world))
    return world


def test_a_saved_run_is_read_back_as_it_was(tmp_path: Path, world: World) -> None:
    machine, replayed = read_run(save_run(world, tmp_path))
    assert machine.state == world.machine.state
    assert machine.policy == world.machine.policy
    assert replayed.num_events == len(world.events)


def test_a_cluster_spec_comes_back_alike() -> None:
    spec = spec_of(demo_machine())
    assert decode_spec(encode_spec(spec), "here") == spec


def test_the_present_is_what_is_in_service_and_has_workers(world: World) -> None:
    before = present_spec(world.machine.state, world.machine.policy)
    assert before == spec_of(world.machine)
    world.lose_node("n4")
    world.run_until(lambda: world.machine.state.plans.num_named == 1)
    now = present_spec(world.machine.state, world.machine.policy)
    assert [node.node for node in now.nodes] == ["n1", "n2", "n3"]
    assert {task.task: task.workers for task in now.tasks} == {"gpt-a": 4, "gpt-b": 2}
    assert now.machine().state.nodes.keys() == {NodeId("n1"), NodeId("n2"), NodeId("n3")}


def test_a_node_out_of_contact_is_present_and_an_isolated_gpu_is_not(world: World) -> None:
    world.cut("n1", 60.0)
    world.run(world.now + 5.0)
    state = world.machine.state
    assert state.nodes[NodeId("n1")].contact.condition is NodeCondition.UNREACHABLE
    state.nodes[NodeId("n2")].service.isolated_gpus[1] = "for a test"
    now = present_spec(state, world.machine.policy)
    assert {node.node: node.num_workers for node in now.nodes} == {
        "n1": 2, "n2": 1, "n3": 2, "n4": 2,
    }  # fmt: skip


def refusal(directory: Path) -> str:
    with pytest.raises(RunError) as caught:
        read_run(directory)
    [line] = str(caught.value).splitlines()
    assert line.startswith(str(directory))
    return line.removeprefix(str(directory))


def test_what_is_no_saved_run_is_told_in_one_line(tmp_path: Path) -> None:
    assert (
        refusal(tmp_path / "none")
        == ": not a directory; name the directory of a controller's journal"
    )
    assert refusal(tmp_path) == ": no run is saved there: it has no journal.jsonl"
    (tmp_path / "journal.jsonl").touch()
    empty = "/journal.jsonl: the file is empty: this run has no events"
    assert refusal(tmp_path) == empty
    assert refusal(tmp_path / "journal.jsonl").startswith(": not a directory")


def test_an_event_of_another_version_is_told_in_one_line(tmp_path: Path, world: World) -> None:
    save_run(world, tmp_path)
    with (tmp_path / "journal.jsonl").open("ab") as journal:
        journal.write(with_crc(b"[1,0.0,999]") + b"\n")
    number = len(world.events) + 2
    assert refusal(tmp_path) == f"/journal.jsonl, line {number}: unknown event 999"


def test_a_spec_of_another_version_is_told_in_one_line() -> None:
    text = encode_spec(spec_of(demo_machine())).replace(
        b'"num_workers":2', b'"num_workers":"two"', 1
    )
    with pytest.raises(RunError, match=r"here: not a run of this version: nodes\.0\.num_workers: "):
        decode_spec(text, "here")
