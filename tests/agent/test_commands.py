"""Real agent process, real commands: their environment, log, exits and stops.

And attached programs.
"""

import asyncio
import itertools
import json
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controller.fleet.rendezvous_tables import RendezvousTables
from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.messages import (
    InjectFault,
    OrderRanksCommand,
    ReadLog,
)
from nodeagent.protocol.observations import (
    IterationCommitted,
    LaunchFailed,
    ProgressUnread,
    RankDone,
    RankExited,
    RankHalted,
    RankInspected,
    RankRaised,
    RankStarted,
)
from nodeagent.protocol.orders import HaltOrder, InspectOrder, StopOrder
from nodeagent.protocol.rank_faults import RankFault
from nodeagent.protocol.rank_launch import CommandPlace, RankLaunch
from nodeagent.protocol.standing import Standing
from profiles.command_task import CommandTask
from profiles.layout import Layout
from tests.fakes.node import LIMIT_S, REPOSITORY, AgentNode, FakeController, record_pids, until
from tests.fakes.process_states import is_alive, is_stopped

TASK = TaskId("mine")
OWN_ENVIRONMENT = {
    "MINE": "rank {rank} of {workers}, generation {generation}, {{dp}} = {dp}",
    "PYTHONPATH": "/of/mine",
}
LINE = (
    "print(f' iteration {i:8d}/{9:8d} | elapsed time per iteration (ms): 12.5 |'"
    " f' lm loss: {1 / i:.6E} | grad norm: 0.500 |', flush=True)"
)


def launch(
    code: str = "",
    global_rank: int = 0,
    generation: int = 1,
    command: CommandTask | None = None,
    task_dir: Path | None = None,
) -> RankLaunch:
    """Return the launch of one of two local ranks that runs Python code."""
    script = textwrap.dedent(code).replace("{", "{{").replace("}", "}}")
    place = CommandPlace(
        command=command or CommandTask(argv=(sys.executable, "-c", script), env=OWN_ENVIRONMENT),
        local_rank=global_rank,
        local_workers=(0, 1),
        master_address="127.0.0.1",
        task_dir=str(task_dir or ""),
    )
    return RankLaunch(
        task=TASK,
        generation=Generation(generation),
        global_rank=global_rank,
        worker=global_rank,
        layout=Layout(dp=2),
        command=place,
    )


@asynccontextmanager
async def serving(node: AgentNode, tables: RendezvousTables[str]) -> AsyncIterator[FakeController]:
    async with node.controller() as controller:
        controller.tables = tables
        yield controller


@pytest.fixture
async def controller(node: AgentNode) -> AsyncIterator[FakeController]:
    async with serving(node, RendezvousTables()) as controller:
        yield controller


def iterations(controller: FakeController) -> list[int]:
    return [each.iteration for each in controller.observed(IterationCommitted)]


def log(node: AgentNode, stem: str) -> str:
    path = node.state_dir / "ranks" / f"{stem}.log"
    return path.read_text() if path.exists() else ""


SHOW_ENVIRONMENT = """
    import json, os, pathlib
    directory = pathlib.Path(os.environ["UNICRON_TASK_DIR"])
    (directory / os.environ["RANK"]).write_text(json.dumps(dict(os.environ)))
    print("no iteration | at all")
"""


async def test_ranks_get_torchruns_environment_and_one_port(
    node: AgentNode, controller: FakeController, tmp_path: Path
) -> None:
    shared = tmp_path / "tasks" / "mine"
    ranks = [launch(SHOW_ENVIRONMENT, number, task_dir=shared) for number in (1, 0)]
    assert (await controller.start_ranks(*ranks)).error is None
    await controller.reported(RankExited, 2)
    assert all(not started.warm for started in controller.observed(RankStarted))
    first, second = (json.loads((shared / str(number)).read_text()) for number in (0, 1))
    for number, environment in enumerate((first, second)):
        assert environment["RANK"] == environment["LOCAL_RANK"] == str(number)
        assert environment["WORLD_SIZE"] == environment["LOCAL_WORLD_SIZE"] == "2"
        assert environment["MASTER_ADDR"] == "127.0.0.1"
        assert environment["MINE"] == f"rank {number} of 2, generation 1, {{dp}} = 2"
        paths = environment["PYTHONPATH"].split(os.pathsep)
        assert (paths[0], str(REPOSITORY) in paths) == ("/of/mine", True)
        assert (environment["UNICRON_TASK"], environment["UNICRON_GENERATION"]) == (TASK, "1")
    assert first["MASTER_PORT"] == second["MASTER_PORT"]
    assert 20_000 <= int(first["MASTER_PORT"]) <= 29_999
    assert [each.reason for each in controller.observed(RankDone)] == ["finished"] * 2
    assert [each.exit_code for each in controller.observed(RankExited)] == [0, 0]


