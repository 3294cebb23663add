"""Rehearsals on a real cluster begin with its present state; refusals are one line."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from controller.cli import main
from controller.core.cluster_spec import ClusterSpec, present_spec
from controller.core.rules.policy import Policy
from controller.core.specs import NodeSpec
from controller.simulation.policies.comparison import run_policy
from controller.simulation.policies.present_runs import check_policies, setup_of_cluster
from controller.simulation.scenarios.scenario import FaultRates
from controller.simulation.scenarios.scenario_file import load_scenario
from nodeagent.protocol.ids import NodeId
from profiles.records import RecordError
from tests.fakes.clusters import demo_machine
from tests.fakes.saved_runs import save_run
from tests.fakes.world import World
from tests.fakes.world_queries import all_run
from tests.unit.simulation.small import small

POLICY = Policy(is_auto_heal=True, worker_mtbf_s=100 * 3600.0, settle_s=0.5)


@pytest.fixture(scope="module")
def world() -> World:
    """A cluster of three nodes in service. The fourth was lost, and a plan was applied."""
    world = World(demo_machine(policy=POLICY), num_iterations=10**6)
    state = world.machine.state
    world.run_until(lambda: all_run(world))
    world.lose_node("n4")
    world.run_until(lambda: bool(state.plans.all))
    world.run_until(lambda: state.plans.executing() is None)
    return world


@pytest.fixture
def present(world: World) -> ClusterSpec:
    return present_spec(world.machine.state, world.machine.policy)


@pytest.fixture
def run(world: World, tmp_path: Path) -> Path:
    """The same, saved."""
    return save_run(world, tmp_path)


def test_a_rehearsal_begins_with_what_is_there(present: ClusterSpec) -> None:
    setup = setup_of_cluster(None, present)
    values = setup.scenario.values
    assert setup.split == {"gpt-a": 4, "gpt-b": 2}
    assert (values.nodes, values.standby_nodes, values.workers_per_node) == (3, 0, 2)
    assert setup.policy == POLICY
    assert [each.table for each in setup.profiles] == [task.table for task in present.tasks]
    assert [each.task.weight for each in setup.profiles] == [1.5, 1.0]
    assert setup.scenario.origins["tasks"] == "cluster"


def test_nodes_break_as_often_as_the_policy_says(present: ClusterSpec) -> None:
    faults = setup_of_cluster(None, present).scenario.values.faults
    assert isinstance(faults, FaultRates)
    # A node of two workers has a SEV1 fault every 50 hours: 480 in 1,000 days.
    assert faults.node_lost + faults.hardware == pytest.approx(480)
    assert [faults.process, faults.network] == pytest.approx([384, 1200])


def test_a_scenario_says_what_breaks_and_the_cluster_the_rest(present: ClusterSpec) -> None:
    scenario = small(('{ kind = "counts" }', '{ kind = "counts", node_lost = 3 }'))
    setup = setup_of_cluster(scenario, present)
    assert setup.scenario.values.faults == scenario.values.faults
    assert setup.scenario.values.days == scenario.values.days
    assert set(setup.split) == {"gpt-a", "gpt-b"}
    healed, approved = (run_policy(setup, name, 1) for name in ("unicron", "unicron-approved"))
    assert healed.waf > approved.waf > 0
    assert healed.num_incidents > 0
    whole = 3 * 2 * 2 * 24
    for account in (healed, approved):
        assert sum(account.gpu_hours.values()) == pytest.approx(whole)


def test_a_trace_of_ones_own_happens_to_the_cluster(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "mine.csv"
    lines = ["0,add,a", "0,add,b", "3600000,remove,b", "7200000,add,b", "36000000,remove,a"]
    trace.write_text("\n".join(lines) + "\n")
    assert main(["simulate", str(trace), "--state", str(run), "--seeds", "1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["scenario"], answer["origins"]["faults"]) == ("mine", "trace")
    account = answer["policies"]["unicron"]
    assert sum(account["gpu_hours"].values()) == pytest.approx(3 * 2 * 10)
    assert account["gpu_hours"]["repair"] == pytest.approx(2 * 1)
    trace.write_text("")
    assert main(["simulate", str(trace), "--state", str(run)]) == 2
    assert capsys.readouterr().err.startswith(f"unicron simulate: {trace}: ")


def refusal(spec: ClusterSpec) -> str:
    with pytest.raises(RecordError) as caught:
        setup_of_cluster(None, spec)
    return str(caught.value)


def test_what_can_not_be_rehearsed_is_told(present: ClusterSpec) -> None:
    nothing = "the cluster: no task trains there now, so there is nothing to simulate"
    assert refusal(replace(present, tasks=())) == nothing
    assert refusal(replace(present, nodes=())) == nothing
    other = NodeSpec(NodeId("n9"), "h", 8)
    assert refusal(replace(present, nodes=(*present.nodes, other))) == (
        "the cluster: its nodes have 2, 8 workers; all must have the same number"
    )
    assert refusal(replace(present, nodes=present.nodes[:2])) == (
        "the cluster: the tasks need 6 workers, 4 are available; if a plan waits for approval, apply it first"
    )


def test_baselines_that_need_more_than_a_table_are_refused(present: ClusterSpec) -> None:
    setup = setup_of_cluster(None, present)
    check_policies(["unicron", "unicron-approved", "megatron", "megatron-elastic"], setup)
    with pytest.raises(
        RecordError, match="--policy oobleck: needs models; with a cluster use one of"
    ):
        check_policies(["unicron", "oobleck"], setup)
    odd = replace(setup, split={"gpt-a": 3, "gpt-b": 2})
    with pytest.raises(RecordError, match="whole nodes, but gpt-a has 3 workers on nodes of 2"):
        check_policies(["megatron"], odd)


def test_the_command_rehearses_a_saved_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--state", str(run), "--seeds", "2", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["scenario"] == "cluster"
    assert answer["initial_split"] == {"gpt-a": 4, "gpt-b": 2}
    assert answer["policies"].keys() == {"unicron", "unicron-approved"}
    assert answer["ratios"]["unicron-approved"]["mean"] > 1
    assert answer["policies"]["unicron"]["plans"]["mean"] > 2
    assert main(["simulate", "trace-b", "--state", str(run), "--seeds", "1"]) == 0
    printed = capsys.readouterr().out
    assert "trace-b of the Unicron paper" in printed
    assert "on the 3 nodes of the cluster" in " ".join(printed.split())
    assert "unicron-approved" in printed


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["--state", "RUN/no"],
            "RUN/no: not a directory; name the directory of a controller's journal",
        ),
        (["--connect", "RUN/no"], "RUN/no: there is no controller's socket"),
        (["--state", "RUN", "--policy", "varuna"], "--policy varuna: needs models"),
        ([], "give a SCENARIO, or a cluster with --connect or --state; scenarios: byterobust-9600"),
    ],
)
def test_a_mistake_is_one_line(
    words: list[str], told: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *(word.replace("RUN", str(run)) for word in words)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"unicron simulate: {told.replace('RUN', str(run))}")


def test_a_cluster_that_has_commands_has_no_iterations_of_its_own(present: ClusterSpec) -> None:
    command = replace(present.tasks[0], flops_per_iteration=0.0, is_command=True)
    setup = setup_of_cluster(load_scenario("trace-b"), replace(present, tasks=(command,)))
    assert setup.profile("gpt-a").iteration_s(4) == 1.0
