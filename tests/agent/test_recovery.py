"""Real agent process, killed at any instant: ranks go on, and no report is lost or doubled."""

import asyncio
import json
import os
import random
import signal

from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.messages import OrderRanksCommand, Report
from nodeagent.protocol.observations import IterationCommitted, RankExited, RankStarted
from nodeagent.protocol.orders import StopOrder
from tests.fakes.fake_rank import Script, launch
from tests.fakes.node import AgentNode, record_pids, until


def iterations(reports: list[Report]) -> list[int]:
    observations = [report.observation for report in reports]
    return [one.iteration for one in observations if isinstance(one, IterationCommitted)]


async def reports_until_the_agent_is_killed(
    node: AgentNode, last_seq: int, num_reports: int
) -> list[Report]:
    async with node.controller(last_seq=last_seq) as controller:
        await controller.first_reports(num_reports + 1)
        node.kill()
        await until(lambda: controller.is_closed, "the connection ends")
        return controller.reports


async def test_killed_agent_keeps_the_ranks_and_every_report(node: AgentNode) -> None:
    """Kill the agent five times at random instants under 500 reports per second."""
    chance = random.Random(7)
    told: list[Report] = []
    async with node.controller() as controller:
        await controller.start_ranks(launch(Script(period_s=0.002)))
        pids = record_pids(node)
        await controller.first(IterationCommitted)
        told += controller.reports
    for _ in range(5):
        told += await reports_until_the_agent_is_killed(
            node, told[-1].seq, chance.randrange(1, 200)
        )
        await node.start()
        assert record_pids(node) == pids
    async with node.controller(last_seq=told[-1].seq) as controller:
        stop = OrderRanksCommand(
            command_id="stop",
            order=StopOrder(task=TaskId("gpt-a"), generation=Generation(1), is_graceful=True),
        )
        await controller.do(stop)
        exited = await controller.first(RankExited)
        assert (exited.exit_code, exited.is_expected) == (0, True)
        told += controller.reports
    assert [report.seq for report in told] == list(range(1, len(told) + 1))
    counted = iterations(told)
    assert counted == list(range(1, len(counted) + 1))
    kinds = [report.observation.kind for report in told]
    assert kinds.count("rank_started") == kinds.count("rank_exited") == 1


async def test_reports_of_a_time_without_controller_are_kept(node: AgentNode) -> None:
    async with node.controller() as controller:
        await controller.start_ranks(launch(Script(num_iterations=50)))
        await controller.first(IterationCommitted)
        last_seq = controller.reports[-1].seq
    await until(lambda: not record_pids(node), "the rank ends unseen")
    async with node.controller(last_seq=last_seq) as controller:
        await controller.first(RankExited)
        assert controller.reports[0].seq == last_seq + 1
        assert iterations(controller.reports)[-1] == 50


async def test_exit_while_no_agent_ran_is_reported_once(node: AgentNode) -> None:
    async with node.controller() as controller:
        await controller.start_ranks(launch(Script()))
        await controller.first(RankStarted)
        last_seq = controller.reports[-1].seq
    [pid] = record_pids(node).values()
    node.kill()
    os.kill(pid, signal.SIGABRT)
    ended = node.state_dir / "ranks" / "gpt-a.1.0.exit"
    await until(ended.exists, "the template writes the exit")
    for _ in range(2):
        await node.start()
        async with node.controller(last_seq=last_seq) as controller:
            controller.acknowledges = False
            exited = await controller.first(RankExited)
            assert exited.signal == signal.SIGABRT
            assert len(controller.observed(RankExited)) == 1
        node.kill()
    assert not list((node.state_dir / "ranks").glob("*.json"))