async def test_iterations_are_read_from_the_log_and_come_before_the_exit(
    node: AgentNode, controller: FakeController
) -> None:
    code = f"""
        import sys
        for i in range(1, 6):
            {LINE}
        sys.exit("out of luck")
    """
    await controller.start_ranks(launch(code))
    exited = await controller.first(RankExited)
    assert exited.exit_code == 1
    assert exited.stderr_tail.endswith("out of luck\n")
    kinds = [report.observation.kind for report in controller.reports]
    assert kinds == ["rank_started", *["iteration_committed"] * 5, "rank_exited"]
    newest = controller.observed(IterationCommitted)[-1]
    assert (newest.iteration, newest.loss, newest.duration_s) == (5, 0.2, 0.0125)
    assert (newest.grad_norm, newest.num_tokens) == (0.5, 0)


NANOGPT = "for i in range(3): print(f'iter {i}: loss {4 - i:.4f}, time 20.00ms, mfu 3.00%')"
OF_ITS_OWN = CommandTask(
    argv=(sys.executable, "-c", "for i in (2, 3): print('<', i, 'of 9, cost 2.0, 0.02 s >')"),
    progress=r"< (?P<iteration>\d+) of \d+, cost (?P<loss>\S+), (?P<duration_s>\S+) s >",
)


@pytest.mark.parametrize(
    ("rank", "expected"),
    [(launch(NANOGPT), [1, 2, 3]), (launch(command=OF_ITS_OWN), [2, 3])],
)
async def test_a_known_program_and_a_tasks_own_pattern_are_read(
    controller: FakeController, rank: RankLaunch, expected: list[int]
) -> None:
    assert (await controller.start_ranks(rank)).error is None
    await controller.first(RankExited)
    assert iterations(controller) == expected
    newest = controller.observed(IterationCommitted)[-1]
    assert (newest.loss, newest.duration_s) == (2.0, 0.02)
    assert not controller.observed(ProgressUnread)


async def test_lines_that_look_like_steps_and_are_not_read_are_told_once(
    controller: FakeController,
) -> None:
    await controller.start_ranks(launch("for i in range(90): print('Step', i, 'loss', 2.5)"))
    await controller.first(RankExited)
    [unread] = controller.observed(ProgressUnread)
    assert unread.line == "Step 2 loss 2.5"
    assert unread.pattern.startswith(r"\bStep\s+(?P<iteration>\d+)")
    assert not iterations(controller)


LIVE = f"""
    import time
    for i in range(1, 10**6):
        {LINE}
        time.sleep(0.02)
"""


async def test_heartbeats_tell_the_newest_iteration(
    node: AgentNode, controller: FakeController
) -> None:
    await controller.start_ranks(launch(LIVE))
    beat = await controller.heartbeat(lambda beat: any(rank.iteration > 2 for rank in beat.ranks))
    assert beat.ranks[0].duration_s == 0.0125


async def test_a_new_agent_goes_on_where_the_old_one_had_read_and_knows_the_exit(
    node: AgentNode,
) -> None:
    tables: RendezvousTables[str] = RendezvousTables()
    async with serving(node, tables) as controller:
        await controller.start_ranks(launch(LIVE))
        await until(lambda: len(iterations(controller)) > 5, "some iterations")
        node.kill()
        seen = iterations(controller)
        last_seq = controller.reports[-1].seq
    pid = record_pids(node)["mine.1.0"]
    assert is_alive(pid)
    await node.start()
    os.kill(pid, signal.SIGSEGV)
    async with node.controller(last_seq=last_seq) as controller:
        exited = await controller.first(RankExited)
        assert exited.signal == signal.SIGSEGV
        both = seen + iterations(controller)
        assert both == list(range(1, len(both) + 1)), "none is lost, none is told twice"


def inject(fault: RankFault, global_rank: int = 0) -> InjectFault:
    return InjectFault(
        command_id=f"{fault.kind} {fault.status}",
        task=TASK,
        generation=Generation(1),
        global_rank=global_rank,
        fault=fault,
    )


