"""The thread that writes checkpoints: what others have left, and what goes wrong after one is complete."""

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from nodeagent.clock import SystemClock
from nodeagent.protocol.ids import Generation
from profiles.layout import Layout
from profiles.model import ModelShape

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.timeout(60),
    pytest.mark.usefixtures("training_program"),
    pytest.mark.filterwarnings("ignore"),  # Megatron's own
]

Lazy = Any
"""Something of torch or of ours, imported when a test runs: collecting tests stays fast."""

MODEL = ModelShape(num_layers=2, hidden_size=32, num_attention_heads=4, seq_length=32)
WAIT_S = 20.0
CLOCK = SystemClock()


def part_of(name: str) -> Lazy:
    return import_module(f"nodeagent.rank.checkpoint.{name}")


def order(iteration: int, layout: Layout, key: str, value: float, loss: float) -> Lazy:
    """Return the order to save one tensor."""
    torch = import_module("torch")
    manifest = part_of("manifest").Manifest(
        iteration=iteration, generation=1, layout=layout, model=MODEL, seed=1, settings="",
        loss=loss, optimizer=None, files=(), blocks=(),
    )  # fmt: skip
    tensor = torch.full((4,), value)
    block = part_of("whole").Block(key, torch.Size([4]), torch.Size([0]), tensor, True)
    snapshot = part_of("snapshot").Snapshot((block,), lambda: None)
    return part_of("saving").Order(manifest, snapshot, CLOCK.monotonic_s(), 0.0)


Start = Callable[..., Lazy]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that makes a rank's saver."""
    torch, savers = import_module("torch"), []

    def start(layout: Layout, rank: int = 0, *, kind: Lazy = None, give_up_s: float = 20.0) -> Lazy:
        kind = kind or part_of("directory").CheckpointDirectory
        place = import_module("nodeagent.rank.parallel").Place(rank, layout, torch.device("cpu"))
        savers.append(
            part_of("saving").Saver(
                kind(tmp_path, Generation(1)),
                place=place,
                num_kept=3,
                give_up_s=give_up_s,
                monotonic_s=CLOCK.monotonic_s,
                on_complete=lambda _: None,
            )
        )
        return savers[-1]

    yield start
    for saver in savers:
        saver.abandon()


def test_what_another_run_has_left_is_not_taken_for_a_part(start: Start, tmp_path: Path) -> None:
    layout = Layout(dp=2)
    before = start(layout, rank=1)
    before.run = "before"
    before.begin(order(20, layout, "b", 111.0, loss=2.5))
    assert before.wait(WAIT_S)
    before.skip(21, "no room on the disk")
    before.abandon()

    first, second = start(layout), start(layout, rank=1)
    first.run = second.run = "now"
    first.begin(order(20, layout, "a", 5.0, loss=2.5))
    assert not first.wait(0.3)
    second.begin(order(20, layout, "b", 6.0, loss=2.5))
    assert second.wait(WAIT_S)
    assert first.wait(WAIT_S)

    whole = import_module("torch").zeros(4)
    [block] = order(20, layout, "b", 0.0, loss=2.5).snapshot.blocks
    path = tmp_path / "iter_0000020"
    blocks = part_of("manifest").read_manifest(path).blocks
    part_of("reading").Reading(path, blocks, [block]).read()
    assert (block.tensor == whole + 6.0).all()
    assert not list(path.glob("part_*"))

    for saver, key in ((first, "a"), (second, "b")):
        saver.begin(order(21, layout, key, 7.0, loss=2.4))
    assert second.wait(WAIT_S)
    assert first.wait(WAIT_S)


def test_a_directory_that_can_not_be_listed_for_once_costs_no_later_checkpoint(
    start: Start,
) -> None:
    manifest = part_of("manifest")

    class Flaky(part_of("directory").CheckpointDirectory):  # type: ignore[misc]
        num_failures = 0

        def complete(self) -> Lazy:
            if not Flaky.num_failures:
                Flaky.num_failures += 1
                raise manifest.CheckpointError(f"{self.path} can't be read: Stale file handle")
            return super().complete()

    layout = Layout()
    saver = start(layout, kind=Flaky)
    for iteration in (1, 2):
        saver.begin(order(iteration, layout, "a", 1.0, loss=2.5))
        assert saver.wait(WAIT_S)
    assert Flaky.num_failures == 1
    assert [saved.iteration for saved in saver.take_completed()] == [1, 2]


def test_a_checkpoint_that_is_given_up_is_told_with_the_reason_of_whoever_had_it(
    start: Start,
) -> None:
    layout = Layout(dp=2)
    first, second = start(layout), start(layout, rank=1)
    second.skip(7, "no room on the disk")
    first.begin(order(7, layout, "a", 1.0, loss=2.5))
    assert not first.wait(WAIT_S)
    [missed] = first.take_missed()
    assert missed.iteration == 7
    assert "rank 1: no room on the disk" in missed.reason
    assert first.take_missed() == []
