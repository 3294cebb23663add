"""The main job, end to end: real sshd, real agents, real ranks."""

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from controller.store.run_file import read_run
from tests.fakes.demo_runs import NUM_ITERATIONS, DemoRun, Record, events_of

pytestmark = [pytest.mark.drill, pytest.mark.ranks, pytest.mark.ssh, pytest.mark.timeout(600)]


def losses(run: DemoRun) -> dict[str, Mapping[str, float]]:
    tasks: Any = run.outcome["tasks"]
    return {task["name"]: task["losses"] for task in tasks}


def at(event: Record) -> float:
    return float(str(event["at"]))


def layout_change(run: DemoRun, task: str) -> float:
    """Return when the task first started with another size than at first; never is infinity."""
    starts = [event for event in run.of_kind("start") if event["source"] == task]
    changed = [at(event) for event in starts if event["workers"] != starts[0]["workers"]]
    return min(changed, default=float("inf"))


def test_a_run_without_faults_reports_every_iteration_once(undisturbed: DemoRun) -> None:
    assert undisturbed.code == 0, undisturbed.stderr
    assert not undisturbed.incidents
    for task, by_iteration in losses(undisturbed).items():
        assert list(by_iteration) == [str(number) for number in range(1, NUM_ITERATIONS + 1)]
        reported = [e["iteration"] for e in undisturbed.of_kind("iteration") if e["source"] == task]
        assert reported == list(range(1, NUM_ITERATIONS + 1))


def test_training_learns(undisturbed: DemoRun) -> None:
    for by_iteration in losses(undisturbed).values():
        assert 5.4 < by_iteration["1"] < 5.7, "ln 256 is where a byte model begins"
        assert by_iteration[str(NUM_ITERATIONS)] < by_iteration["1"] - 0.3


def test_standard_output_is_one_json_object(undisturbed: DemoRun) -> None:
    assert undisturbed.stdout.count("\n") == 1
    assert undisturbed.stdout.startswith("{")


def test_both_faults_are_named_and_healed(main_job: DemoRun) -> None:
    assert main_job.code == 0, main_job.stderr
    killed, lost = main_job.incidents
    assert (killed["status"], killed["severity"]) == ("exited_abnormally", "SEV2")
    assert (killed["task"], killed["node"], killed["rank"]) == ("gpt-a", "n1", 1)
    assert killed["action"] == "restart"
    assert (lost["status"], lost["severity"]) == ("lost_connection", "SEV1")
    assert (lost["node"], lost["action"]) == ("n2", "reconfigure")
    for incident in (killed, lost):
        assert incident["fault_at"] <= incident["detected_at"] < incident["resolved_at"]
        assert incident["recovery_s"] > 0
        assert incident["state_source"] in {"own", "peer"}
        computed = incident["recomputed_micro_batches"], incident["saved_micro_batches"]
        assert min(computed) >= 0
        assert sum(computed) <= 24, "both tasks have twelve in an iteration"


def test_the_log_tells_what_each_edge_did(main_job: DemoRun) -> None:
    rooms = {str(line["logger"]).split(".")[1] for line in main_job.log}
    assert rooms >= {"api", "fleet", "server", "store"}
    assert all({"ts", "level", "logger", "message"} <= line.keys() for line in main_job.log)
    by_message = {str(line["message"]): line for line in main_job.log}
    for message, keys in (
        ("server is ready", {"cluster", "socket"}),
        ("journal opened", {"path", "bytes"}),
        ("API is listening", {"socket"}),
        ("agent copied", {"node", "version", "files"}),
        ("session opened", {"node", "agent", "pid", "ranks"}),
        ("contact lost", {"node", "reason"}),
        ("command sent", {"node", "command", "kind", "task", "generation"}),
        ("instruction carried out", {"instruction", "cause", "task", "generation", "nodes"}),
        ("timer set", {"timer", "after_s"}),
        ("rendezvous file opened", {"task", "generation", "path"}),
        ("server stopped", {"cluster"}),
    ):
        assert keys <= by_message[message].keys(), message
    assert by_message["contact lost"]["node"] == "n2", "the node that a drill takes away"
    assert {line["level"] for line in main_job.log} >= {"debug", "info", "error"}


def test_the_log_has_no_secrets_and_no_control_characters(main_job: DemoRun) -> None:
    texts = [value for line in main_job.log for value in line.values() if isinstance(value, str)]
    assert all(text.isprintable() for text in texts)
    assert not any("PRIVATE KEY" in text or "ssh-ed25519" in text for text in texts)


def test_the_kept_journal_gives_the_outcome_again(main_job: DemoRun) -> None:
    kept = main_job.directory / "kept"
    machine, _ = read_run(kept)
    replayed = [
        (each.name, each.cause.status, each.cause.action, each.state.value)
        for each in machine.state.incidents.all
    ]
    assert replayed == [
        (each["id"], each["status"], each["action"], each["state"]) for each in main_job.incidents
    ]
    assert events_of(kept / "events.jsonl") == main_job.events