async def test_how_a_rank_ended_is_known_after_its_machine_stood_still(node: AgentNode) -> None:
    """The template that writes it stood still, too."""
    async with node.controller() as controller:
        await controller.start_ranks(launch(Script()))
        await controller.first(RankStarted)
        [rank] = record_pids(node).values()
        template = json.loads((node.state_dir / "template.json").read_text())["pid"]
        assert node.process is not None
        os.kill(template, signal.SIGSTOP)
        os.kill(rank, signal.SIGABRT)
        await asyncio.sleep(0.3)  # the agent looks for the exit file by now
        node.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(2.5)
        node.process.send_signal(signal.SIGCONT)
        await asyncio.sleep(0.2)
        os.kill(template, signal.SIGCONT)
        exited = await controller.first(RankExited)
        assert exited.signal == signal.SIGABRT


async def test_files_left_between_the_report_and_their_removal_tell_nothing(
    node: AgentNode,
) -> None:
    """A kill between the two leaves the record of a rank whose exit is stored."""
    async with node.controller() as controller:
        await controller.start_ranks(launch(Script()))
        await controller.first(RankStarted)
        record = node.state_dir / "ranks" / "gpt-a.1.0.json"
        content = record.read_text()
        await controller.do(
            OrderRanksCommand(
                command_id="s",
                order=StopOrder(task=TaskId("gpt-a"), generation=Generation(1), is_graceful=False),
            )
        )
        await controller.first(RankExited)
        last_seq = controller.reports[-1].seq
        await until(lambda: not record.exists(), "the record is removed")
    node.kill()
    record.write_text(content)
    await node.start()
    async with node.controller(last_seq=last_seq) as controller:
        assert (await controller.welcome()).ranks == []
        await controller.heartbeat(lambda beat: beat.is_template_ready)
        assert controller.reports == []
    assert not record.exists()


async def test_half_written_outbox_is_mended(node: AgentNode) -> None:
    async with node.controller() as controller:
        controller.acknowledges = False
        await controller.start_ranks(launch(Script(num_iterations=3)))
        await controller.first(RankExited)
        told = controller.reports
    node.kill()
    with (node.state_dir / "outbox.jsonl").open("ab") as outbox:
        outbox.write(b'{"kind":"stored","report":{"kind":"rep')
    await node.start()
    assert "half-written" in node.log
    async with node.controller() as controller:
        assert await controller.first_reports(len(told)) == told
        await controller.start_ranks(launch(Script(), generation=2), command_id="next")
        reports = await controller.first_reports(len(told) + 1)
        assert reports[len(told)].seq == len(told) + 1


async def test_terminated_agent_leaves_everything_running(node: AgentNode) -> None:
    async with node.controller() as controller:
        await controller.start_ranks(launch(Script()))
        pids = record_pids(node)
        last_seq = controller.reports[-1].seq if controller.reports else 0
    template = (node.state_dir / "template.json").read_text()
    assert node.terminate() == 0
    assert not (node.state_dir / "agent.sock").exists()
    await node.start()
    assert record_pids(node) == pids
    assert (node.state_dir / "template.json").read_text() == template
    async with node.controller(last_seq=last_seq) as controller:
        await controller.first(IterationCommitted)
        # Sent by the former agent, the stop is repeated to the rank when it connects again.
        assert [rank.pid for rank in (await controller.welcome()).ranks] == list(pids.values())


async def test_graceful_stop_reaches_a_rank_that_was_out_of_touch(node: AgentNode) -> None:
    async with node.controller() as controller:
        await controller.start_ranks(launch(Script()))
        await controller.first(IterationCommitted)
        last_seq = controller.reports[-1].seq
    node.kill()
    # What a stop that was stored, and not yet passed on, leaves behind.
    with (node.state_dir / "outbox.jsonl").open("ab") as outbox:
        for scope in (b"stop", b"graceful_stop"):
            mark = b'{"scope":"%s","name":"gpt-a","value":1}' % scope
            outbox.write(b'{"kind":"marked","mark":%s}\n' % mark)
    await node.start()
    async with node.controller(last_seq=last_seq) as controller:
        exited = await controller.first(RankExited)
        assert (exited.exit_code, exited.is_expected) == (0, True)