async def test_what_a_killed_script_has_started_ends_with_it(
    node: AgentNode, controller: FakeController
) -> None:
    command = CommandTask(argv=("/bin/sh", "-c", "sleep 1000 & echo $! > child; wait"))
    place = node.state_dir
    command = command.model_copy(update={"cwd": str(place)})
    await controller.start_ranks(launch(command=command))
    file = place / "child"
    child = int(await until(lambda: file.exists() and file.read_text(), "the child's pid"))
    assert is_alive(child)
    refused = await controller.do(inject(RankFault(kind="raise")))
    assert "has not attached: it can be killed or stopped only" in (refused.error or "")
    assert (await controller.do(inject(RankFault(kind="kill")))).error is None
    exited = await controller.first(RankExited)
    assert (exited.signal, exited.is_expected) == (signal.SIGKILL, False)
    await until(lambda: not is_alive(child), "the end of the script's child")


SAVES_ON_SIGTERM = """
    import signal, sys, time
    def save(*_):
        print("saved", flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)
    print("ready", flush=True)
    time.sleep(1000)
"""


@pytest.mark.parametrize("is_graceful", [True, False])
async def test_a_graceful_stop_is_a_sigterm(
    node: AgentNode, controller: FakeController, *, is_graceful: bool
) -> None:
    await controller.start_ranks(launch(SAVES_ON_SIGTERM))
    await until(lambda: "ready" in log(node, "mine.1.0"), "the program has begun")
    stop = OrderRanksCommand(
        command_id="stop",
        order=StopOrder(task=TASK, generation=Generation(1), is_graceful=is_graceful),
    )
    assert (await controller.do(stop)).error is None
    exited = await controller.first(RankExited)
    assert exited.is_expected
    assert (exited.exit_code, exited.signal) == ((0, None) if is_graceful else (None, 9))
    assert ("saved" in exited.stderr_tail) is is_graceful
    assert [each.reason for each in controller.observed(RankDone)] == ["stopped"] * is_graceful


async def test_a_halt_is_answered_and_the_next_generation_ends_the_process(
    node: AgentNode, controller: FakeController
) -> None:
    await controller.start_ranks(launch(LIVE))
    await until(lambda: len(iterations(controller)) > 2, "some iterations")
    halt = OrderRanksCommand(
        command_id="halt", order=HaltOrder(task=TASK, generation=Generation(1), broken=(1,))
    )
    assert (await controller.do(halt)).error is None
    halted = await controller.first(RankHalted)
    assert not halted.position.has_state
    await controller.start_ranks(launch(LIVE, generation=2), command_id="again")
    exited = await controller.first(RankExited)
    assert (exited.generation, exited.signal, exited.is_expected) == (1, signal.SIGKILL, True)
    await until(lambda: "mine.2.0" in record_pids(node), "the next generation runs")


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (CommandTask(argv=("no-such-program",)), "'no-such-program' is no program that can be run"),
        (CommandTask(argv=("python",), cwd="/no/such"), "there is no directory /no/such"),
    ],
)
async def test_what_can_not_be_started_is_a_failed_launch_in_words(
    controller: FakeController, command: CommandTask, reason: str
) -> None:
    done = await controller.start_ranks(launch(command=command))
    assert reason in (done.error or "")
    assert reason in (await controller.first(LaunchFailed)).reason
    assert not controller.observed(RankStarted)


async def test_a_file_that_is_no_program_is_an_exit_in_words(
    node: AgentNode, controller: FakeController
) -> None:
    path = node.state_dir / "broken"
    path.write_bytes(b"\x7fELF and nothing more")
    path.chmod(0o700)
    await controller.start_ranks(launch(command=CommandTask(argv=(str(path),))))
    exited = await controller.first(RankExited)
    assert exited.exit_code == 126
    assert "can't be run" in exited.stderr_tail


ATTACHED = """
    import os, threading, time
    from nodeagent.public import attach
    monitor = attach()
    assert attach() is monitor and monitor.is_attached
    for i in range(1, 4):
        monitor.iteration(i, loss=1 / i, num_tokens=64)
        print(f" iteration {i}/3 | lm loss: 7.0 |", flush=True)
"""
RAISES = ATTACHED + "    raise ValueError('a bad sample')\n"
RAISES_IN_THREAD = ATTACHED + (
    "    def work():\n        raise ValueError('a bad sample')\n"
    "    threading.Thread(target=work).start()\n    time.sleep(1000)\n"
)


