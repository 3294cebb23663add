"""Real agent process: halted ranks continue as ranks of the next generation."""

import json
import os
import signal
from pathlib import Path

from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.messages import (
    InjectFault,
    OrderRanksCommand,
    Report,
    StartRanksCommand,
)
from nodeagent.protocol.observations import (
    IterationCommitted,
    LaunchFailed,
    Observation,
    RankDone,
    RankExited,
    RankHalted,
    RankJoined,
    RankStarted,
)
from nodeagent.protocol.orders import HaltOrder, StopOrder
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.protocol.regroup import RankRef
from tests.fakes.fake_rank import Script, launch
from tests.fakes.node import AgentNode, FakeController, record_pids, until
from tests.fakes.process_states import is_stopped

TASK = TaskId("gpt-a")


def halt(
    generation: int = 1,
    broken: tuple[int, ...] = (),
    *,
    at_boundary: bool = False,
    command_id: str = "halt",
) -> OrderRanksCommand:
    return OrderRanksCommand(
        command_id=command_id,
        order=HaltOrder(
            task=TASK,
            generation=Generation(generation),
            broken=broken,
            at_boundary=at_boundary,
        ),
    )


def going_on(
    generation: int, global_rank: int, *, was: tuple[int, int], script: Script | None = None
) -> RankLaunch:
    """Return the launch of a rank that the process of rank ``was`` becomes."""
    ref = RankRef(generation=Generation(was[0]), global_rank=was[1])
    return launch(script or Script(), generation=generation, global_rank=global_rank, continues=ref)


def name(observation: Observation) -> tuple[int, int]:
    return (observation.generation, observation.global_rank)


def names(observations: list[RankJoined] | list[RankExited]) -> list[tuple[int, int]]:
    return [name(one) for one in observations]


async def statuses(controller: FakeController) -> dict[tuple[int, int], int]:
    """Return the pids that the agent welcomes with, by rank."""
    ranks = (await controller.welcome()).ranks
    return {(rank.generation, rank.global_rank): rank.pid for rank in ranks}


async def start_and_halt(controller: FakeController, num_ranks: int = 1) -> None:
    ranks = [launch(Script(), global_rank=r, worker=r) for r in range(num_ranks)]
    await controller.start_ranks(*ranks)
    await controller.first(IterationCommitted)
    await controller.do(halt())
    await controller.reported(RankHalted, num_ranks)


async def replace_agent(node: AgentNode) -> None:
    node.kill()
    await node.start()


def append_to_outbox(node: AgentNode, record: dict[str, object]) -> None:
    with (node.state_dir / "outbox.jsonl").open("ab") as outbox:
        outbox.write(json.dumps(record).encode() + b"\n")


# --- halt ----------------------------------------------------------------------------------


async def test_halted_rank_parks_in_its_process(node: AgentNode) -> None:
    async with node.controller() as controller:
        await controller.start_ranks(launch(Script()))
        pids = record_pids(node)
        await controller.first(IterationCommitted)
        assert (await controller.do(halt(broken=(3, 2)))).error is None
        position = (await controller.first(RankHalted)).position
        assert (position.counted, position.phase) == ((2, 3), "accumulate")
        await controller.do(halt(broken=(3, 2), command_id="again"))
        assert record_pids(node) == pids
        assert len(controller.observed(RankHalted)) == 1


async def test_halt_reaches_a_rank_that_is_born_after_it(node: AgentNode) -> None:
    async with node.controller() as controller:
        await controller.do(halt(at_boundary=True))
        await controller.start_ranks(launch(Script()))
        assert (await controller.first(RankHalted)).position.phase == "idle"


async def test_halt_reaches_a_rank_that_finds_the_next_agent(node: AgentNode) -> None:
    """All that was asked of the generation comes together, whichever agent heard it."""
    async with node.controller() as controller:
        await controller.start_ranks(launch(Script()))
        await controller.first(IterationCommitted)
        (node.state_dir / "silence").touch()
    await replace_agent(node)
    async with node.controller() as controller:
        await controller.do(halt(broken=(3,)))
    await replace_agent(node)
    async with node.controller() as controller:
        assert (await controller.do(halt(broken=(1,), at_boundary=True))).error is None
    await replace_agent(node)
    (node.state_dir / "silence").unlink()
    async with node.controller() as controller:
        position = (await controller.first(RankHalted)).position
        assert (position.counted, position.phase) == ((1, 3), "accumulate")


