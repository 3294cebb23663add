"""Saved runs: they are read as they were written, and a refusal is one line."""

from dataclasses import replace
from pathlib import Path

import pytest

from controller.core.cluster_spec import present_spec, spec_of
from controller.core.rules.policy import Policy
from controller.core.state.phases import NodeCondition
from controller.store.replay import fingerprint
from controller.store.run_file import RunError, decode_spec, encode_spec, read_run, save_spec
from nodeagent.protocol.ids import NodeId
from tests.fakes.clusters import demo_machine
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


def test_what_a_run_is_of_is_private_and_comes_back_alike(tmp_path: Path) -> None:
    spec = spec_of(demo_machine())
    save_spec(spec, tmp_path)
    save_spec(spec, tmp_path)
    [file] = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    again = decode_spec(file.read_bytes(), "run.json")
    assert again == spec
    assert fingerprint(again.machine()) == fingerprint(demo_machine())


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


def test_what_is_no_saved_run_is_told_in_one_line(tmp_path: Path, world: World) -> None:
    assert (
        refusal(tmp_path / "none")
        == ": not a directory; name the directory of a controller's journal"
    )
    assert refusal(tmp_path) == ": no run is saved there: it has no run.json"
    save_spec(spec_of(world.machine), tmp_path)
    assert refusal(tmp_path) == ": no run is saved there: it has no journal.jsonl"
    (tmp_path / "journal.jsonl").touch()
    empty = "/journal.jsonl: the file is empty: this run has no events"
    assert refusal(tmp_path) == empty
    assert refusal(tmp_path / "run.json").startswith(": not a directory")


def test_a_size_that_its_table_does_not_list_is_told_in_one_line(
    tmp_path: Path, world: World
) -> None:
    save_run(world, tmp_path)
    spec = spec_of(world.machine)
    tasks = (replace(spec.tasks[0], workers=200), *spec.tasks[1:])
    save_spec(replace(spec, tasks=tasks), tmp_path)
    assert refusal(tmp_path) == "/run.json: 200"


def test_a_run_of_another_version_is_told_in_one_line(tmp_path: Path, world: World) -> None:
    save_run(world, tmp_path)
    spec = spec_of(world.machine)
    save_spec(replace(spec, policy=Policy(settle_s=9.0)), tmp_path)
    assert "journal.jsonl: the journal was written under another policy" in refusal(tmp_path)
    text = encode_spec(spec).replace(b'"num_workers":2', b'"num_workers":"two"', 1)
    (tmp_path / "run.json").write_bytes(text)
    words = refusal(tmp_path)
    assert words.startswith("/run.json: not a run of this version: nodes.0.num_workers: ")
    (tmp_path / "run.json").write_bytes(encode_spec(replace(spec, nodes=spec.nodes[:1])))
    assert refusal(tmp_path).startswith("/run.json: the tasks need 8 workers, 2 are available")
    save_spec(spec, tmp_path)
    with (tmp_path / "journal.jsonl").open("ab") as journal:
        journal.write(with_crc(b'{"n": 1, "at": 0, "type": "Foreseen", "body": {}}') + b"\n")
    number = len(world.events) + 2
    assert refusal(tmp_path) == f"/journal.jsonl, line {number}: unknown event 'Foreseen'"
