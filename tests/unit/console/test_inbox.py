"""Between two ticks only the newest of several snapshots is kept, and nothing else is lost."""

from console.client.source import Inbox
from console.viewmodel.reducer import ConsoleEvent, Received, Ticked
from controller.api.wire import LogLines, Snapshot
from tests.fakes import cluster_views


def test_a_snapshot_replaces_the_one_before_it() -> None:
    inbox = Inbox()
    old, new = (Received(at, Snapshot(view=cluster_views.calm(at))) for at in (1.0, 2.0))
    inbox.put(old)
    inbox.put(new)
    assert inbox.drain() == [new]
    assert inbox.drain() == []


def test_order_is_kept_around_other_events() -> None:
    inbox = Inbox()
    events: list[ConsoleEvent] = [
        Received(1.0, Snapshot(view=cluster_views.calm())),
        Received(1.1, LogLines(lines=cluster_views.log(2))),
        Received(1.2, Snapshot(view=cluster_views.waiting())),
        Ticked(1.3),
    ]
    for event in events:
        inbox.put(event)
    assert inbox.drain() == events
