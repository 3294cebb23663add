"""The template forks ranks fast, records them, and refuses what would not be safe."""

import importlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.process_tools.process_files import start_ticks
from nodeagent.protocol.local import ForkRefused, RankForked, StopAtBoundary
from nodeagent.protocol.rank_launch import RankLaunch, TrainingSpec
from nodeagent.rank.process import warm_imports
from nodeagent.rank.process.template import EXIT_ALREADY_RUNS, RETIRE
from profiles.layout import Layout
from tests.fakes.directories import short_directory
from tests.fakes.rank_host import REPOSITORY, RankHost, launches

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(60)]


@pytest.fixture
def state_dir() -> Iterator[Path]:
    with short_directory() as path:
        yield path


def test_rank_is_recorded_when_it_starts_and_when_it_ends(
    host: RankHost, training: TrainingSpec
) -> None:
    endless = training.model_copy(update={"num_iterations": None})
    launch = launches(endless, Layout(), task="recorded")[0]
    pid = host.start([launch])[0]
    started = host.start_record(launch)
    assert started["pid"] == pid
    assert started["start_ticks"] == start_ticks(pid)
    assert RankLaunch.model_validate(started["launch"]) == launch
    assert Path(f"/proc/{pid}/comm").read_text().startswith("ur:")
    host.wait_for(lambda: host.record(launch).hellos)
    host.send(launch, StopAtBoundary())

    ended = host.wait_for_exit(launch)

    assert (ended["pid"], ended["exit_code"], ended["signal"]) == (pid, 0, None)
    assert (host.state_dir / "ranks" / "recorded.1.0.log").stat().st_mode & 0o777 == 0o600


def test_rank_inherits_no_descriptor_and_leads_its_own_session(
    host: RankHost, training: TrainingSpec
) -> None:
    launch = launches(training, Layout(), task="clean")[0]
    host.stop_storing()
    pid = host.start([launch])[0]
    # It waits for an agent that hears of it, and opens nothing any more.
    host.wait_for(lambda: host.record(launch).of_kind("rank_done"))
    targets = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]
    assert not [target for target in targets if "template" in target]
    assert os.getsid(pid) == pid


def test_request_that_comes_twice_forks_once(host: RankHost, training: TrainingSpec) -> None:
    launch = launches(training, Layout(dp=2), task="twice")[0]
    first, second = host.fork(launch), host.fork(launch)
    assert isinstance(first, RankForked)
    assert second == first


def test_template_survives_nonsense_and_the_loss_of_its_agent(host: RankHost) -> None:
    before = host.connect_template()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(host.state_dir / "template.sock"))
        connection.sendall(b'{"kind": "nonsense"}\n')
        connection.settimeout(10)
        # The hello, then the end: the connection is closed and nothing else happens.
        while connection.recv(4096):
            pass
    assert host.connect_template().pid == before.pid
    log = (host.state_dir / "template.log").read_text()
    assert log.count("closed a connection after an invalid message") == 1
    assert "INFO nodeagent.rank.process.template: imports are complete duration_s=" in log


def test_task_name_that_is_a_path_is_refused(host: RankHost, training: TrainingSpec) -> None:
    answer = host.fork(launches(training, Layout(), task="../../etc/x")[0])
    assert isinstance(answer, ForkRefused)
    assert "can't be part of a file name" in answer.reason


def test_second_template_in_the_same_directory_gives_up(host: RankHost) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "nodeagent.rank.process.template", "--state-dir", host.state_dir],
        cwd=REPOSITORY,
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert second.returncode == EXIT_ALREADY_RUNS
    assert b"another template runs" in second.stderr


