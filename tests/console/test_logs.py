"""The screen of logs: lines by time, questions to the controller, filter, first faults."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from controller.api.views import ClusterView
from controller.api.wire import Command, ReadLogs, Reply
from tests.console.bench import Bench, console
from tests.fakes import cluster_views

OUTPUT = {
    0: "2025-12-31T14:01:00.000Z INFO iteration 5\n2025-12-31T14:01:07.500Z ERROR peers have gone\n"
    "Traceback (most recent call last):\nRuntimeError: Connection closed by peer [10.0.0.2]:4711\n",
    1: "2025-12-31T14:01:07.100Z INFO iteration 5\nTraceback (most recent call last):\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n",
}


def answer(command: Command, output: Mapping[int, str] = OUTPUT) -> Reply | None:
    if not isinstance(command, ReadLogs):
        return Reply(request_id=command.request_id, is_ok=True)
    logs: list[Any] = []
    for rank in command.ranks:
        text = output.get(rank, "")
        begin = command.after[rank].end if rank in command.after else 0
        logs.append(
            {"rank": rank, "node": "n1", "name": f"f{rank}", "begin": begin, "end": len(text),
             "text": text[begin:], "error": ""}
        )  # fmt: skip
    data: dict[str, Any] = {"logs": logs, "is_previous": command.is_previous}
    return Reply(request_id=command.request_id, is_ok=True, data=data)


async def opened(bench: Bench, *keys: str) -> None:
    bench.source.answer = answer
    await bench.press(*keys, "l")
    await bench.until(lambda: "OutOfMemoryError" in bench.screen)


def asked(bench: Bench) -> list[ReadLogs]:
    return [each for each in bench.source.asked if isinstance(each, ReadLogs)]


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (160, 48)])
async def test_ranks_and_events_are_merged_by_time(size: tuple[int, int]) -> None:
    async with console(cluster_views.calm(), *cluster_views.log(3), size=size) as bench:
        await opened(bench, "tab", "down")
        lines = bench.screen.splitlines()
        assert "LOGS gpt-a" in lines[1]
        times = [line.split()[0] for line in lines[2:-2] if line.strip()]
        assert times == sorted(times)
        assert any("events" in line for line in lines)
        assert all(len(line) <= size[0] for line in lines)


async def test_each_rank_is_read_from_where_it_was_read() -> None:
    async with console(cluster_views.calm(), size=(160, 48)) as bench:
        await opened(bench, "tab", "down")
        await bench.until(lambda: len(asked(bench)) > 1)
        first, second = asked(bench)[:2]
        assert (first.task, first.after) == ("gpt-a", {})
        assert {rank: each.end for rank, each in second.after.items()} == {
            rank: len(OUTPUT.get(rank, "")) for rank in first.ranks
        }
        await bench.press("escape")
        num = len(asked(bench))
        await bench.pilot.pause(1.3)
        assert len(asked(bench)) == num, "nobody asks once the screen is left"


async def test_the_first_fault_of_each_rank_is_named_the_earliest_first() -> None:
    async with console(cluster_views.calm(), size=(160, 48)) as bench:
        await opened(bench, "tab", "down")
        await bench.press("F")
        await bench.until(lambda: "FIRST FAULT" in bench.screen)
        first, second = [line for line in bench.screen.splitlines() if line.startswith(" 14:0")]
        assert "+0.000 s r1" in first
        assert "CUDA out of memory" in first
        assert "+0.400 s r0" in second
        await bench.press("escape")
        assert "LOGS gpt-a" in bench.screen, "escape goes back to the lines first"


async def test_a_filter_is_typed_and_cleared() -> None:
    async with console(cluster_views.calm(), size=(160, 48)) as bench:
        await opened(bench, "tab", "down")
        await bench.press("slash", *"memory", "q", "backspace")
        assert "/memory_" in bench.screen
        assert "iteration 5" not in bench.screen
        await bench.press("enter", "escape")
        assert "iteration 5" in bench.screen
        await bench.press("escape")
        assert "NODES" in bench.screen


async def test_a_node_has_the_logs_of_its_ranks_and_an_incident_those_of_its_task() -> None:
    view = cluster_views.healed()
    async with console(view, size=(160, 48)) as bench:
        bench.source.answer = answer
        await bench.press("down", "l")
        await bench.until(lambda: bool(asked(bench)))
        node = view.nodes[0]
        mine = [each.global_rank for each in node.workers if each.task == asked(bench)[0].task]
        assert list(asked(bench)[0].ranks) == sorted(each for each in mine if each is not None)
        assert f"on {node.node}" in bench.screen


async def test_one_key_shows_the_processes_before_and_back() -> None:
    def of_both(command: Command) -> Reply | None:
        is_before = isinstance(command, ReadLogs) and command.is_previous
        words = "killed in its last iteration" if is_before else "iteration 102"
        return answer(command, dict.fromkeys(range(4), f"{words}\n"))

    async with console(cluster_views.calm(), size=(160, 30)) as bench:
        bench.source.answer = of_both
        await bench.press("tab", "l")
        await bench.until(lambda: "iteration 102" in bench.screen)
        await bench.press("p")
        await bench.until(lambda: "killed in its last iteration" in bench.screen)
        assert "the process before" in bench.screen.splitlines()[1]
        assert "iteration 102" not in bench.screen
        await bench.press("p")
        await bench.until(lambda: "iteration 102" in bench.screen)
        assert "killed in its last iteration" not in bench.screen


async def test_a_controller_that_knows_no_former_processes_is_not_believed() -> None:
    def of_old(command: Command) -> Reply | None:
        found = answer(command)
        if found is not None and found.data is not None:
            found.data.pop("is_previous")
        return found

    async with console(cluster_views.calm(), size=(160, 30)) as bench:
        bench.source.answer = of_old
        await bench.press("tab", "l")
        await bench.until(lambda: "OutOfMemoryError" in bench.screen)
        await bench.press("p")
        await bench.until(lambda: "this controller is too old" in bench.screen)
        assert "OutOfMemoryError" not in bench.screen


async def test_without_ranks_or_answers_that_is_said() -> None:
    view: ClusterView = cluster_views.calm().model_copy(update={"tasks": [], "nodes": []})
    async with console(view, size=(100, 30)) as bench:
        await bench.press("l")
        assert "select a task" in bench.screen
    async with console(cluster_views.calm(), size=(160, 30)) as bench:
        bench.source.answer = lambda command: Reply(
            request_id=command.request_id,
            is_ok=False,
            code="unsupported",
            message="[b]not here[/b]",
        )
        await bench.press("l")
        await bench.until(lambda: "[b]not here[/b]" in bench.screen)


async def test_the_logs_of_an_incident_begin_at_its_fault() -> None:
    fault_at = 37.2
    incident = cluster_views.killed_rank()
    view = cluster_views.calm().model_copy(update={"incidents": [incident]})
    start_s = cluster_views.STARTED_WALL_S
    stamps = [datetime.fromtimestamp(start_s + second, tz=UTC) for second in range(200)]
    text = "".join(f"{each:%Y-%m-%dT%H:%M:%S}.000Z second {each:%M:%S}\n" for each in stamps)
    output = {0: text}
    async with console(view, size=(120, 24)) as bench:
        bench.source.answer = lambda command: answer(command, output)
        await bench.press("i", "l")
        await bench.until(lambda: "newer" in bench.screen)
        times = [line.split()[0] for line in bench.screen.splitlines()[2:-2]]
        fault = datetime.fromtimestamp(start_s + fault_at, tz=UTC)
        assert times[0] < f"{fault:%H:%M:%S}" < times[-1]
        await bench.press("end")
        assert "following" in bench.screen
