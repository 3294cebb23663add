"""The settings file: settings, and one clear line for each mistake."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

from controller.cli import main
from controller.core.rules.approval import ApprovalRule
from controller.core.rules.policy import Policy
from controller.settings.explain_policy import rules, settings_of, statuses
from controller.settings.settings_file import SettingsError, load_policy
from profiles.faults.status_table import default_statuses
from tests.fakes.text_files import settings_file


def test_what_is_not_given_keeps_its_default(tmp_path: Path) -> None:
    path = settings_file(tmp_path, "[policy]\nrestarts = 5\nnetwork_window_s = 60\n")
    assert load_policy(path) == Policy(restarts=5, network_window_s=60.0)
    assert load_policy(settings_file(tmp_path, "")) == Policy()


def test_single_steps_of_a_transition_can_be_set(tmp_path: Path) -> None:
    policy = load_policy(settings_file(tmp_path, '[policy.step_s]\n"first iteration" = 30\n'))
    assert policy.step_s == {**Policy().step_s, "first iteration": 30.0}


def test_the_command_line_overrules_the_file(tmp_path: Path) -> None:
    path = settings_file(tmp_path, "[policy]\nis_auto_heal = false\n")
    assert load_policy(path, is_auto_heal=True).is_auto_heal


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[policy]\nrestart = 3\n", "policy.restart: unknown key; did you mean 'restarts'?"),
        ("[policy]\nrestarts = 0\n", "policy.restarts: 0 must be a whole number of 1 or more"),
        ("[policy]\nrestarts = 2.5\n", "policy.restarts: 2.5 must be a whole number"),
        ("[policy]\nrestarts = true\n", "policy.restarts: True must be a number"),
        ("[policy]\nsettle_s = -1\n", "policy.settle_s: -1 must be above 0"),
        ("[policy]\nsettle_s = nan\n", "policy.settle_s: nan must be above 0 and below 1e+15"),
        ("[policy]\nsettle_s = inf\n", "policy.settle_s: inf must be above 0 and below 1e+15"),
        (f"[policy]\nsettle_s = 1{'0' * 400}\n", "policy.settle_s: 10000000000000000000 must be"),
        (
            "[policy]\nlook_interval_s = 1e-9\n",
            "policy.look_interval_s: 1e-09 must be 0.01 or more",
        ),
        ('[policy]\nsettle_s = "1"\n', "policy.settle_s: '1' must be a number"),
        ("[policy]\nis_auto_heal = 1\n", "policy.is_auto_heal: 1 must be true or false"),
        ("[policy.step_s]\nsleep = 1\n", "policy.step_s: must give seconds for"),
        ("[policy.step_s]\npark = 0\n", "policy.step_s.park: 0 must be above 0"),
        ("policy = 3\n", "policy must be a section"),
        ("[polices]\n", "unknown section [polices]"),
        ("[policy\n", "not valid TOML"),
        ("\x00", "not valid TOML"),
    ],
)
def test_a_mistake_is_one_line_that_names_file_and_place(
    tmp_path: Path, text: str, says: str
) -> None:
    path = settings_file(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load_policy(path)
    assert str(path) in str(caught.value)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="not valid TOML"):
        load_policy(path)
    with pytest.raises(SettingsError, match="no such file"):
        load_policy(tmp_path / "missing.toml")


def test_every_status_and_every_setting_is_explained() -> None:
    assert {row["status"] for row in statuses()} == default_statuses().keys() - {"none"}
    settings = settings_of(Policy())
    names = [field.name for field in fields(Policy) if field.name != "approvals"]
    assert [one.name for one in settings] == names
    assert not [one.name for one in settings if len(one.meaning) < 20]


def test_rules_about_approvals_are_explained_in_words() -> None:
    approvals = (
        ApprovalRule("never", severity=("SEV2", "SEV3"), tasks=("gpt",)),
        ApprovalRule("ask", 60.0, moves_over=0.25, hours="22:00-06:00"),
        ApprovalRule("auto"),
    )
    told = rules(Policy(approvals=approvals, storm_plans=9, storm_lost_share=0.3, auto_after_s=5.0))
    assert told[:5] == [
        (
            "Approval 1: plans of SEV2 or SEV3 that interrupt gpt are rejected, and their incidents"
            " wait for an operator."
        ),
        (
            "Approval 2: plans that interrupt over 25% of the workers within 22:00-06:00 UTC wait for"
            " an operator's approval, 60 s at most."
        ),
        "Approval 3: plans are applied without approval.",
        (
            "Plans wait for an operator's approval. Until then a task trains with its complete"
            " replicas. One that nobody has decided on is applied after 5 s; `unicron defer` gives"
            " more time."
        ),
        (
            "Automation stops once 9 plans were applied by it within an hour, or more than 30% of the"
            " workers are lost within an hour. Then each plan waits for an operator, until `unicron"
            " resume`."
        ),
    ]


def test_the_policy_of_a_cluster_file_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cluster.toml"
    (tmp_path / "key").write_text("")
    path.write_text(
        '[cluster]\nname = "x"\ncheckpoint_dir = "c"\n[[nodes]]\nhosts = "h"\nworkers = 1\n'
        'identity = "key"\n[policy]\nnetwork_alerts = 7\n[[approval]]\nthen = "never"\n'
        '[[task]]\nname = "t"\nweight = 1\nworkers = 1\nmin_workers = 1\n[task.command]\n'
        'argv = ["true"]\n[task.throughput]\n'
        "points = [{ workers = 1, flops_per_s = 1.0, layout = { dp = 1 } }]\n"
    )
    assert main(["policy", "explain", "--cluster", str(path)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Approval 1: plans are rejected, and their incidents wait for an operator." in told
    assert "7 network faults of one node" in told
    path.write_text("[cluster]\n[polcy]\n")
    assert main(["policy", "explain", "--cluster", str(path)]) == 2
    errors = capsys.readouterr().err
    assert "did you mean 'policy'?" in errors
    assert errors.count("\n") == 1


def test_explain_prints_the_settings_that_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = settings_file(tmp_path, "[policy]\nnetwork_alerts = 7\n")
    assert main(["policy", "explain", "--settings", str(path)]) == 0
    assert "7 network faults of one node" in capsys.readouterr().out
    assert main(["policy", "explain", "--settings", str(path), "--json"]) == 0
    explained = json.loads(capsys.readouterr().out)
    assert explained["policy"]["network_alerts"] == 7
    by_status = {row["status"]: row for row in explained["statuses"]}
    assert by_status["ecc_error"]["action"] == "reconfigure"
    assert by_status["nccl_timeout"]["severity"] == "SEV3"


def test_explain_says_that_a_rehearsal_asks_before_everything() -> None:
    found = rules(Policy(is_rehearsal=True, is_auto_heal=True))
    assert found[0].startswith("A rehearsal: each cure of a fault is recorded and waits")
    assert not any("applied without approval" in rule for rule in found)


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (Policy(), "An operator is asked first"),
        (Policy(is_auto_heal=True), "While no other node is in contact, an operator is asked"),
        (Policy(is_auto_heal=True, asks_before_loss=True), "An operator is asked first"),
    ],
)
def test_explain_says_who_decides_about_a_node_that_nobody_sees(policy: Policy, text: str) -> None:
    [rule] = [rule for rule in rules(policy) if "runs on that node alone" in rule]
    assert "after 300 s" in rule
    assert text in rule


def test_explain_gives_the_floors_below_which_no_forming_and_no_last_save_is_a_hang() -> None:
    policy = Policy(slow_factor=3.0, recovering_limit_s=7.0, start_limit_s=99.0)
    [forming] = [rule for rule in rules(policy) if rule.startswith("While a generation forms")]
    assert "earlier transitions of the same kind, at least 21 s." in forming
    [saving] = [rule for rule in rules(policy) if "an iteration that saves" in rule]
    assert "an iteration that saves, at least 99 s." in saving


def test_explain_refuses_wrong_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "explain", "--settings", str(tmp_path / "no.toml")]) == 2
    assert "no such file" in capsys.readouterr().err
