"""``unicron service`` with a stand-in for systemctl; the unit is read by systemd's own checker."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from controller.cli import main
from controller.service import service_cli
from controller.service.systemd_unit import ServiceOptions, unit_text
from tests.unit.operate.test_notify import CLUSTER

Capture = pytest.CaptureFixture[str]
SYSTEMCTL = """#!/bin/sh
echo "$*" >>"$PLACE/calls"
[ -e "$PLACE/refuses" ] && { echo "Job failed." >&2; echo "See the log." >&2; exit 1; }
case "$*" in *show*) cat "$PLACE/state" ;; esac
exit 0
"""
ACTIVE = """LoadState=loaded
UnitFileState=enabled
ActiveState=active
SubState=running
MainPID=77
NRestarts=2
StatusText=cluster demo
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a cluster file and a systemctl that notes its arguments."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "systemctl"
    program.write_text(SYSTEMCTL)
    program.chmod(0o755)
    (tmp_path / "key").touch()
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    (tmp_path / "state").write_text(ACTIVE)
    (tmp_path / "calls").touch()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("PLACE", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(service_cli, "_SYSTEM_UNITS", tmp_path / "system")
    monkeypatch.setattr(service_cli, "_LINGER", tmp_path / "linger")
    return tmp_path


def service(place: Path, action: str, *words: str) -> int:
    return main(["service", action, str(place / "cluster.toml"), *words])


def calls(place: Path) -> list[str]:
    return (place / "calls").read_text().splitlines()


def unit_in(place: Path) -> Path:
    return place / "config" / "systemd" / "user" / "unicron-demo.service"


def test_install_writes_a_unit_and_starts_it(place: Path, capsys: Capture) -> None:
    assert service(place, "install", "--auto-heal") == 0
    assert calls(place) == [
        "--user daemon-reload", "--user enable unicron-demo.service",
        "--user restart unicron-demo.service",
    ]  # fmt: skip
    text = unit_in(place).read_text()
    assert f"controller.cli run {place}/cluster.toml --auto-heal\n" in text
    assert "User=" not in text
    shown = capsys.readouterr().out
    assert f"{unit_in(place)} is written" in shown
    assert "loginctl enable-linger" in shown
    assert service(place, "install", "--auto-heal") == 0
    assert calls(place)[-1] == "--user start unicron-demo.service", (
        "it is not restarted for nothing"
    )
    assert "stays as it is" in capsys.readouterr().out
    assert service(place, "install") == 0
    assert calls(place)[-1] == "--user restart unicron-demo.service"
    assert "is replaced" in capsys.readouterr().out


def test_a_system_unit_runs_as_a_user(place: Path) -> None:
    assert service(place, "install", "--system", "--user", "train") == 0
    text = (place / "system" / "unicron-demo.service").read_text()
    assert "User=train\n" in text
    assert "WantedBy=multi-user.target\n" in text
    assert calls(place)[0] == "daemon-reload"


@pytest.mark.parametrize("words", [["--print"], ["--dry-run"]])
def test_a_look_changes_nothing(place: Path, capsys: Capture, words: list[str]) -> None:
    assert service(place, "install", *words) == 0
    assert calls(place) == []
    assert not (place / "config").exists()
    shown = capsys.readouterr().out
    assert ("[Service]" if words == ["--print"] else "restart unicron-demo.service") in shown


def test_a_unit_of_others_is_left_alone(place: Path, capsys: Capture) -> None:
    unit_in(place).parent.mkdir(parents=True)
    unit_in(place).write_text("[Unit]\n")
    assert service(place, "install") == 1
    assert "was not written by unicron" in capsys.readouterr().err
    assert unit_in(place).read_text() == "[Unit]\n"
    assert calls(place) == []


def test_uninstall_ends_it_and_says_that_training_continues(place: Path, capsys: Capture) -> None:
    assert service(place, "uninstall") == 1
    assert "there is no such unit" in capsys.readouterr().err
    service(place, "install")
    assert service(place, "uninstall", "--dry-run") == 0
    assert unit_in(place).exists()
    assert service(place, "uninstall") == 0
    assert not unit_in(place).exists()
    assert calls(place)[-2:] == [
        "--user disable --now unicron-demo.service",
        "--user daemon-reload",
    ]
    assert "training continues" in capsys.readouterr().out


def test_what_systemd_refuses_is_one_line(place: Path, capsys: Capture) -> None:
    (place / "refuses").touch()
    assert service(place, "install") == 1
    error = capsys.readouterr().err
    assert error.startswith(
        "unicron service: systemctl daemon-reload: Job failed.\\nSee the log.: see"
    )
    assert len(error.splitlines()) == 1
    assert service(place, "status") == 1
    assert "systemctl show: Job failed." in capsys.readouterr().err


def test_the_state_is_shown(place: Path, capsys: Capture) -> None:
    assert service(place, "status") == 0
    assert capsys.readouterr().out.splitlines() == [
        "unicron-demo.service is active (running), enabled, process 77, restarted 2 times",
        "cluster demo",
    ]
    assert service(place, "status", "--json") == 0
    assert json.loads(capsys.readouterr().out)["MainPID"] == "77"
    (place / "state").write_text("LoadState=not-found\nActiveState=inactive\n")
    assert service(place, "status") == 3
    assert capsys.readouterr().out == "unicron-demo.service is not installed\n"


def test_without_systemd_the_mend_is_said(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("PATH", str(place / "nothing"))
    assert service(place, "status") == 1
    assert "there is no systemctl on this machine" in capsys.readouterr().err
    assert service(place, "install", "--print") == 0


def test_wrong_options_and_files_change_nothing(place: Path, capsys: Capture) -> None:
    assert service(place, "install", "--user", "train") == 2
    assert "--user NAME belongs to --system" in capsys.readouterr().err
    (place / "cluster.toml").write_text("[cluster]\n")
    assert service(place, "install") == 2
    assert calls(place) == []


@pytest.mark.parametrize("name", ["cluster.toml", 'a "b" $HOME %n \\ c.toml'])
def test_systemd_finds_no_mistake_in_the_unit(tmp_path: Path, name: str) -> None:
    checker = shutil.which("systemd-analyze")
    if checker is None:
        pytest.skip("there is no systemd-analyze")
    text = unit_text(
        ServiceOptions(tmp_path / name, "demo", "root", True, {"XDG_STATE_HOME": "/var/lib/a b"})
    )
    unit = tmp_path / "unicron-demo.service"
    unit.write_text(text)
    done = subprocess.run(
        [checker, "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_words_reach_the_controller_as_they_are(tmp_path: Path) -> None:
    # systemd's own quoting is that of a shell here, but for doubled dollars and percent signs.
    name = 'a "b" $HOME %n \\ c.toml'
    text = unit_text(ServiceOptions(tmp_path / name, "demo", "", False, {}))
    (line,) = (line for line in text.splitlines() if line.startswith("ExecStart="))
    assert line == (
        f"ExecStart={sys.executable} -P -m controller.cli run"
        f' "{tmp_path}/a \\"b\\" $$HOME %%n \\\\ c.toml"'
    )
