"""The thread that writes checkpoints: remains of other runs, and late faults."""

import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from nodeagent.process_tools.node_clock import SystemNodeClock
from nodeagent.protocol.ids import Generation
from nodeagent.protocol.rank_launch import TrainingSpec
from profiles.layout import Layout
from tests.fakes.model_cases import TINY
from tests.fakes.rank_host import launches
from tests.fakes.wrapped import Lazy

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.timeout(60),
    pytest.mark.usefixtures("training_program"),
    pytest.mark.filterwarnings("ignore"),  # Megatron's own
]

WAIT_S = 20.0
CLOCK = SystemNodeClock()


def part_of(name: str) -> Lazy:
    return import_module(f"nodeagent.rank.checkpoint.{name}")


def order(iteration: int, layout: Layout, key: str, value: float, loss: float) -> Lazy:
    """Return the order to save one tensor."""
    torch = import_module("torch")
    manifest = part_of("manifest").Manifest(
        iteration=iteration, generation=1, layout=layout, model=TINY, seed=1, settings="",
        loss=loss, optimizer=None, files=(), blocks=(),
    )  # fmt: skip
    tensor = torch.full((4,), value)
    block = part_of("whole_model").Block(key, torch.Size([4]), torch.Size([0]), tensor, True)
    snapshot = part_of("snapshot").HostSnapshot((block,), lambda: None)
    return part_of("saving").SaveOrder(manifest, snapshot, CLOCK.monotonic_s(), 0.0)


Start = Callable[..., Lazy]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that makes a rank's saver."""
    torch, savers = import_module("torch"), []

    def start(layout: Layout, rank: int = 0, *, kind: Lazy = None, give_up_s: float = 20.0) -> Lazy:
        kind = kind or part_of("checkpoint_directory").CheckpointDirectory
        place = import_module("nodeagent.rank.groups.rank_place").Place(
            rank, layout, torch.device("cpu")
        )
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
    is_skipped = threading.Event()
    before.call(is_skipped.set)
    assert is_skipped.wait(WAIT_S)
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
    part_of("block_reading").BlockReading(path, blocks, [block]).read()
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

    class Flaky(part_of("checkpoint_directory").CheckpointDirectory):  # type: ignore[misc]
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


class KeyValueStore:
    """The store of a rank that is alone."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def set(self, key: str, value: str) -> None:
        self._values[key] = value.encode()

    def get(self, key: str) -> bytes:
        return self._values[key]


@pytest.fixture
def checkpoints(training: TrainingSpec) -> Iterator[Lazy]:
    """The checkpoints of a rank that is alone, with the losses of twenty iterations."""
    place = import_module("nodeagent.rank.groups.rank_place").Place(
        0, Layout(), import_module("torch").device("cpu")
    )
    [launch] = launches(training, Layout(), task="alone")
    made = part_of("task_checkpoints").Checkpoints(launch, place, lambda: False)
    for iteration in range(1, 21):
        made.note_loss(iteration, float(iteration))
    written = threading.Event()
    made._saver.call(written.set)
    assert written.wait(WAIT_S)
    yield made
    made.abandon()


def test_losses_after_copies_are_compared_also_when_a_fault_comes_between(
    checkpoints: Lazy,
) -> None:
    store = KeyValueStore()
    checkpoints.recall(3, store, is_from_copies=True)
    assert checkpoints.expected_loss(4) == 4.0
    checkpoints.recall(4, store, is_from_copies=False)
    assert checkpoints.expected_loss(5) == 5.0
    num_compared = part_of("recorded_losses").NUM_COMPARED
    checkpoints.recall(3 + num_compared, store, is_from_copies=False)
    assert checkpoints.expected_loss(4 + num_compared) is None


def test_state_that_was_distrusted_is_not_compared_any_more(checkpoints: Lazy) -> None:
    store = KeyValueStore()
    checkpoints.recall(3, store, is_from_copies=True)
    checkpoints.distrust(4, "its loss is not the recorded one")
    checkpoints.recall(4, store, is_from_copies=False)
    assert checkpoints.expected_loss(5) is None


def test_a_wrong_checkpoint_that_can_not_be_put_away_is_told(
    checkpoints: Lazy, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = part_of("manifest").CheckpointError
    kind = part_of("checkpoint_directory").CheckpointDirectory

    def refuse(directory: Lazy, *_: object) -> None:
        raise error(f"{directory.path} can't be changed: Read-only file system")

    monkeypatch.setattr(kind, "complete", lambda _: [(4, Path("4")), (2, Path("2"))])
    monkeypatch.setattr(kind, "candidates", lambda _: [SimpleNamespace(iteration=2)])
    monkeypatch.setattr(kind, "quarantine", refuse)
    checkpoints.recall(4, KeyValueStore(), is_from_copies=False)
    checkpoints._loaded = part_of("loading").Loaded(4, {})
    with pytest.raises(error, match=r"Read-only file system; its loss is not the recorded one"):
        checkpoints.distrust(5, "its loss is not the recorded one")


def test_the_last_checkpoint_stays_though_it_comes_of_a_wrong_one(
    checkpoints: Lazy, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, put_away = part_of("checkpoint_directory").CheckpointDirectory, []
    checkpoints.recall(10, KeyValueStore(), is_from_copies=False)
    checkpoints._loaded = part_of("loading").Loaded(10, {})
    # The wrong one was loaded, and has made way for those that followed.
    monkeypatch.setattr(kind, "complete", lambda _: [(16, Path("16")), (15, Path("15"))])
    manifests = [SimpleNamespace(iteration=16), SimpleNamespace(iteration=15)]
    monkeypatch.setattr(kind, "candidates", lambda _: manifests)
    monkeypatch.setattr(kind, "quarantine", lambda _, path, *__: put_away.append(path.name))
    with pytest.raises(part_of("manifest").CheckpointError, match="15 is not to be trusted"):
        checkpoints.distrust(17, "its loss is not the recorded one")
    assert put_away == ["16"]


def test_a_file_system_that_hangs_holds_up_no_regroup(start: Start) -> None:
    publishing, answers = threading.Event(), threading.Event()

    class Hanging(part_of("checkpoint_directory").CheckpointDirectory):  # type: ignore[misc]
        def publish(self, *arguments: Lazy) -> None:
            publishing.set()
            assert answers.wait(WAIT_S)
            super().publish(*arguments)

    saver = start(Layout(), kind=Hanging)
    saver.begin(order(1, Layout(), "a", 1.0, loss=2.5))
    assert publishing.wait(WAIT_S)
    assert not saver.abandon()
    answers.set()


def test_what_was_given_up_before_a_fault_is_told_after_it(
    checkpoints: Lazy, training: TrainingSpec
) -> None:
    checkpoints._saver.skip(6, "no room on the disk")
    [launch] = launches(training, Layout(), task="alone", generation=2)
    checkpoints.rejoin(launch, checkpoints._place)
    [missed] = checkpoints.missed()
    assert (missed.iteration, missed.reason) == (6, "no room on the disk")
    assert checkpoints.missed() == []