async def test_an_exception_of_an_attached_program_arrives_before_its_end(
    controller: FakeController,
) -> None:
    await controller.start_ranks(launch(RAISES))
    exited = await controller.first(RankExited)
    kinds = [report.observation.kind for report in controller.reports]
    assert kinds == ["rank_started", *["iteration_committed"] * 3, "rank_raised", "rank_exited"]
    [raised] = controller.observed(RankRaised)
    assert (raised.exception_type, raised.message) == ("ValueError", "a bad sample")
    assert (raised.iteration, raised.is_in_collective) == (4, False)
    assert "Traceback" in raised.traceback
    assert "ValueError: a bad sample" in exited.stderr_tail, "the program's own hook still runs"
    newest = controller.observed(IterationCommitted)[-1]
    assert (newest.iteration, newest.loss, newest.num_tokens) == (3, 1 / 3, 64)


async def test_an_exception_in_a_thread_arrives_while_the_process_lives(
    node: AgentNode, controller: FakeController
) -> None:
    await controller.start_ranks(launch(RAISES_IN_THREAD))
    assert (await controller.first(RankRaised)).message == "a bad sample"
    assert is_alive(record_pids(node)["mine.1.0"])


async def test_a_program_that_a_script_starts_may_attach(
    node: AgentNode, controller: FakeController
) -> None:
    program = node.state_dir / "program.py"
    program.write_text(textwrap.dedent(ATTACHED) + "import time; time.sleep(1000)\n")
    script = f"{sys.executable} {program}; true"
    await controller.start_ranks(launch(command=CommandTask(argv=("/bin/sh", "-c", script))))
    beat = await controller.heartbeat(lambda beat: any(rank.iteration == 3 for rank in beat.ranks))
    assert beat.ranks[0].pid == record_pids(node)["mine.1.0"]
    await until(lambda: iterations(controller) == [1, 2, 3], "all three are told")


async def test_a_drill_raises_in_an_attached_program(
    node: AgentNode, controller: FakeController
) -> None:
    code = ATTACHED + "    while True:\n        monitor.iteration(4); time.sleep(0.02)\n"
    await controller.start_ranks(launch(code, global_rank=1), launch(code))
    await controller.heartbeat(lambda beat: [r.iteration for r in beat.ranks] == [4, 4])
    for fault in (RankFault(kind="slow"), RankFault(kind="raise", status="ecc_error")):
        refused = await controller.do(inject(fault, global_rank=1))
        assert "is a command: it can be killed or stopped" in (refused.error or "")
    assert (await controller.do(inject(RankFault(kind="raise"), global_rank=1))).error is None
    raised = await controller.first(RankRaised)
    assert (raised.global_rank, raised.exception_type) == (1, "DrillError")
    assert {each.global_rank for each in controller.observed(IterationCommitted)} == {0}


async def test_a_fatal_signal_leaves_the_stacks_in_the_log(controller: FakeController) -> None:
    code = ATTACHED + "    import ctypes; ctypes.string_at(0)\n"
    await controller.start_ranks(launch(code))
    exited = await controller.first(RankExited)
    assert exited.signal == signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in exited.stderr_tail


WAITS = ATTACHED + "    def wait_for_ever():\n        time.sleep(1000)\n    wait_for_ever()\n"
HOLDS_THE_LOCK = ATTACHED + (
    "    for _ in range(5):\n        monitor.wait_until_stored()  # its thread can't send after this\n"
    "    import ctypes; ctypes.PyDLL(None).sleep(1000)\n"
)


def inspect() -> OrderRanksCommand:
    return OrderRanksCommand(
        command_id="inspect",
        order=InspectOrder(
            task=TASK,
            generation=Generation(1),
            answer_limit_s=0.3,
            limit_s=1.5,
        ),
    )


async def look_until_it_comes_from(source: str, controller: FakeController) -> Standing:
    """Look until the program is where it gives no answer any more; return where it stands."""
    numbers = itertools.count()
    async with asyncio.timeout(LIMIT_S):
        while True:
            command = inspect().model_copy(update={"command_id": f"look {next(numbers)}"})
            assert (await controller.do(command)).error is None
            standing = controller.observed(RankInspected)[-1].standing
            if standing.source == source:
                return standing


