"""Real agent process, stand-in template and ranks: starts, exits, stops, drills."""

import os
import signal

from nodeagent.protocol.codec import encode
from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.messages import (
    InjectFault,
    OrderRanksCommand,
    ProbePeerCommand,
    StartRanksCommand,
)
from nodeagent.protocol.observations import (
    IterationCommitted,
    LaunchFailed,
    RankDone,
    RankExited,
    RankRaised,
    RankStarted,
)
from nodeagent.protocol.orders import StopOrder
from tests.fakes.fake_rank import Script, launch
from tests.fakes.node import AgentNode, record_pids, until
from tests.fakes.process_states import is_alive

TASK = TaskId("gpt-a")


def stop(command_id: str, generation: int, *, is_graceful: bool) -> OrderRanksCommand:
    return OrderRanksCommand(
        command_id=command_id,
        order=StopOrder(
            task=TASK,
            generation=Generation(generation),
            is_graceful=is_graceful,
        ),
    )


def inject(fault: str) -> InjectFault:
    return InjectFault.model_validate(
        {
            "command_id": fault,
            "task": TASK,
            "generation": 1,
            "global_rank": 0,
            "fault": {"kind": fault},
        }
    )


async def test_started_rank_reports_itself_and_its_iterations(node: AgentNode) -> None:
    async with node.controller() as controller:
        await controller.heartbeat(lambda beat: beat.is_template_ready)
        done = await controller.start_ranks(launch(Script()))
        assert done.error is None
        started = await controller.first(RankStarted)
        assert started.warm
        assert 0 < started.start_s < 5
        assert started.pid == record_pids(node)["gpt-a.1.0"]
        committed = await controller.first(IterationCommitted)
        assert committed.iteration == 1
        beat = await controller.heartbeat(lambda beat: any(r.iteration > 0 for r in beat.ranks))
        assert beat.ranks[0].rss_bytes > 1_000_000
        assert beat.is_template_ready


async def test_exit_code_and_last_words_are_reported(node: AgentNode) -> None:
    script = Script(num_iterations=2, exit_code=3, last_words="out of luck")
    async with node.controller() as controller:
        await controller.start_ranks(launch(script))
        exited = await controller.first(RankExited)
        assert (exited.exit_code, exited.signal, exited.is_expected) == (3, None, False)
        assert exited.stderr_tail == "out of luck\n"
        await until(lambda: not record_pids(node), "the record of the ended rank is removed")
        assert (node.state_dir / "ranks" / "gpt-a.1.0.log").exists()


async def test_signal_of_a_rank_is_reported(node: AgentNode) -> None:
    script = Script(num_iterations=1, signal=signal.SIGSEGV)
    async with node.controller() as controller:
        await controller.start_ranks(launch(script))
        exited = await controller.first(RankExited)
        assert (exited.exit_code, exited.signal) == (None, signal.SIGSEGV)


async def test_last_report_of_a_hasty_rank_comes_before_its_exit(node: AgentNode) -> None:
    script = Script(period_s=0.0, num_iterations=200, is_hasty=True)
    async with node.controller() as controller:
        await controller.start_ranks(launch(script))
        await controller.first(RankExited)
        kinds = [report.observation.kind for report in controller.reports]
        assert kinds[0] == "rank_started"
        assert kinds[1:-1] == ["iteration_committed"] * 200
        assert kinds[-1] == "rank_exited"


async def test_kill_drill_is_not_expected(node: AgentNode) -> None:
    async with node.controller() as controller:
        await controller.start_ranks(launch(Script()))
        assert (await controller.do(inject("kill"))).error is None
        exited = await controller.first(RankExited)
        assert (exited.signal, exited.is_expected) == (signal.SIGKILL, False)
        assert "no living rank" in ((await controller.do(inject("raise"))).error or "")


async def test_raise_drill_reaches_the_rank(node: AgentNode) -> None:
    async with node.controller() as controller:
        await controller.start_ranks(launch(Script()))
        await controller.first(IterationCommitted)
        assert (await controller.do(inject("raise"))).error is None
        assert (await controller.first(RankRaised)).message == "drill"


async def test_graceful_stop_lets_the_rank_finish(node: AgentNode) -> None:
    async with node.controller() as controller:
        await controller.start_ranks(launch(Script()))
        await controller.first(IterationCommitted)
        await controller.do(stop("stop", 1, is_graceful=True))
        exited = await controller.first(RankExited)
        assert (exited.exit_code, exited.is_expected) == (0, True)
        assert controller.observed(RankDone)[0].reason == "stopped"


async def test_hard_stop_kills_and_is_expected(node: AgentNode) -> None:
    async with node.controller() as controller:
        await controller.start_ranks(launch(Script()), launch(Script(), global_rank=1, worker=1))
        assert (await controller.do(stop("stop", 1, is_graceful=False))).error is None
        for exited in await controller.reported(RankExited, 2):
            assert (exited.signal, exited.is_expected) == (signal.SIGKILL, True)


