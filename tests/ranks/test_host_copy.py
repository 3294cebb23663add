"""The order of waits while a GPU's tensors are copied to host memory, with a fake GPU."""

import contextlib
from importlib import import_module
from typing import Any

import pytest

pytestmark = pytest.mark.ranks


class Stream:
    """A stream, as what it was told to wait for."""

    def __init__(self) -> None:
        self.waited_for: list[object] = []

    def wait_stream(self, other: object) -> None:
        self.waited_for.append(other)

    def wait_event(self, event: object) -> None:
        self.waited_for.append(event)


class Event:
    """An event, with the stream that it was recorded on."""

    on: object = None

    def record(self, stream: object) -> None:
        self.on = stream

    def synchronize(self) -> None:
        assert self.on is not None


class Tensor:
    """A tensor on the GPU, or on the CPU, where there are no streams."""

    def __init__(self, *, is_cuda: bool) -> None:
        self.is_cuda = is_cuda
        self.read_on: list[object] = []
        self.copied_from: list[tuple[object, bool]] = []

    def record_stream(self, stream: object) -> None:
        assert self.is_cuda, "record_stream is not there for the CPU"
        self.read_on.append(stream)

    def copy_(self, source: "Tensor", *, non_blocking: bool) -> None:
        self.copied_from.append((source, non_blocking))


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Stream:
    """Return the stream of the training."""
    module = import_module("nodeagent.rank.tensors.host_copy")
    torch = import_module("torch")
    training = Stream()
    monkeypatch.setattr(module, "_copies", module._Copies())
    monkeypatch.setattr(module, "_stream", Stream)
    monkeypatch.setattr(module, "_event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: training)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
    return training


def test_the_next_update_waits_for_the_copies_and_nothing_before_it(training: Stream) -> None:
    module: Any = import_module("nodeagent.rank.tensors.host_copy")
    parameter, number = Tensor(is_cuda=True), Tensor(is_cuda=False)
    targets = [Tensor(is_cuda=False), Tensor(is_cuda=False)]
    wait = module.copy_to_host([parameter, number], targets)
    copies = module._copies.stream
    assert copies.waited_for == [training]
    assert [target.copied_from for target in targets] == [[(parameter, True)], [(number, False)]]
    assert parameter.read_on == [copies]
    assert training.waited_for == []
    wait()
    module.wait_on_device()
    module.wait_on_device()
    [event] = training.waited_for
    assert isinstance(event, Event)
    assert event.on is copies


def test_on_a_cpu_there_is_nothing_to_wait_for(training: Stream) -> None:
    module: Any = import_module("nodeagent.rank.tensors.host_copy")
    target = Tensor(is_cuda=False)
    module.copy_to_host([Tensor(is_cuda=False)], [target])()
    module.wait_on_device()
    assert len(target.copied_from) == 1
    assert (module._copies.stream, training.waited_for) == (None, [])