async def test_halt_of_an_older_generation_is_refused(node: AgentNode) -> None:
    async with node.controller() as controller:
        await controller.start_ranks(launch(Script(), generation=2))
        done = await controller.do(halt(1))
        assert done.error == "generation 1 of gpt-a gave way to 2 before"
        await controller.first(IterationCommitted)
        assert not controller.observed(RankHalted)


async def test_halt_of_another_run_is_forgotten(node: AgentNode) -> None:
    async with node.controller() as controller:
        await controller.do(halt(1))
    async with node.controller(run_id="run-2") as controller:
        await controller.start_ranks(launch(Script()))
        await controller.first(IterationCommitted)
        assert not controller.observed(RankHalted)


# --- join ----------------------------------------------------------------------------------


async def test_joined_rank_keeps_its_process_under_a_new_name(node: AgentNode) -> None:
    async with node.controller() as controller:
        await start_and_halt(controller)
        (pid,) = record_pids(node).values()
        done = await controller.start_ranks(going_on(2, 3, was=(1, 0)), command_id="two")
        assert done.error is None
        assert name(await controller.first(RankJoined)) == (2, 3)
        beat = await controller.heartbeat(
            lambda beat: any(rank.generation == 2 for rank in beat.ranks)
        )
        assert [(rank.global_rank, rank.pid) for rank in beat.ranks] == [(3, pid)]
        assert record_pids(node) == {"gpt-a.1.0": pid}
        assert len(controller.observed(RankStarted)) == 1
    await replace_agent(node)
    async with node.controller() as controller:
        assert await statuses(controller) == {(2, 3): pid}


async def test_second_regroup_follows_the_first(node: AgentNode) -> None:
    async with node.controller() as controller:
        await start_and_halt(controller, num_ranks=2)
        await controller.start_ranks(
            going_on(2, 1, was=(1, 0)), going_on(2, 0, was=(1, 1)), command_id="two"
        )
        await controller.reported(RankJoined, 2)
        await controller.do(halt(2, command_id="halt two"))
        await controller.reported(RankHalted, 4)
        await controller.start_ranks(going_on(3, 0, was=(2, 1)), command_id="three")
        await controller.reported(RankJoined, 3)
        await controller.reported(RankExited, 1)
        drill = InjectFault.model_validate(
            {
                "command_id": "k",
                "task": TASK,
                "generation": 3,
                "global_rank": 0,
                "fault": {"kind": "kill"},
            }
        )
        assert (await controller.do(drill)).error is None
        left_out, killed = await controller.reported(RankExited, 2)
        assert (name(left_out), left_out.is_expected) == ((2, 0), True)
        assert (name(killed), killed.is_expected, killed.signal) == ((3, 0), False, signal.SIGKILL)
        assert killed.pid != left_out.pid
        await until(lambda: not record_pids(node), "no record remains")


async def regroup_under_a_killed_agent(
    node: AgentNode, generation: int, told: list[Report]
) -> None:
    """Kill the agent as soon as the process has its new name, whether or not it has heard of it."""
    rank = going_on(generation, 0, was=(generation - 1, 0), script=Script(period_s=0.002))
    start = StartRanksCommand.of(f"start {generation}", [rank])
    record = node.state_dir / "ranks" / "gpt-a.1.0.json"
    async with node.controller(last_seq=told[-1].seq) as controller:
        await controller.do(halt(generation - 1))
        await controller.first(RankHalted)
        controller.send(start)
        await until(lambda: f'"generation":{generation}' in record.read_text(), "its new name")
        node.kill()
        await until(lambda: controller.is_closed, "the connection ends")
        told += controller.reports
    await node.start()
    async with node.controller(last_seq=told[-1].seq) as controller:
        assert (await controller.do(start)).error is None
        await until(lambda: named(controller.reports, generation) > 5, "it trains on")
        told += controller.reports


def named(reports: list[Report], generation: int) -> int:
    return sum(
        isinstance(report.observation, Observation) and report.observation.generation == generation
        for report in reports
    )