async def test_a_stop_of_single_ranks_spares_the_others_and_later_ones(node: AgentNode) -> None:
    async with node.controller() as controller:
        await controller.start_ranks(launch(Script()))
        spare = launch(Script(), global_rank=4, worker=1).model_copy(update={"prepares_for": 1})
        await controller.start_ranks(spare, command_id="prepare")
        await controller.reported(RankStarted, 2)
        order = StopOrder(task=TASK, generation=Generation(1), is_graceful=False, only=(4, 9))
        only = OrderRanksCommand(command_id="only", order=order)
        assert (await controller.do(only)).error is None
        exited = await controller.first(RankExited)
        assert (exited.global_rank, exited.signal) == (4, signal.SIGKILL)
        later = launch(Script(), global_rank=5, worker=1).model_copy(update={"prepares_for": 1})
        assert (await controller.start_ranks(later, command_id="again")).error is None
        await controller.reported(RankStarted, 3)
        assert is_alive(record_pids(node)["gpt-a.1.0"])


async def test_newer_generation_ends_the_older_before_it_starts(node: AgentNode) -> None:
    async with node.controller() as controller:
        await controller.start_ranks(launch(Script(), generation=1))
        await controller.start_ranks(launch(Script(), generation=2), command_id="again")
        await controller.reported(RankStarted, 2)
        told = [
            (report.observation.kind, report.observation.generation)
            for report in controller.reports
            if report.observation.kind in {"rank_started", "rank_exited"}
        ]
        assert told == [("rank_started", 1), ("rank_exited", 1), ("rank_started", 2)]
        assert controller.observed(RankExited)[0].is_expected


async def test_older_generation_is_refused(node: AgentNode) -> None:
    async with node.controller() as controller:
        await controller.start_ranks(launch(Script(), generation=2))
        done = await controller.start_ranks(launch(Script(), generation=1), command_id="late")
        assert "older than 2" in (done.error or "")
        assert list(record_pids(node)) == ["gpt-a.2.0"]


async def test_repeated_command_is_carried_out_once(node: AgentNode) -> None:
    async with node.controller() as controller:
        await controller.start_ranks(launch(Script()))
        pids = record_pids(node)
        await controller.start_ranks(launch(Script()))
        await controller.start_ranks(launch(Script()), command_id="other")
        assert record_pids(node) == pids
        assert len(controller.observed(RankStarted)) == 1


async def test_refused_fork_starts_cold(node: AgentNode) -> None:
    async with node.controller() as controller:
        done = await controller.start_ranks(launch(Script(is_fork_refused=True, num_iterations=3)))
        assert done.error is None
        started = await controller.first(RankStarted)
        assert not started.warm
        exited = await controller.first(RankExited)
        assert exited.exit_code == 0
        kinds = [report.observation.kind for report in controller.reports]
        assert kinds == ["rank_started", *["iteration_committed"] * 3, "rank_exited"]


async def test_broken_cold_start_is_reported_as_failed_launch(node: AgentNode) -> None:
    script = Script(is_fork_refused=True, is_cold_start_broken=True)
    async with node.controller() as controller:
        done = await controller.start_ranks(launch(script))
        assert "its script says so" in (done.error or "")
        failed = await controller.first(LaunchFailed)
        assert "its script says so" in failed.reason
        assert not controller.observed(RankStarted)


async def test_dead_template_is_replaced(node: AgentNode) -> None:
    async with node.controller() as controller:
        await controller.start_ranks(launch(Script()))
        template = (node.state_dir / "template.json").read_text()
        pid = int(template.split('"pid":')[1].split(",")[0])
        os.kill(pid, signal.SIGKILL)
        await controller.heartbeat(lambda beat: not beat.is_template_ready)
        done = await controller.start_ranks(launch(Script(), global_rank=1), command_id="second")
        assert done.error is None
        assert all(started.warm for started in controller.observed(RankStarted))
        assert not controller.observed(RankExited)


async def test_unknown_host_of_a_probe_is_an_error(node: AgentNode) -> None:
    async with node.controller() as controller:
        probe = ProbePeerCommand(command_id="p", host="no such host", port=1, timeout_s=1.0)
        assert (await controller.do(probe)).error


async def test_stop_of_a_start_that_waits_for_old_ranks_wins(node: AgentNode) -> None:
    async with node.controller() as controller:
        await controller.start_ranks(launch(Script(), generation=1))
        second = StartRanksCommand.of("two", [launch(Script(), generation=2)])
        # In one piece: the stop is there before the old rank has ended.
        controller.send_raw(encode(second) + encode(stop("stop", 2, is_graceful=False)))
        assert (await controller.do(stop("stop", 2, is_graceful=False))).error is None
        assert "was stopped" in ((await controller.do(second)).error or "")
        await until(lambda: not record_pids(node), "no rank remains")
