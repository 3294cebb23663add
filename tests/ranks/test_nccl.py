"""How NCCL's groups are ended. Groups are stand-ins: what is tried is who is told what, and when."""

import threading
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from nodeagent.rank import nccl
from nodeagent.rank.ledger import Ledger
from profiles.layout import Layout

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.timeout(60),
    pytest.mark.usefixtures("training_program"),
    pytest.mark.filterwarnings("ignore"),  # Megatron's own
]


class Backend:
    """What a group gives for its device: its abort ends when ``may_end`` says so."""

    def __init__(self, may_end: threading.Event | threading.Barrier, failure: str = "") -> None:
        self._may_end = may_end
        self._failure = failure
        self.is_aborted = False

    def abort(self) -> None:
        self._may_end.wait(10)
        self.is_aborted = True
        if self._failure:
            raise RuntimeError(self._failure)


class Group:
    """A process group as torch shows it."""

    def __init__(self, name: str, backend: Backend | None = None, device: str = "cuda") -> None:
        self.group_name = name
        self._device_types = [import_module("torch").device(device)]
        self._backend = backend

    def _get_backend(self, _device: object) -> Backend:
        assert self._backend is not None, "it can't be aborted"
        return self._backend


class Operation:
    def __init__(self, group: Group) -> None:
        self.group = group


@pytest.fixture(autouse=True)
def all_aborted() -> Iterator[None]:
    yield
    nccl.wait_for_aborts()


def abort(group: Group) -> None:
    stand_in: Any = group
    nccl.abort(stand_in)


def test_groups_are_aborted_at_the_same_time() -> None:
    both = threading.Barrier(2)
    backends = [Backend(both), Backend(both)]
    for number, backend in enumerate(backends):
        abort(Group(str(number), backend))
    nccl.wait_for_aborts()
    assert [backend.is_aborted for backend in backends] == [True, True]
    assert not both.broken, "each would have waited for the other in vain"


def test_whoever_aborts_does_not_wait() -> None:
    may_end = threading.Event()
    backend = Backend(may_end)
    abort(Group("slow", backend))
    assert not backend.is_aborted
    may_end.set()
    nccl.wait_for_aborts()
    assert backend.is_aborted


def test_an_abort_that_fails_is_told_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    may_end = threading.Event()
    may_end.set()
    abort(Group("broken", Backend(may_end, "unhandled system error\nstack")))
    nccl.wait_for_aborts()
    assert [record.getMessage() for record in caplog.records] == [
        "aborting broken: unhandled system error"
    ]


def test_groups_of_host_memory_are_left_alone() -> None:
    abort(Group("copies", device="cpu"))


def test_no_batch_begins_on_a_group_that_is_aborted() -> None:
    begun: list[str] = []

    def launch(operations: list[Any]) -> list[Any]:
        begun.append(operations[0].group.group_name)
        return []

    batch: Any = nccl._unless_aborted(launch)
    may_end = threading.Event()
    doomed, other = Group("doomed", Backend(may_end)), Group("other")
    batch([Operation(doomed)])
    abort(doomed)
    with pytest.raises(RuntimeError, match="aborted"):
        batch([Operation(doomed)])
    batch([Operation(other)])
    may_end.set()
    nccl.wait_for_aborts()
    batch([Operation(doomed)])  # of the next generation
    assert begun == ["doomed", "other", "doomed"]


def test_an_abort_waits_for_a_batch_that_is_being_launched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nccl, "_GRACE_S", 0.0)
    may_end = threading.Event()
    may_end.set()
    backend = Backend(may_end)
    group = Group("pipeline", backend)
    was_aborted: list[bool] = []

    def launch(_: object) -> list[Any]:
        abort(group)
        nccl._aborts[-1].join(0.2)
        was_aborted.append(backend.is_aborted)
        return []

    batch: Any = nccl._unless_aborted(launch)
    batch([Operation(group)])
    nccl.wait_for_aborts()
    assert (was_aborted, backend.is_aborted) == ([False], True)


def test_a_group_of_others_is_no_group() -> None:
    parallel: Any = import_module("nodeagent.rank.parallel")
    place = import_module("nodeagent.rank.place").Place(
        0, Layout(), import_module("torch").device("cpu")
    )
    groups = parallel.Groups(None, place, "nccl")
    made: list[Any] = []
    others = import_module("torch").distributed.GroupMember.NON_GROUP_MEMBER
    assert groups._make(made, lambda: others) == others
    assert (groups._made, made[0].group) == ([], None)
    made[0].cut()


# --- what a rank that broke off may claim ----------------------------------------------------------


def settled(
    monkeypatch: pytest.MonkeyPatch, layout: Layout, *, is_cut: bool = False, is_done: bool = True
) -> Ledger:
    """Return the ledger of a rank that broke off while buckets were on their way."""
    iteration: Any = import_module("nodeagent.rank.iteration")
    torch = import_module("torch")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_backend", lambda: "nccl")
    monkeypatch.setattr(iteration, "device_ends_soon", lambda: is_done)
    iterations = iteration.Iterations.__new__(iteration.Iterations)
    cpu = torch.device("cpu")
    iterations._place = import_module("nodeagent.rank.place").Place(0, layout, cpu)
    iterations._ledger = ledger = Ledger(has_state=True, reduced={"a"})
    ledger.count(0, 1.0, 1.0)
    iterations.settle(is_inner_cut=is_cut)
    return ledger


def test_what_was_reduced_when_the_iteration_broke_off_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = settled(monkeypatch, Layout(dp=2), is_cut=True, is_done=False)
    # The sums of a rank that is its whole replica come from nobody else.
    assert (ledger.is_spoilt, ledger.is_torn) == (True, False)


@pytest.mark.parametrize(
    ("is_cut", "is_done", "is_torn"),
    [(False, True, False), (True, True, True), (False, False, True)],
    ids=["whole", "its mates broke off", "the device waits for a mate"],
)
def test_sums_of_a_split_replica_are_kept_where_no_mate_can_have_broken_off(
    monkeypatch: pytest.MonkeyPatch, *, is_cut: bool, is_done: bool, is_torn: bool
) -> None:
    ledger = settled(monkeypatch, Layout(tp=2, dp=2), is_cut=is_cut, is_done=is_done)
    assert ledger.is_torn is is_torn