@pytest.mark.parametrize(
    ("code", "source"), [(WAITS, "rank"), (HOLDS_THE_LOCK, "faulthandler")], ids=["says", "dumps"]
)
async def test_an_attached_program_gives_its_stacks_when_it_is_asked(
    controller: FakeController, code: str, source: str
) -> None:
    await controller.start_ranks(launch(code))
    await until(lambda: len(iterations(controller)) == 3, "its iterations")
    standing = await look_until_it_comes_from(source, controller)
    assert standing.where == "computing"
    assert "<string>" in standing.stack


USES_THE_SIGNAL = """
    import signal, time
    signal.signal(signal.SIGUSR2, lambda *_: print("my own signal", flush=True))
    print("ready", flush=True)
    while True:
        time.sleep(0.01)
"""


async def test_a_command_that_has_not_attached_is_not_disturbed_by_a_look(
    node: AgentNode, controller: FakeController
) -> None:
    await controller.start_ranks(launch(USES_THE_SIGNAL))
    await until(lambda: "ready" in log(node, "mine.1.0"), "the program has begun")
    assert (await controller.do(inspect())).error is None
    assert not controller.observed(RankInspected), "it is not taken for one that gives no answer"
    pid = record_pids(node)["mine.1.0"]
    os.kill(pid, signal.SIGSTOP)
    await until(lambda: is_stopped(pid), "it stands still")
    assert (await controller.do(inspect().model_copy(update={"command_id": "2"}))).error is None
    assert (await controller.first(RankInspected)).standing.where == "stopped"
    assert "my own signal" not in log(node, "mine.1.0")


# --- the output of ranks, read for people ------------------------------------------------------


async def test_the_output_of_a_rank_is_read_on_from_part_to_part(
    node: AgentNode, controller: FakeController, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    await controller.start_ranks(
        launch(f"print('one\\ntwo', flush=True); open({str(gate)!r}).read(); print('three')")
    )

    newest = ReadLog(command_id="", task=TASK, global_rank=0)
    await until(lambda: log(node, f"{TASK}.1.0").count("\n") == 2, "two lines")
    part = await controller.read_log(newest)
    assert (part.begin, part.text, part.error) == (0, "one\ntwo\n", "")
    after = newest.model_copy(update={"name": part.name, "begin": part.end})
    assert (await controller.read_log(after)).text == ""
    gate.write_text("go")
    await controller.reported(RankExited)
    last = await controller.read_log(after)
    assert (last.begin, last.text) == (part.end, "three\n")
    little = await controller.read_log(newest.model_copy(update={"max_bytes": 8}))
    assert little.text == "three\n", "from the beginning of a line on"
    elsewhere = newest.model_copy(update={"name": "another.1.0.log", "begin": 10**6})
    assert (await controller.read_log(elsewhere)).text == "one\ntwo\nthree\n"


async def test_a_rank_without_output_is_an_answer_and_a_name_is_no_path(
    node: AgentNode, controller: FakeController
) -> None:
    missing = "no output of this rank is kept"
    request = ReadLog(command_id="", task=TASK, global_rank=7)
    assert (await controller.read_log(request)).error == missing
    (node.state_dir / "secret.1.0.log").write_text("secret")
    (node.state_dir / "ranks" / "another.1.7.log").write_text("of another task")
    for task in (TASK, "../secret", "*", "", "another.1"):
        request = ReadLog(command_id="", task=TaskId(task), global_rank=7 if task == TASK else 0)
        assert (await controller.read_log(request)).error == missing


async def test_the_newest_generation_is_read_and_the_one_before(
    node: AgentNode, controller: FakeController
) -> None:
    for generation in (9, 10):
        await controller.start_ranks(
            launch(f"print({generation})", generation=generation), command_id=f"s{generation}"
        )
        await controller.reported(RankExited, generation - 8)
    newest = ReadLog(command_id="", task=TASK, global_rank=0)
    part = await controller.read_log(newest)
    assert (part.name, part.text) == (f"{TASK}.10.0.log", "10\n")
    before = await controller.read_log(newest.model_copy(update={"is_previous": True}))
    assert (before.name, before.text) == (f"{TASK}.9.0.log", "9\n")
    (node.state_dir / "ranks" / before.name).unlink()
    gone = await controller.read_log(newest.model_copy(update={"is_previous": True}))
    assert gone.error == "no output of a process before this one of the rank is kept"
