"""Tracebacks, stacks and lines of logs on the screen of an incident."""

from collections.abc import Callable

from console.viewmodel.console_state import LinkPhase
from controller.api.views import ClusterView, EvidenceView
from controller.api.wire import Command, ReadEvidence, Reply
from tests.console.bench import Bench, console
from tests.fakes import cluster_views

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 7\nValueError: [b]x[/]'


def killed() -> ClusterView:
    incident = cluster_views.killed_rank()
    return cluster_views.calm().model_copy(update={"incidents": [incident]})


def piece(detail: str = TRACEBACK) -> EvidenceView:
    return EvidenceView(
        kind="exception", at=37.4, observed_at=37.3, node="n1", task="gpt-a", rank=1,
        summary="ValueError", detail=detail, log="/logs/gpt-a.1.log",
    )  # fmt: skip


def answering(*pieces: EvidenceView) -> Callable[[Command], Reply | None]:
    def answer(command: Command) -> Reply | None:
        assert isinstance(command, ReadEvidence)
        found = [each.model_dump(mode="json") for each in pieces]
        return Reply(request_id=command.request_id, is_ok=True, data={"evidence": list(found)})

    return answer


async def opened(bench: Bench) -> None:
    await bench.press("i")
    await bench.settle()


async def test_a_traceback_is_shown_and_asked_for_once() -> None:
    view = killed()
    async with console(view, size=(120, 60)) as bench:
        bench.source.answer = answering(piece())
        await opened(bench)
        for text in ("TRACEBACKS", "rank 1 on n1", "/logs/gpt-a.1.log", "ValueError: [b]x[/]"):
            assert text in bench.screen, text
        await bench.wait(5.0)
        assert len(bench.source.asked) == 1
        [incident] = view.incidents
        more = incident.model_copy(update={"evidence": [*incident.evidence, "another"]})
        bench.source.answer = answering(piece(), piece("thread 1: recv"))
        await bench.show(view.model_copy(update={"incidents": [more]}))
        await bench.settle()
        assert "thread 1: recv" in bench.screen


async def test_signs_that_paint_are_no_more_than_text() -> None:
    async with console(killed(), size=(80, 60)) as bench:
        bench.source.answer = answering(piece("\x1b[31mred\x1b[0m\tx\n" + "y" * 90_000))
        await opened(bench)
        assert "red" in bench.screen
        assert "\x1b" not in bench.screen
        assert max(map(len, bench.screen.splitlines())) <= 80


async def test_a_refusal_is_said() -> None:
    async with console(killed(), size=(120, 60)) as bench:
        bench.source.answer = lambda command: Reply(
            request_id=command.request_id, is_ok=False, code="unknown", message="it is not kept"
        )
        await opened(bench)
        assert "it is not kept" in bench.screen


async def test_another_kind_of_screen_asks_nothing() -> None:
    async with console(killed(), size=(120, 60)) as bench:
        await bench.press("tab", "down", "enter")
        await bench.settle()
        assert bench.source.asked == []


async def test_it_is_asked_again_after_the_connection_was_lost() -> None:
    async with console(killed(), size=(120, 60)) as bench:
        bench.source.answer = lambda _: None
        await opened(bench)
        assert "no reply within 10 s" in bench.screen
        bench.source.answer = answering(piece())
        await bench.wait(1.0)
        await bench.link(LinkPhase.LOST, "refused")
        await bench.link(LinkPhase.LIVE)
        await bench.show(killed())
        await bench.settle()
        assert "ValueError: [b]x[/]" in bench.screen
        assert len(bench.source.asked) == 2