def test_template_with_a_second_thread_refuses_to_fork(
    state_dir: Path, training: TrainingSpec
) -> None:
    # A training program whose import started a thread; nothing else is imported, to be quick.
    program = """
import sys, threading
from pathlib import Path
from nodeagent.rank.process import warm_imports
from nodeagent.rank.process.template import Template
threading.Thread(target=threading.Event().wait, daemon=True).start()
Template(Path(sys.argv[1]), lambda *_: 0, 0.0).serve()
"""
    host = RankHost(state_dir)
    process = subprocess.Popen([sys.executable, "-c", program, state_dir], cwd=REPOSITORY)
    try:
        host.connect_template()
        answer = host.fork(launches(training, Layout(), task="refused")[0])
        assert isinstance(answer, ForkRefused)
        assert answer.reason.endswith("the template has others: Thread-1 (wait)")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        host.close()
    assert not (state_dir / "ranks").exists()
    assert not (state_dir / "template.sock").exists()


def test_what_is_imported_counts_gpus_without_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda: Any = importlib.import_module("torch").cuda
    seen: list[int] = []
    import_module = importlib.import_module

    def recorded(name: str, package: str | None = None) -> object:
        seen.append(cuda.device_count())
        return import_module(name, package)

    monkeypatch.setattr("os.environ", dict(os.environ))
    monkeypatch.setattr(warm_imports, "_num_device_files", lambda: 8)
    monkeypatch.setattr(importlib, "import_module", recorded)
    warm_imports.import_training_program()
    assert seen[-1] == 8
    assert cuda.device_count is not warm_imports._num_device_files


@pytest.mark.timeout(150)
def test_cold_rank_trains_like_a_warm_one(
    host: RankHost, training: TrainingSpec, tmp_path: Path
) -> None:
    spec = training.model_copy(update={"num_iterations": None, "iteration_floor_s": 0.05})
    launch = launches(spec, Layout(), task="cold")[0]
    path = tmp_path / "launch.json"
    path.write_text(launch.model_dump_json())
    words = [sys.executable, "-m", "nodeagent.rank.process.cold_start"]
    words += ["--state-dir", str(host.state_dir), "--launch", str(path)]
    with subprocess.Popen(words, cwd=REPOSITORY) as cold:
        try:
            record = host.record(launch)
            # It imports torch and Megatron itself.
            host.wait_for(lambda: 2 in record.loss_by_iteration, timeout_s=100)
            assert host.start_record(launch)["pid"] == record.hellos[0].pid
            host.send(launch, StopAtBoundary())
            assert host.wait_for_exit(launch)["exit_code"] == 0
            assert cold.wait(10) == 0
            ended = "INFO nodeagent.rank.process.rank_main: training ended reason=stopped"
            assert ended in host.log(launch)
        finally:
            cold.kill()


PAUSING = """
import signal, sys
from pathlib import Path
from nodeagent.rank.process import warm_imports
from nodeagent.rank.process.template import Template
Template(Path(sys.argv[1]), lambda *_: signal.pause(), 0.0).serve()
"""
"""A template whose ranks wait; nothing is imported, to be quick."""


def test_template_ends_on_sigterm_and_leaves_its_ranks(
    state_dir: Path, training: TrainingSpec
) -> None:
    host = RankHost(state_dir)
    process = subprocess.Popen([sys.executable, "-c", PAUSING, state_dir], cwd=REPOSITORY)
    try:
        host.connect_template()
        pid = host.start([launches(training, Layout(), task="stays")[0]])[0]
        process.terminate()
        assert process.wait(10) == 0
        os.kill(pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
        host.close()


def test_a_retired_template_gives_way_and_records_the_exits_of_its_ranks(
    state_dir: Path, training: TrainingSpec
) -> None:
    host = RankHost(state_dir)
    process = subprocess.Popen([sys.executable, "-c", PAUSING, state_dir], cwd=REPOSITORY)
    try:
        host.connect_template()
        launch = launches(training, Layout(), task="stays")[0]
        pid = host.start([launch])[0]
        process.send_signal(RETIRE)
        host.wait_for(lambda: not (state_dir / "template.sock").exists())
        (state_dir / "template.sock").touch()  # as if another template had begun
        assert process.poll() is None
        os.kill(pid, signal.SIGKILL)
        assert host.wait_for_exit(launch)["signal"] == signal.SIGKILL
        assert process.wait(10) == 0
        assert (state_dir / "template.sock").exists(), "it is the other one's"
    finally:
        process.kill()
        process.wait()
        host.close()
    (state_dir / "template.sock").unlink()
