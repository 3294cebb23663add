"""The log options of long-running commands."""

import argparse
import io
import json
import logging
import sys
from pathlib import Path

import pytest

from console.cli import log_problem, main as console_main
from controller.cli import main
from controller.logs.log_options import (
    LogOptionError,
    LogOptions,
    add_logging_arguments,
    log_arguments,
    log_options,
    logging_to,
)

LOG = logging.getLogger("controller.fleet.test")
COMMANDS = (["demo", "--headless"], ["drill", "matrix", "--only", "kill-rank"])


def parsed(*words: str) -> LogOptions:
    parser = argparse.ArgumentParser()
    add_logging_arguments(parser)
    return log_options(parser.parse_args(words))


def test_lines_are_appended_to_the_file_which_only_its_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for number in (1, 2):
        with logging_to(parsed("--log-file", str(path))):
            LOG.info("started: number=%d", number)
            LOG.debug("detail: number=%d", number)
    assert [line.rpartition("number=")[2] for line in path.read_text().splitlines()] == ["1", "2"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_json_is_one_object_a_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    words = ("--log-format", "json", "--log-level", "debug", "--log-file", str(path))
    with logging_to(parsed(*words)):
        LOG.debug("started: node=%s", "n1")
    [line] = [json.loads(line) for line in path.read_text().splitlines()]
    assert (line["level"], line["message"], line["node"]) == ("debug", "started", "n1")


def test_standard_error_gets_warnings_and_no_announcements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with logging_to(parsed()):
        monkeypatch.setattr(sys, "stderr", shown := io.StringIO())  # as progress bars do
        LOG.info("fine: node=%s", "n1")
        LOG.warning("bad: node=%s", "n1")
        logging.getLogger("controller.server.announcements").error("shown elsewhere: cause=%d", 1)
    LOG.warning("after the end: node=%s", "n1")
    [line] = shown.getvalue().splitlines()
    assert line.endswith("WARNING controller.fleet.test: bad node=n1")


def test_other_packages_log_warnings_alone(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with logging_to(parsed("--log-level", "debug", "--log-file", str(path))):
        logging.getLogger("asyncssh").info("key exchange")
        logging.getLogger("asyncssh").warning("trouble")
    [line] = path.read_text().splitlines()
    assert line.endswith("WARNING asyncssh: trouble")


def test_without_a_terminal_of_its_own_a_command_logs_to_a_file_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with logging_to(parsed(), owns_terminal=False):
        LOG.error("drawn over: node=%s", "n1")
    path = tmp_path / "log"
    with logging_to(parsed("--log-file", str(path)), owns_terminal=False):
        LOG.error("kept: node=%s", "n1")
    assert capsys.readouterr() == ("", "")
    assert path.read_text().endswith("kept node=n1\n")


def test_a_full_disk_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_to(parsed("--log-file", "/dev/full")):
        LOG.error("lost: node=%s", "n1")
    assert capsys.readouterr() == ("", "")


def test_options_travel_to_another_command(tmp_path: Path) -> None:
    options = parsed("--log-file", str(tmp_path / "log"), "--log-level", "error")
    assert parsed(*log_arguments(options)) == options
    assert parsed(*log_arguments(parsed())) == parsed()


def test_a_file_that_can_not_be_written_is_refused(tmp_path: Path) -> None:
    for path, reason in (
        (tmp_path / "none" / "log", f"there is no directory {tmp_path}/none"),
        (tmp_path, "is a directory"),
    ):
        with (
            pytest.raises(LogOptionError, match=f"--log-file {path}: {reason}"),
            logging_to(parsed("--log-file", str(path))),
        ):
            pytest.fail("nothing may begin")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_a_command_refuses_a_bad_log_file_before_anything_starts(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none" / "log"
    assert main([*command, "--log-file", str(path)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"unicron {command[0]}: --log-file {path}: there is no directory ")


def test_a_console_logs_to_a_file_alone(tmp_path: Path) -> None:
    assert "add --log-file" in log_problem(parsed("--log-level", "info"))
    assert "add --log-file" in log_problem(parsed("--log-format", "json"))
    assert not log_problem(parsed())
    assert not log_problem(parsed("--log-file", str(tmp_path / "log")))


def test_an_unknown_level_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        console_main(["--connect", "x", "--log-level", "loud"])
    assert caught.value.code == 2
    assert "--log-level: invalid choice: 'loud'" in capsys.readouterr().err