async def test_reports_keep_one_sequence_over_regroups_and_killed_agents(node: AgentNode) -> None:
    told: list[Report] = []
    async with node.controller() as controller:
        await controller.start_ranks(launch(Script(period_s=0.002)))
        await controller.first(IterationCommitted)
        told += controller.reports
    for generation in (2, 3, 4):
        await regroup_under_a_killed_agent(node, generation, told)
    async with node.controller(last_seq=told[-1].seq) as controller:
        stop = OrderRanksCommand(
            command_id="s", order=StopOrder(task=TASK, generation=Generation(4), is_graceful=True)
        )
        await controller.do(stop)
        exited = await controller.first(RankExited)
        assert (name(exited), exited.exit_code) == ((4, 0), 0)
        told += controller.reports
    assert [report.seq for report in told] == list(range(1, len(told) + 1))
    seen = [report.observation for report in told]
    iterations = [one.iteration for one in seen if isinstance(one, IterationCommitted)]
    assert iterations == list(range(1, len(iterations) + 1))
    rest = [one.kind for one in seen if not isinstance(one, IterationCommitted)]
    regroups = ["rank_halted", "rank_joined"] * 3
    assert rest == ["rank_started", *regroups, "rank_done", "rank_exited"]
    generations = [one.generation for one in seen if isinstance(one, Observation)]
    assert generations == sorted(generations)


async def test_reports_of_an_earlier_name_are_recognised_when_they_come_again(
    node: AgentNode,
) -> None:
    """As if each agent had died between storing a report and answering it."""
    script = Script(is_unanswered=True)
    async with node.controller() as controller:
        await controller.start_ranks(launch(script))
        await controller.first(IterationCommitted)
        await controller.do(halt())
        await controller.first(RankHalted)
        told = controller.reports
    (node.state_dir / "silence").touch()
    await replace_agent(node)
    async with node.controller(last_seq=told[-1].seq) as controller:
        await controller.start_ranks(going_on(2, 0, was=(1, 0), script=script))
        (node.state_dir / "silence").unlink()
        await controller.first(RankJoined)
        told += controller.reports
    await replace_agent(node)
    async with node.controller(last_seq=told[-1].seq) as controller:
        await until(lambda: named(controller.reports, 2) > 5, "it trains on")
        told += controller.reports
    seen = [report.observation for report in told]
    iterations = [one.iteration for one in seen if isinstance(one, IterationCommitted)]
    assert iterations == list(range(1, len(iterations) + 1))
    kinds = [one.kind for one in seen]
    assert (kinds.count("rank_halted"), kinds.count("rank_joined")) == (1, 1)


async def test_repeated_start_does_nothing(node: AgentNode) -> None:
    ranks = [going_on(2, 0, was=(1, 0)), launch(Script(), generation=2, global_rank=1)]
    async with node.controller() as controller:
        await start_and_halt(controller)
        await controller.start_ranks(*ranks, command_id="two")
        await controller.first(RankJoined)
        await controller.reported(RankStarted, 2)
        pids = record_pids(node)
        assert set(pids) == {"gpt-a.1.0", "gpt-a.2.1"}
        assert (await controller.start_ranks(*ranks, command_id="repeated")).error is None
        last_seq = controller.reports[-1].seq
    await replace_agent(node)
    async with node.controller(last_seq=last_seq) as controller:
        assert (await controller.start_ranks(*ranks, command_id="repeated")).error is None
        assert record_pids(node) == pids
        await controller.reported(IterationCommitted, 6)
        assert not controller.observed(RankExited)
        assert not controller.observed(RankStarted)
        assert not controller.observed(LaunchFailed)


async def test_a_process_that_was_to_wait_and_is_gone_does_not_fail_the_start(
    node: AgentNode,
) -> None:
    async with node.controller() as controller:
        await start_and_halt(controller)
        gone = going_on(2, 2, was=(1, 7)).model_copy(update={"prepares_for": 0})
        done = await controller.start_ranks(going_on(2, 0, was=(1, 0)), gone, command_id="two")
        assert done.error is None
        await controller.first(RankJoined)
        failed = await controller.first(LaunchFailed)
        assert name(failed) == (2, 2)


