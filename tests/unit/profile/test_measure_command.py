"""``unicron profile measure``: requests, output, and errors in one line."""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from controller.api.server import ApiServer
from controller.api.views import ClusterView, LayoutView, MeasuredSizeView, MeasurementView
from controller.api.wire import CancelMeasurement, Command, MeasureTask, Reply
from controller.cli import main
from profiles.table_file import load_table
from tests.fakes import cluster_views
from tests.fakes.api_server import running_server

MEASURED = MeasuredSizeView(
    workers=1, layout=LayoutView(tp=1, pp=1, dp=1), phase="measured", iteration_s=0.5,
    flops_per_s=2e9,
)  # fmt: skip
FAILED = MeasuredSizeView(
    workers=2, layout=LayoutView(tp=1, pp=1, dp=2), phase="failed", reason="rank 1 exited with 1"
)
SKIPPED = FAILED.model_copy(update={"phase": "skipped", "reason": "does not fit"})
DONE = "all sizes are done"


def measurement(*sizes: MeasuredSizeView, ended: str = DONE, name: str = "M-1") -> MeasurementView:
    return MeasurementView(
        name=name, task="gpt-a", num_iterations=4, num_warm_up=2, ended=ended, is_over=bool(ended),
        sizes=list(sizes),
    )  # fmt: skip


class Controller:
    """The real API, over a measurement that is made up."""

    def __init__(self, found: MeasurementView, reply: Reply | None = None) -> None:
        self.found = found
        self.reply = reply or Reply(request_id="", is_ok=True, code="M-1")
        self.asked: list[Command] = []
        self.server = ApiServer("demo", self.view, self.take)

    def view(self) -> ClusterView:
        return cluster_views.calm().model_copy(update={"measurement": self.found})

    def take(self, command: Command) -> None:
        self.asked.append(command)
        if isinstance(command, CancelMeasurement):
            self.found = self.found.model_copy(update={"ended": "cancelled", "is_over": True})
        self.server.answer(self.reply.model_copy(update={"request_id": command.request_id}))


async def measure(controller: Controller, path: Path, *words: str) -> int:
    async with running_server(controller.server, path):
        arguments = ["profile", "measure", "gpt-a", "--connect", str(path), *words]
        return await asyncio.to_thread(main, arguments)


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (measurement(MEASURED), 0),
        (measurement(MEASURED, SKIPPED), 0),
        (measurement(MEASURED, FAILED), 1),
        (measurement(SKIPPED), 1),
        (measurement(MEASURED, SKIPPED, ended="stopped: P-1 waits for a decision"), 1),
    ],
)
async def test_the_table_is_printed_and_the_exit_code_tells_whether_it_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], found: MeasurementView, code: int
) -> None:
    controller, output = Controller(found), tmp_path / "out.json"
    words = ["--sizes", "2,1", "--iterations", "4", "--output", str(output), "--json"]
    assert await measure(controller, tmp_path / "s", *words) == code
    (asked,) = controller.asked
    assert isinstance(asked, MeasureTask)
    assert (asked.task, asked.sizes, asked.num_iterations) == ("gpt-a", (1, 2), 4)
    printed = capsys.readouterr()
    answer: dict[str, Any] = json.loads(printed.out)
    assert answer["ended"] == found.ended
    if MEASURED in found.sizes:
        assert answer["throughput"] == {"1": 2e9}
        (point,) = load_table(output).points
        assert (point.workers, point.flops_per_s, point.iterations) == (1, 2e9, 4)
        assert "1 worker(s): 0.500 s an iteration, 2e+09 FLOP/s" in printed.err
    else:
        assert not output.exists()
    assert all(size.reason in printed.err for size in found.sizes)


async def test_a_table_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    controller = Controller(measurement(MEASURED))
    assert await measure(controller, tmp_path / "s") == 0
    printed = capsys.readouterr().out
    assert "GFLOP/s" in printed
    assert "measured, 4" in printed


async def test_a_refusal_is_passed_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refusal = Reply(request_id="", is_ok=False, code="busy", message="M-1 measures gpt-b")
    assert await measure(Controller(measurement(), refusal), tmp_path / "s") == 1
    assert capsys.readouterr().err == "unicron profile: M-1 measures gpt-b\n"


async def test_another_measurement_in_its_place_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    controller = Controller(measurement(MEASURED, name="M-2"))
    assert await measure(controller, tmp_path / "s") == 2
    assert "its result was replaced by a later measurement" in capsys.readouterr().err


async def test_the_end_of_the_controller_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    controller, path = Controller(measurement(MEASURED, ended="")), tmp_path / "s"
    output = tmp_path / "out.json"
    words = ["profile", "measure", "gpt-a", "--connect", str(path), "--output", str(output)]
    async with asyncio.TaskGroup() as group:
        async with running_server(controller.server, path):
            running = group.create_task(asyncio.to_thread(main, words))
            while not controller.asked:  # noqa: ASYNC110 - of a thread
                await asyncio.sleep(0.01)
        assert await running == 2
    printed = capsys.readouterr()
    assert "the controller has ended, and M-1 with it" in printed.err
    assert "measured, 4" in printed.out  # what it has measured is not lost
    assert [point.workers for point in load_table(output).points] == [1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_whatever_ends_the_command_cancels_the_measurement(
    tmp_path: Path, number: signal.Signals
) -> None:
    controller, path = Controller(measurement(MEASURED, ended="")), tmp_path / "s"
    output = tmp_path / "out.json"
    words = ["profile", "measure", "gpt-a", "--connect", str(path), "--output", str(output)]
    async with running_server(controller.server, path):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "controller.cli", *words, stdout=PIPE, stderr=PIPE,
        )  # fmt: skip
        assert process.stderr is not None
        assert b"1 worker(s)" in await process.stderr.readline()
        process.send_signal(number)
        await process.communicate()
    assert process.returncode == 1
    cancelled = controller.asked[-1]
    assert isinstance(cancelled, CancelMeasurement)
    assert cancelled.measurement == "M-1"
    assert [point.workers for point in load_table(output).points] == [1]


@pytest.mark.parametrize(
    ("reply", "code", "told"),
    [
        (Reply(request_id="", is_ok=True), 0, "M-6 is cancelled; its finished sizes stay in the table\n"),
        (
            Reply(request_id="", is_ok=False, code="decided", message="M-6 is over already"), 1,
            "unicron profile: M-6 is over already\n",
        ),
    ],
)  # fmt: skip
async def test_a_measurement_can_be_cancelled_from_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reply: Reply, code: int, told: str
) -> None:
    controller, path = Controller(measurement(MEASURED, name="M-6"), reply), tmp_path / "s"
    words = ["profile", "measure", "--cancel", "M-6", "--connect", str(path)]
    async with running_server(controller.server, path):
        assert await asyncio.to_thread(main, words) == code
    (asked,) = controller.asked
    assert isinstance(asked, CancelMeasurement)
    assert asked.measurement == "M-6"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--sizes", "1,x"], "--sizes: 'x' must be a whole number"),
        (["--sizes", "2,2"], "2 is given twice"),
        (["--sizes", ""], "--sizes: '' must be a whole number"),
        (["--iterations", "0"], "--iterations: '0' must be a whole number from 1 to 10000"),
        (["--cancel", "M-6"], "give either a TASK to measure or --cancel"),
        (["--output", "."], "exists already"),
        ([], "there is no controller's socket"),
    ],
)
def test_a_wrong_argument_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    socket = str(tmp_path / "none.sock")
    code = main(["profile", "measure", "gpt-a", "--connect", socket, *words])
    assert code == (2 if words else 3)
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