def test_logs_of_agents_and_ranks_are_kept_and_keys_are_not(main_job: DemoRun) -> None:
    kept = main_job.directory / "kept"
    assert "agent" in (kept / "n1" / "agent.log").read_text()
    assert {path.name for path in kept.glob("n1/ranks/*.log")} >= {
        "gpt-a.1.0.log", "gpt-a.1.1.log", "gpt-a.2.1.log",
    }, "rank 1 was killed, and its log outlives it"  # fmt: skip
    files = [path for path in kept.rglob("*") if path.is_file()]
    assert not [path for path in files if "PRIVATE KEY" in path.read_text(errors="replace")]
    assert not (kept / "checkpoints").exists()


def test_without_log_options_a_run_prints_its_progress_alone(out_of_sight: DemoRun) -> None:
    assert not out_of_sight.log
    assert not [line for line in out_of_sight.stderr.splitlines() if not line.startswith("[")]


def test_the_plan_divides_what_is_left(main_job: DemoRun) -> None:
    plans: Any = main_job.outcome["plans"]
    # When the first task has finished, the other may grow into its workers for its last iterations.
    plan, *later = plans
    assert [one["assignments"] for one in later] in ([], [{"gpt-a": 4}], [{"gpt-b": 4}])
    final = plan["assignments"] | {name: 4 for one in later for name in one["assignments"]}
    assert plan["state"] == "applied"
    assert plan["approved_by"] == "policy auto-heal"
    # Which of the two gives way hangs on how fast each was found to be, and how soon it will be
    # done.
    assert plan["assignments"] in ({"gpt-a": 4, "gpt-b": 2}, {"gpt-a": 2, "gpt-b": 4})
    assert plan["waf_after"] < plan["waf_before"]
    tasks: Any = main_job.outcome["tasks"]
    layouts = {task["name"]: task["layout"] for task in tasks}
    assert layouts["gpt-a"] == {"tp": 1, "pp": 1, "dp": final["gpt-a"]}
    num_of_b = final["gpt-b"]
    assert layouts["gpt-b"] == {"tp": 2, "pp": 1, "dp": num_of_b // 2}


def test_losses_equal_those_of_the_undisturbed_run(main_job: DemoRun, undisturbed: DemoRun) -> None:
    expected = losses(undisturbed)
    changed_at = {task: layout_change(main_job, task) for task in expected}
    seen = 0
    for event in main_job.of_kind("iteration"):
        task, iteration = str(event["source"]), str(event["iteration"])
        is_same_layout = at(event) < changed_at[task]
        assert event["loss"] == pytest.approx(
            expected[task][iteration], rel=1e-6 if is_same_layout else 1e-4
        )
        seen += 1
    assert seen == 2 * NUM_ITERATIONS


def test_no_iteration_is_run_again_and_each_is_reported_once(main_job: DemoRun) -> None:
    for task in ("gpt-a", "gpt-b"):
        lines = [e for e in main_job.of_kind("iteration") if e["source"] == task]
        first = [e["iteration"] for e in lines if not e["is_rerun"]]
        assert first == list(range(1, NUM_ITERATIONS + 1))
    # Survivors had the state of every iteration that was committed.
    assert not any(e["is_rerun"] for e in main_job.of_kind("iteration"))
    assert not main_job.of_kind("loss_mismatch")


def test_each_iteration_follows_its_checkpoint(main_job: DemoRun) -> None:
    """Within one generation iterations are consecutive, beginning after what was resumed."""
    for task in ("gpt-a", "gpt-b"):
        lines = [e for e in main_job.of_kind("iteration") if e["source"] == task]
        for generation, group in itertools.groupby(lines, key=lambda e: e["generation"]):
            numbers = [int(str(e["iteration"])) for e in group]
            [resumed] = [
                int(str(e["iteration"]))
                for e in main_job.of_kind("resume")
                if e["source"] == task and e["generation"] == generation
            ]
            assert numbers == list(range(resumed + 1, resumed + 1 + len(numbers)))


def test_losing_sight_costs_no_training(out_of_sight: DemoRun) -> None:
    assert out_of_sight.code == 0, out_of_sight.stderr
    assert [one["reason"] for one in out_of_sight.incidents] == []
    assert not out_of_sight.outcome["plans"]
    started = out_of_sight.of_kind("rank_started")
    assert len(started) == 8, "every rank was started once: no process was replaced"
    assert len({e["pid"] for e in started}) == 8
    assert {e["source"] for e in out_of_sight.of_kind("unreachable")} == {"n1", "n2"}
    [takeover] = out_of_sight.of_kind("takeover")
    assert takeover["term"] == 2


def test_losing_sight_loses_and_doubles_no_event(
    out_of_sight: DemoRun, undisturbed: DemoRun
) -> None:
    for task, expected in losses(undisturbed).items():
        lines = [e for e in out_of_sight.of_kind("iteration") if e["source"] == task]
        assert [e["iteration"] for e in lines] == list(range(1, NUM_ITERATIONS + 1))
        for event in lines:
            assert event["loss"] == pytest.approx(expected[str(event["iteration"])], rel=1e-6)
        saved = [e["iteration"] for e in out_of_sight.of_kind("checkpoint") if e["source"] == task]
        assert saved == [5, 10, NUM_ITERATIONS]


def test_ranks_are_forked_from_the_warm_template(undisturbed: DemoRun) -> None:
    assert all(e["is_warm"] for e in undisturbed.of_kind("rank_started"))