async def test_older_start_is_refused_and_leaves_the_joined_rank_alone(node: AgentNode) -> None:
    async with node.controller() as controller:
        await start_and_halt(controller)
        await controller.start_ranks(going_on(3, 0, was=(1, 0)), command_id="three")
        await controller.first(RankJoined)
        done = await controller.start_ranks(going_on(2, 0, was=(1, 0)), command_id="two")
        assert "older than 3" in (done.error or "")
        assert (await controller.do(halt(1, command_id="late"))).error is not None
        num_before = len(controller.observed(IterationCommitted))
        await controller.reported(IterationCommitted, num_before + 1)
        assert not controller.observed(RankExited)


async def test_graceful_stop_reaches_a_joined_rank(node: AgentNode) -> None:
    async with node.controller() as controller:
        await start_and_halt(controller)
        await controller.start_ranks(going_on(2, 0, was=(1, 0)), command_id="two")
        await controller.first(RankJoined)
        stop = OrderRanksCommand(
            command_id="s", order=StopOrder(task=TASK, generation=Generation(2), is_graceful=True)
        )
        await controller.do(stop)
        exited = await controller.first(RankExited)
        assert (name(exited), exited.exit_code, exited.is_expected) == ((2, 0), 0, True)
        assert controller.observed(RankDone)[0].generation == 2


# --- those who do not go on ----------------------------------------------------------------


async def test_left_out_rank_is_ended_even_while_it_is_stopped(node: AgentNode) -> None:
    async with node.controller() as controller:
        await start_and_halt(controller, num_ranks=2)
        pids = record_pids(node)
        os.kill(pids["gpt-a.1.1"], signal.SIGSTOP)
        await until(lambda: is_stopped(pids["gpt-a.1.1"]), "it is stopped")
        new = launch(Script(), generation=2, global_rank=1, worker=1)
        done = await controller.start_ranks(going_on(2, 0, was=(1, 0)), new, command_id="two")
        assert done.error is None
        exited = await controller.first(RankExited)
        assert (name(exited), exited.signal, exited.is_expected) == ((1, 1), signal.SIGKILL, True)
        kinds = [one.observation.kind for one in controller.reports]
        # The replacement took the place of the left-out rank, so it had to wait for its end.
        assert kinds.index("rank_exited") < len(kinds) - 1 - kinds[::-1].index("rank_started")
        assert record_pids(node)["gpt-a.1.0"] == pids["gpt-a.1.0"]


async def test_join_waits_for_no_fork(node: AgentNode) -> None:
    async with node.controller() as controller:
        await start_and_halt(controller)
        template = json.loads((node.state_dir / "template.json").read_text())["pid"]
        os.kill(template, signal.SIGSTOP)
        new = launch(Script(), generation=2, global_rank=1, worker=1)
        ranks = [going_on(2, 0, was=(1, 0)), new]
        controller.send(StartRanksCommand.of("two", ranks))
        assert name(await controller.first(RankJoined)) == (2, 0)
        assert len(controller.observed(RankStarted)) == 1
        # Nor does the next generation's, while that fork is still waited for.
        await controller.do(halt(2, command_id="halt two"))
        await controller.reported(RankHalted, 2)
        third = StartRanksCommand.of("three", [going_on(3, 0, was=(2, 0))])
        controller.send(third)
        await controller.reported(RankJoined, 2)
        os.kill(template, signal.SIGCONT)
        assert (await controller.do(third)).error is None
        await until(lambda: list(record_pids(node)) == ["gpt-a.1.0"], "the late fork is ended")


async def test_lost_process_is_one_failed_launch(node: AgentNode) -> None:
    async with node.controller() as controller:
        await start_and_halt(controller, num_ranks=2)
        os.kill(record_pids(node)["gpt-a.1.1"], signal.SIGKILL)
        assert not (await controller.first(RankExited)).is_expected
        ranks = [going_on(2, 0, was=(1, 0)), going_on(2, 1, was=(1, 1))]
        done = await controller.start_ranks(*ranks, command_id="two")
        assert "the process of gpt-a.1.1" in (done.error or "")
        assert (await controller.start_ranks(*ranks, command_id="repeated")).error is None
        await controller.first(RankJoined)
        last_seq = controller.reports[-1].seq
        (failed,) = controller.observed(LaunchFailed)
        assert name(failed) == (2, 1)
        assert "has exited" in failed.reason
        assert names(controller.observed(RankJoined)) == [(2, 0)]
        assert names(controller.observed(RankExited)) == [(1, 1)]
    await replace_agent(node)
    async with node.controller(last_seq=last_seq) as controller:
        assert (await controller.start_ranks(*ranks, command_id="two")).error is None
        await controller.first(IterationCommitted)
        assert not controller.observed(LaunchFailed)


