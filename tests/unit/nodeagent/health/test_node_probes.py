"""Probes on their intervals, and findings on their way into the outbox."""

import asyncio
import itertools
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from nodeagent.health.node_probes import ScheduledProbe
from nodeagent.outbox.finding_queue import FindingStore
from nodeagent.outbox.outbox_file import OutboxFile
from nodeagent.process_tools.node_clock import SystemNodeClock
from nodeagent.protocol.findings import NodeFinding
from nodeagent.protocol.messages import Report

FULL = NodeFinding(probe="disk", sign="disk_full", subject="/a", text="1 MiB free")


def judge(reading: str) -> Sequence[NodeFinding]:
    return [FULL.model_copy(update={"text": reading})]


async def run_until(look: ScheduledProbe[str], num_findings: int) -> list[NodeFinding]:
    """Run ``look`` until it has reported so much."""
    found: list[NodeFinding] = []
    enough = asyncio.Event()

    def report(finding: NodeFinding) -> None:
        found.append(finding)
        if len(found) >= num_findings:
            enough.set()

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        running = group.create_task(look.run(report))
        await enough.wait()
        running.cancel()
    return found


async def test_every_look_is_judged() -> None:
    readings = itertools.cycle("abc")
    look = ScheduledProbe("disk", 0.01, lambda: lambda: next(readings), judge, lambda: "a state")
    assert [found.text for found in await run_until(look, 3)] == ["a", "b", "c"]


async def test_probe_that_hangs_is_told_once_and_so_is_its_return() -> None:
    go_on = threading.Event()
    num_limits = 0

    def prepare() -> str:
        nonlocal num_limits
        num_limits += 1
        if num_limits == 4:
            go_on.set()
        return ""

    def work() -> str:
        go_on.wait(10)
        return "an answer"

    look = ScheduledProbe(
        "gpu", 0.01, lambda: (prepare(), work)[1], judge, lambda: "a state", limit_s=0.05
    )
    silent, back, answer = await run_until(look, 3)
    assert (silent.probe, silent.sign, silent.is_over) == ("gpu", "unreadable", False)
    assert "no answer" in silent.text
    assert back.is_over
    assert answer.text == "an answer"


async def test_probe_that_fails_is_told_and_what_it_had_found_is_not_over() -> None:
    failures = iter([False, True, True])

    def work() -> str:
        if next(failures, False):
            raise RuntimeError("the driver is being replaced")
        return "an answer"

    look = ScheduledProbe("gpu", 0.01, lambda: work, judge, lambda: "a state")
    answer, failed, over, again = await run_until(look, 4)
    assert (answer.text, again.text) == ("an answer", "an answer")
    assert (failed.sign, failed.text) == ("unreadable", "the gpu probe failed; see agent.log")
    assert (over.sign, over.is_over) == ("unreadable", True)


def test_findings_wait_in_order_while_the_outbox_can_not_be_written(tmp_path: Path) -> None:
    outbox = OutboxFile(tmp_path / "outbox.jsonl")
    store = FindingStore(outbox, SystemNodeClock())
    working = outbox._file
    outbox._file = os.open("/dev/full", os.O_WRONLY)
    for text in ("a", "b"):
        store.report(FULL.model_copy(update={"text": text}))
    assert not list(outbox.outbox.after(0))
    os.close(outbox._file)
    outbox._file = working
    store.flush()
    store.report(FULL.model_copy(update={"text": "c"}))
    reports = [Report.model_validate_json(held.line) for held in outbox.outbox.after(0)]
    texts = [one.observation.text for one in reports if isinstance(one.observation, NodeFinding)]
    assert texts == ["a", "b", "c"]
    outbox.close()


def test_what_holds_is_told_to_the_next_run_of_the_controller(tmp_path: Path) -> None:
    outbox = OutboxFile(tmp_path / "outbox.jsonl")
    store = FindingStore(outbox, SystemNodeClock())
    event = FULL.model_copy(update={"sign": "link_changed", "subject": "eth0"})
    passed = FULL.model_copy(update={"subject": "/b"})
    for finding in (FULL, event, passed, passed.model_copy(update={"is_over": True})):
        store.report(finding)
    outbox.attach("run-2", 1, 0, [])
    assert not list(outbox.outbox.after(0))
    store.report_again()
    (held,) = outbox.outbox.after(0)
    assert Report.model_validate_json(held.line).observation == FULL
    outbox.close()
