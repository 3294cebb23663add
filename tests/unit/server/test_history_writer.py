"""The history's writer at its end: nothing that it was given is lost."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from controller.core.instructions import Announce
from controller.core.machine import Machine
from controller.server.compactor import Retention
from controller.server.history_writer import HistoryWriter
from controller.store.history import HISTORY_NAME, HistoryLine, read_rows


def line(event: int) -> HistoryLine:
    return HistoryLine(event, 0, 1.0, Announce(event, "info", "node", "n1", f"line {event}"))


async def test_a_write_that_is_under_way_at_the_end_is_waited_for(tmp_path: Path) -> None:
    path, notes = tmp_path / HISTORY_NAME, list[str]()
    writer = HistoryWriter(tmp_path, Machine().state, Retention(), lambda: 1.0, notes.append)
    writer.add([line(1)])
    await writer.write()
    async with asyncio.TaskGroup() as group:
        with closing(sqlite3.connect(path)) as other:
            other.execute("begin immediate")
            writer.add([line(2)])
            writing = group.create_task(writer.write())
            await asyncio.sleep(0.1)
            writer.add([line(3)])
            writing.cancel()
            await asyncio.sleep(0.2)
            assert not writing.done()
            other.rollback()
    writer.close()
    assert [row["event"] for row in read_rows(path, "lines")] == [1, 2, 3]
    assert notes == []
