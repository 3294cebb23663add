"""``unicron simulate`` from its arguments to its output."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from controller.cli import main
from tests.unit.simulation.small import TEXT

_TERMINAL = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "20"}
FAULTS = 'faults = { kind = "counts", node_lost = 2, process = 3 }'


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """Return a small scenario in a file."""
    file = tmp_path / "mine.toml"
    file.write_text(TEXT.replace('faults = { kind = "counts" }', FAULTS))
    return file


def simulate(*arguments: str) -> int:
    return main(["simulate", *arguments])


def test_json_has_policies_and_ratios_and_repeats_byte_by_byte(
    scenario: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (
        str(scenario),
        "--policy",
        "unicron",
        "--policy",
        "megatron",
        "--seeds",
        "2",
        "--json",
    )
    assert simulate(*arguments) == 0
    first = capsys.readouterr().out
    answer = json.loads(first)
    assert answer["policies"].keys() == {"unicron", "megatron"}
    ratio = answer["ratios"]["megatron"]
    assert 1 < ratio["low"] <= ratio["mean"] <= ratio["high"]
    wafs = [answer["policies"][name]["waf"]["mean"] for name in ("unicron", "megatron")]
    assert wafs[0] / wafs[1] == pytest.approx(ratio["mean"], rel=0.05)
    assert answer["policies"]["unicron"].keys() >= {"ettr", "availability"}
    assert answer["days_used"] == pytest.approx(2.0)
    assert answer["days_cut"] == 0.0
    assert simulate(*arguments) == 0
    assert capsys.readouterr().out == first


def test_table_names_every_policy(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(str(scenario), "--seeds", "1") == 0
    printed = capsys.readouterr().out
    for name in ("unicron", "megatron-elastic", "oobleck", "varuna", "bamboo", "by-size"):
        assert name in printed
    assert not re.search(r"\d \(\d", printed)  # of one run there is no interval


def test_report_opens_without_a_network(
    scenario: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    assert simulate(str(scenario), "--seeds", "1", "--report", str(folder)) == 0
    assert "wrote the report to" in capsys.readouterr().err
    page = (folder / "index.html").read_text()
    assert page.count("<svg") == 2
    assert "http://" not in page
    assert "https://" not in page
    assert ">kind counts, " in page, "inputs are in words"
    assert json.loads((folder / "simulation.json").read_text())["scenario"] == "mine"


def test_a_size_beyond_all_measured_points_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--seeds", "1", "--policy", "equal")
    assert simulate("multi-task-1", *arguments) == 0
    assert "not measured" not in capsys.readouterr().out
    folder = tmp_path / "out"
    assert simulate("llama3-54d", *arguments, "--report", str(folder)) == 0
    told = "hroughput is estimated; not measured: more than 2,048 GPUs; expect larger errors"
    assert told in " ".join(capsys.readouterr().out.split())
    assert told in (folder / "index.html").read_text()
    answer = json.loads((folder / "simulation.json").read_text())
    assert answer["unmeasured"] == ["more than 2,048 GPUs"]


def test_report_never_replaces_a_file(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(str(scenario), "--report", str(scenario)) == 2
    assert "is a file; give a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("title = 3", "title: must be a text"),
        ("[", "not valid TOML"),
    ],
)
def test_bad_scenario_is_one_line(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    assert simulate(str(file)) == 2
    error = capsys.readouterr().err
    assert words in error
    assert str(file) in error
    assert error.count("\n") == 1


def test_hash_seeds_change_nothing() -> None:
    code = (
        "from controller.simulation.scenarios.scenario_file import load_scenario;"
        "from controller.simulation.world.event_sequence import draw_events;"
        "print(draw_events(load_scenario('spot-p3'), 1).events)"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


@pytest.mark.timeout(180)
def test_ctrl_c_prints_what_is_done_and_leaves_no_warning(tmp_path: Path) -> None:
    file = tmp_path / "long.toml"
    rates = 'faults = { kind = "rates", node_lost = 300.0, process = 300.0 }'
    text = TEXT.replace('faults = { kind = "counts" }', rates).replace("days = 2.0", "days = 60.0")
    file.write_text(text)
    code = (
        "import os, signal, sys\n"
        "from controller.cli import main\n"
        "from controller.simulation.policies import comparison\n"
        "def drawn(setup, jobs, note, real=comparison.run_jobs):\n"
        "    for done in real(setup, jobs, note):\n"
        "        yield done\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "comparison.run_jobs = drawn\n"
        f"sys.exit(main(['simulate', {str(file)!r}, '--policy', 'equal', '--policy', 'unicron']))\n"
    )
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 130, ended.stderr
    assert "equal" in ended.stdout
    assert "interrupted: of 5 seed(s) 1 was done" in ended.stderr
    assert "semaphore" not in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.timeout(180)
def test_a_long_run_shows_a_bar_with_an_estimate_and_ends_at_once(tmp_path: Path) -> None:
    file = tmp_path / "long.toml"
    rates = 'faults = { kind = "rates", node_lost = 300.0, process = 300.0 }'
    text = TEXT.replace('faults = { kind = "counts" }', rates)
    file.write_text(text.replace("days = 2.0", "days = 2000.0"))
    terminal, stderr = os.openpty()
    code = (
        f"import sys; from controller.cli import main; sys.exit(main(['simulate', {str(file)!r}]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=stderr, env=_TERMINAL
    )
    os.close(stderr)
    shown, is_ended = "", False
    try:
        with suppress(OSError):  # the end of a terminal
            while part := os.read(terminal, 4096):
                shown += part.decode("utf-8", "replace")
                if not is_ended and re.search(r"\d+%.*\d:\d\d:\d\d", shown):
                    is_ended = True
                    process.send_signal(signal.SIGINT)
        code_of_end = process.wait(60)
    finally:
        process.kill()
        os.close(terminal)
    assert code_of_end == 130, shown
    assert "interrupted" in shown
    assert "Traceback" not in shown
    assert "semaphore" not in shown


def test_ratios_need_unicron(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(str(scenario), "--policy", "megatron", "--seeds", "1") == 0
    assert "add --policy unicron" in capsys.readouterr().err


@pytest.mark.parametrize("seeds", ["٣", "1" * 5000, "0", "10001", "x"])
def test_seeds_are_ascii_digits(seeds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        simulate("trace-a", "--seeds", seeds)
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert "must be a whole number from 1 to 10000" in error
    assert "_seeds" not in error
