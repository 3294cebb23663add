"""What the command line shows while it runs: lines in a log, bars on a terminal."""

import pytest

from controller.core.instructions import Announce, Level
from controller.service.progress_bars import ProgressBars


def iteration(number: int, loss: float = 2.5) -> Announce:
    facts = (("iteration", number), ("loss", loss))
    return Announce(1, "trace", "iteration", "gpt-a", f"iteration {number}: loss {loss}", facts)


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines on standard error; nothing may be on standard output."""
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> ProgressBars:
    """Progress of a run whose standard error is no terminal."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    return ProgressBars({"gpt-a": 30, "gpt-b": 30})


def test_a_log_has_a_line_for_every_announcement(
    log: ProgressBars, capsys: pytest.CaptureFixture[str]
) -> None:
    levels: list[Level] = ["info", "good", "warning", "error", "drill"]
    for number, level in enumerate(levels):
        log.observe(number / 8, Announce(1, level, "plan", "P-1", f"step {number}"))
    log.close()
    assert shown(capsys) == [
        "[   0.00s] P-1    step 0",
        "[   0.12s] P-1    step 1",
        "[   0.25s] P-1    step 2",
        "[   0.38s] P-1    step 3",
        "[   0.50s] P-1    step 4",
    ]


def test_traces_are_for_the_event_log_alone(
    log: ProgressBars, capsys: pytest.CaptureFixture[str]
) -> None:
    log.observe(1.0, Announce(1, "trace", "checkpoint", "gpt-a", "saved"))
    assert shown(capsys) == []


def test_a_log_shows_an_iteration_now_and_then(
    log: ProgressBars, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(1, 13):
        log.observe(float(number), iteration(number))
    assert shown(capsys) == [
        "[   5.00s] gpt-a  iteration 5: loss 2.5",
        "[  10.00s] gpt-a  iteration 10: loss 2.5",
    ]


def test_a_line_is_never_wrapped_and_its_brackets_are_no_markup(
    log: ProgressBars, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"[red]{'x' * 300}[/red] {{}} :smile:"
    log.show(1234.5, "a-long-source", text)
    assert shown(capsys) == [f"[1234.50s] a-long-source {text}"]


def test_a_terminal_shows_a_bar_for_each_task_below_the_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = ProgressBars({"gpt-a": 30, "gpt-b": 30})
    terminal.observe(1.0, iteration(7, loss=2.34567))
    terminal.observe(1.5, Announce(1, "error", "incident", "I-1", "rank 1 was killed"))
    terminal.close()
    text = capsys.readouterr().err
    assert "gpt-a" in text
    assert "gpt-b" in text
    assert "7/30" in text
    assert "loss 2.3457" in text
    assert "rank 1 was killed" in text
    assert "iteration 7" not in text
    assert "\x1b[?25h" in text  # the cursor is back


def test_a_run_without_an_end_has_no_bars(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    terminal = ProgressBars({"gpt-a": None})
    terminal.observe(1.0, iteration(5))
    terminal.close()
    [line] = shown(capsys)
    assert "iteration 5: loss 2.5" in line


def test_a_service_shows_its_own_times_and_an_iteration_after_a_pause(
    log: ProgressBars, capsys: pytest.CaptureFixture[str]
) -> None:
    service = ProgressBars({"gpt-a": None}, lambda at: f"day {at:g}", iteration_pause_s=10.0)
    for number in range(1, 31):
        service.observe(float(number), iteration(number))
    assert [line.partition(":")[0] for line in shown(capsys)] == [
        "[day 5] gpt-a  iteration 5", "[day 15] gpt-a  iteration 15", "[day 25] gpt-a  iteration 25",
    ]  # fmt: skip