async def test_process_that_ends_at_its_join_exits_as_the_rank_it_was_to_be(
    node: AgentNode,
) -> None:
    script = Script(is_ended_by_join=True, exit_code=7)
    ranks = [going_on(2, 0, was=(1, 0), script=script), going_on(2, 1, was=(1, 1))]
    async with node.controller() as controller:
        await start_and_halt(controller, num_ranks=2)
        assert (await controller.start_ranks(*ranks, command_id="two")).error is None
        exited = await controller.first(RankExited)
        assert (name(exited), exited.exit_code, exited.is_expected) == ((2, 0), 7, False)
        assert (await controller.start_ranks(*ranks, command_id="repeated")).error is None
        assert names(controller.observed(RankExited)) == [(2, 0)]
        assert not controller.observed(LaunchFailed)


async def test_a_controller_of_another_run_ends_no_parked_rank(node: AgentNode) -> None:
    async with node.controller() as controller:
        await start_and_halt(controller)
        before = record_pids(node)
    async with node.controller(run_id="run-2") as other:
        assert "1 rank(s) of another run live here" in await other.refusal()
    async with node.controller() as controller:
        assert await statuses(controller) == {(1, 0): before["gpt-a.1.0"]}


# --- an agent that dies in the middle ------------------------------------------------------


async def test_agent_killed_after_the_fence_is_completed_by_the_next(node: AgentNode) -> None:
    async with node.controller() as controller:
        await start_and_halt(controller)
        (pid,) = record_pids(node).values()
    node.kill()
    fence = {"scope": "fence", "name": "gpt-a", "value": 2}
    append_to_outbox(node, {"kind": "marked", "mark": fence})
    await node.start()
    async with node.controller() as controller:
        assert await statuses(controller) == {(1, 0): pid}
        done = await controller.start_ranks(going_on(2, 0, was=(1, 0)))
        assert done.error is None
        assert name(await controller.first(RankJoined)) == (2, 0)
        assert list(record_pids(node).values()) == [pid]


async def test_agent_killed_between_record_and_mark_is_completed_by_the_next(
    node: AgentNode,
) -> None:
    """Without the controller's help, and a repeated command finds all done."""
    rank = going_on(2, 0, was=(1, 0))
    async with node.controller() as controller:
        await start_and_halt(controller)
        (pid,) = record_pids(node).values()
        last_seq = controller.reports[-1].seq
    node.kill()
    path = node.state_dir / "ranks" / "gpt-a.1.0.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "became": rank.model_dump(mode="json")}))
    half_written(path, "a half-written record of a later name")
    await node.start()
    async with node.controller(last_seq=last_seq) as controller:
        assert await statuses(controller) == {(2, 0): pid}
        assert name(await controller.first(RankJoined)) == (2, 0)
        assert (await controller.start_ranks(rank)).error is None
        assert list(record_pids(node).values()) == [pid]
        assert not controller.observed(RankStarted)
        assert len(controller.observed(RankJoined)) == 1


async def test_agent_killed_before_the_join_was_sent_is_completed_by_the_next(
    node: AgentNode,
) -> None:
    async with node.controller() as controller:
        await start_and_halt(controller)
        (pid,) = record_pids(node).values()
    (node.state_dir / "silence").touch()
    await replace_agent(node)
    async with node.controller() as controller:
        done = await controller.start_ranks(going_on(2, 0, was=(1, 0)))
        assert done.error is None
    await replace_agent(node)
    async with node.controller() as controller:
        assert await statuses(controller) == {(2, 0): pid}
        assert not controller.observed(RankJoined)
        (node.state_dir / "silence").unlink()
        assert name(await controller.first(RankJoined)) == (2, 0)


def half_written(path: Path, text: str) -> None:
    path.with_name(path.name + ".tmp").write_text(f'{{"{text}')
