"""Five questions about each of seven faults are answered within three keys.

The faults happen to a make-believe cluster with the controller's own core. Its views are shown.
"""

from collections.abc import Callable
from typing import Final

import pytest
from typing_extensions import override

from controller.api.projection import Frame, project
from controller.api.views import ClusterView, LogLevel, LogLine
from controller.core.events import Event, StragglerFound
from controller.core.instructions import Announce, Instruction
from nodeagent.protocol.findings import NodeFinding
from nodeagent.protocol.ids import TaskId
from tests.console.bench import console
from tests.fakes.cluster_views import STARTED_WALL_S
from tests.fakes.world import World
from tests.property.test_machine import machine

A = TaskId("gpt-a")


class SpokenWorld(World):
    """A world that keeps what is said."""

    def __init__(self, *, is_auto_heal: bool) -> None:
        self.lines: list[LogLine] = []
        core = machine(is_auto_heal=is_auto_heal, is_sharded=False)
        super().__init__(core, 1, num_iterations=10**6)
        self.run(20.0)

    @override
    def note_handled(self, event: Event, instructions: list[Instruction]) -> None:
        for each in instructions:
            if isinstance(each, Announce) and each.level != "trace":
                self.lines.append(
                    LogLine(
                        seq=len(self.lines) + 1, at=event.at, level=LogLevel(each.level),
                        source=each.source, text=each.text,
                    )
                )  # fmt: skip

    def shown(self) -> ClusterView:
        """Return the view of this moment."""
        policy = self.machine.policy
        frame = Frame("demo", STARTED_WALL_S, policy.is_auto_heal, policy=policy)
        return project(self.machine.state, self.now, frame)


def killed_rank() -> SpokenWorld:
    world = SpokenWorld(is_auto_heal=True)
    world.kill_rank(A, 1)
    world.run(world.now + 10)
    return world


def hang() -> SpokenWorld:
    world = SpokenWorld(is_auto_heal=True)
    world.hang_rank(A, 0)
    world.run(world.now + 20)
    return world


def lost_node() -> SpokenWorld:
    world = SpokenWorld(is_auto_heal=False)
    world.lose_node("n4")
    world.run(world.now + 8)
    return world


def partition() -> SpokenWorld:
    world = SpokenWorld(is_auto_heal=True)
    world.cut("n2", 60.0)
    world.run(world.now + 25)
    return world


def nan_twice() -> SpokenWorld:
    world = SpokenWorld(is_auto_heal=True)
    for _ in range(2):
        world.raise_in_rank(A, 0, "ValueError", "loss is nan")
        world.run(world.now + 15)
    return world


def slow_rank() -> SpokenWorld:
    world = SpokenWorld(is_auto_heal=True)
    generation = world.machine.state.tasks[A].generation
    world.post(StragglerFound(A, generation, 0, 0.9, 0.2, 0.0))
    return world


def full_disk() -> SpokenWorld:
    world = SpokenWorld(is_auto_heal=True)
    world.find(
        "n3",
        NodeFinding(probe="disk", sign="disk_full", subject="/x", text="/x is full", value=99.0),
    )
    world.run(world.now + 1)
    return world


Question = tuple[str, str]
"""Keys, and a text that must be on the screen then."""
_ANSWERS: Final[dict[Callable[[], SpokenWorld], dict[str, Question]]] = {
    killed_rank: {
        "what is wrong": ("", "SEV2  exited_abnormally  gpt-a rank 1 on n1"),
        "why": ("i", "why        rank 1 was ended by SIGKILL"),
        "what does it cost": ("i", "s from the fault to the next iteration"),
        "what to do": ("i", "type       unicron explain I-1"),
        "is it over": ("", "✓ resolved"),
    },
    hang: {
        "what is wrong": ("", "SEV2  task_hang     gpt-a rank 0 on n1"),
        "why": ("i", "why        rank 0 hangs: stopped by a signal"),
        "what does it cost": ("i", "9 micro-batches kept, 3 computed again"),
        "what to do": ("l", "LOGS gpt-a"),
        "is it over": ("i", "state      ✓ resolved"),
    },
    lost_node: {
        "what is wrong": ("", "✕ lost"),
        "why": ("", "seen  n4 is lost: its SSH port refuses n1, n2, n3, n5"),
        "what does it cost": ("", "cost  waiting costs 0.7 GPU-minutes a minute"),
        "what to do": ("", "ctrl+t, then A or X"),
        "is it over": ("i", "state      ? decided"),
    },
    partition: {
        "what is wrong": ("", "? unreachable"),
        "why": ("down down enter", "presumed training: gpt-a has reached iteration"),
        "what does it cost": ("", "WAF 100% of full"),
        "what to do": ("down down enter", "unicron unreachable n2"),
        "is it over": ("", "1 unreachable"),
    },
    nan_twice: {
        "what is wrong": ("", "SEV2  nan_loss      gpt-a rank 0 on n1"),
        "why": ("i", "why        rank 0 raised ValueError: loss is nan"),
        "what does it cost": ("i", "s from the fault to the next iteration"),
        "what to do": ("i", "type       unicron explain I-2"),
        "is it over": ("i", "state      ✓ resolved"),
    },
    slow_rank: {
        "what is wrong": ("", "rank 0 on n1 takes 0.900 s for its micro-batches, its peers 0.200 s"),
        "why": ("", "takes 0.900 s for its micro-batches, its peers 0.200 s"),
        "what does it cost": ("", "WAF 100% of full"),
        "what to do": ("down enter", "unicron drain n1"),
        "is it over": ("tab down enter", "late above"),
    },
    full_disk: {
        "what is wrong": ("", "▲ warning   node n3: disk: /x is full"),
        "why": ("", "disk, /x: /x is full"),
        "what does it cost": ("", "WAF 100% of full"),
        "what to do": ("", "unicron nodes n3"),
        "is it over": ("", "ALERTS 1"),
    },
}  # fmt: skip


@pytest.mark.parametrize("fault", _ANSWERS, ids=lambda fault: fault.__name__)
async def test_each_question_is_answered_within_three_keys(
    fault: Callable[[], SpokenWorld],
) -> None:
    world = fault()
    for question, (keys, text) in _ANSWERS[fault].items():
        pressed = keys.split()
        assert len(pressed) <= 3
        async with console(world.shown(), *world.lines[-40:], size=(120, 40)) as bench:
            await bench.press(*pressed)
            await bench.settle()
            assert text in bench.screen, f"{question}: {bench.screen}"


async def test_the_newest_incident_that_is_open_is_opened_first() -> None:
    world = nan_twice()
    async with console(world.shown(), size=(120, 40)) as bench:
        await bench.press("i")
        assert "incident I-2" in bench.screen
    world.kill_rank("gpt-b", 0)
    world.run(world.now + 0.1)
    async with console(world.shown(), size=(120, 40)) as bench:
        await bench.press("i")
        assert "incident I-3" in bench.screen
    async with console(SpokenWorld(is_auto_heal=True).shown(), size=(120, 40)) as bench:
        await bench.press("i")
        assert "there is no incident" in bench.screen
