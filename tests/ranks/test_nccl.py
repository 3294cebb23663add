"""How NCCL's groups are ended: the order of calls, with fake groups."""

import contextlib
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from nodeagent.rank.groups import nccl
from nodeagent.rank.iteration.ledger import Ledger
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
    """One of a batch."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.tensor = import_module("torch").zeros(1)


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


def test_an_abort_that_fails_is_logged_and_does_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    may_end = threading.Event()
    may_end.set()
    abort(Group("broken", Backend(may_end, "unhandled system error\nstack")))
    nccl.wait_for_aborts()
    assert [record.getMessage() for record in caplog.records] == [
        "abort of a process group failed: group=broken reason=unhandled system error"
    ]


def test_groups_of_host_memory_are_left_alone() -> None:
    abort(Group("copies", device="cpu"))
    assert not nccl._aborts


def test_no_batch_begins_on_a_group_that_is_aborted() -> None:
    begun: list[str] = []

    def launch(operations: list[Any]) -> list[Any]:
        begun.append(operations[0].group.group_name)
        return []

    batch: Any = nccl._whole_batches(launch)
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
    monkeypatch.setattr(nccl, "_LAUNCH_LIMIT_S", 60.0)
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

    batch: Any = nccl._whole_batches(launch)
    batch([Operation(group)])
    nccl.wait_for_aborts()
    assert (was_aborted, backend.is_aborted) == ([False], True)


def test_a_batch_that_is_not_taken_is_ended() -> None:
    ended: list[object] = []
    group = Group("pipeline")
    group._end_coalescing = ended.append  # type: ignore[attr-defined]
    batches: Any = import_module("torch").distributed.distributed_c10d._world.pg_coalesce_state

    def fail_in_batch(operations: list[Any]) -> list[Any]:
        batches[operations[0].group] = []
        raise RuntimeError("remote process exited")

    def fail_before(_: list[Any]) -> list[Any]:
        raise RuntimeError("not all of one group")

    for fail, expected in ((fail_before, 0), (fail_in_batch, 1)):
        batch: Any = nccl._whole_batches(fail)
        with pytest.raises(RuntimeError, match=r"remote|not all"):
            batch([Operation(group)])
        assert (len(ended), group in batches) == (expected, False)


def test_collectives_are_fenced_wherever_megatron_keeps_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch, mappings = (
        import_module("torch"),
        import_module("megatron.core.tensor_parallel.mappings"),
    )
    layers = import_module("megatron.core.tensor_parallel.layers")
    collectives = {id(getattr(torch.distributed, name)) for name in nccl._COLLECTIVES}
    collectives.add(id(torch.distributed.batch_isend_irecv))
    for caller in [each for name, each in sys.modules.items() if name.startswith(nccl._CALLERS)]:
        for name, value in list(vars(caller).items()):
            if id(value) in collectives:
                monkeypatch.setattr(caller, name, value)  # put back afterwards
    monkeypatch.setattr("os.environ", {})
    places = (
        (torch.distributed, "all_reduce"),
        (torch.distributed, "batch_isend_irecv"),
        (mappings, "dist_all_gather_func"),
        (layers, "dist_reduce_scatter_func"),
    )
    before = [getattr(*place) for place in places]
    nccl.prepare_nccl()
    for place, unfenced in zip(places, before, strict=True):
        assert getattr(*place).__wrapped__ is unfenced, place
    may_end = threading.Event()
    doomed = Group("doomed", Backend(may_end))
    abort(doomed)
    with pytest.raises(RuntimeError, match="was aborted"):
        torch.distributed.all_reduce(torch.zeros(1), group=doomed)
    may_end.set()


def test_a_group_of_others_is_no_group() -> None:
    parallel: Any = import_module("nodeagent.rank.groups.parallel_groups")
    place = import_module("nodeagent.rank.groups.rank_place").Place(
        0, Layout(), import_module("torch").device("cpu")
    )
    groups = parallel.ParallelGroups(None, place, "nccl")
    made: list[Any] = []
    others = import_module("torch").distributed.GroupMember.NON_GROUP_MEMBER
    assert groups._make(made, lambda: others) == others
    assert (groups._made, made[0].group) == ([], None)
    made[0].halt()


@pytest.mark.parametrize(("backend", "is_cut"), [("gloo", True), ("nccl", False)])
def test_a_rank_that_parks_wakes_its_peers_with_gloo_alone(backend: str, *, is_cut: bool) -> None:
    parallel: Any = import_module("nodeagent.rank.groups.parallel_groups")
    place = import_module("nodeagent.rank.groups.rank_place").Place(
        0, Layout(), import_module("torch").device("cpu")
    )
    groups = parallel.ParallelGroups(SimpleNamespace(close=lambda: None), place, backend)
    groups.wake_peers()
    assert groups._is_halted is is_cut


class Table:
    """A rendezvous table, with what was asked of it."""

    def __init__(self, num_formed: int) -> None:
        self._num_formed = num_formed
        self.asked: list[str] = []

    def add(self, _key: str, amount: int) -> int:
        self._num_formed += amount
        return self._num_formed

    def set(self, key: str, _value: bytes) -> None:
        self.asked.append(f"set {key}")

    def get(self, key: str) -> bytes:
        self.asked.append(f"get {key}")
        return b""


@pytest.mark.parametrize(("num_before", "opens"), [(0, False), (1, True)], ids=["first", "last"])
def test_groups_are_connected_when_all_ranks_have_come(
    monkeypatch: pytest.MonkeyPatch, num_before: int, *, opens: bool
) -> None:
    parallel: Any = import_module("nodeagent.rank.groups.parallel_groups")
    cpu = import_module("torch").device("cpu")
    place = import_module("nodeagent.rank.groups.rank_place").Place(0, Layout(dp=2), cpu)
    table = Table(num_before)
    monkeypatch.setattr(parallel, "_groups_of_iterations", lambda: ["world"])
    monkeypatch.setattr(parallel, "_use_each", lambda groups, _: table.asked.append(groups[0]))
    parallel.ParallelGroups(table, place, "nccl")._connect()
    door = "unicron/all_formed"
    assert table.asked == [*([f"set {door}"] if opens else []), f"get {door}", "world"]


# --- what a rank that broke off may claim
# ----------------------------------------------------------


def settled(
    monkeypatch: pytest.MonkeyPatch,
    layout: Layout,
    *,
    is_cut: bool = False,
    is_done: bool = True,
    is_sharded: bool = False,
    has_computed: bool = True,
) -> Ledger:
    """Return the ledger of a rank that broke off while buckets were on their way."""
    iteration: Any = import_module("nodeagent.rank.iteration.iteration_phases")
    torch = import_module("torch")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_backend", lambda: "nccl")
    cuts = [False]

    def ends_soon() -> bool:
        cuts[0] = is_cut  # while the device is waited for
        return is_done

    monkeypatch.setattr(iteration, "device_ends_soon", ends_soon)
    kind = (
        import_module("nodeagent.rank.state.sharded_adam").ShardedOptimizer
        if is_sharded
        else object
    )
    iterations = iteration.Iterations.__new__(iteration.Iterations)
    cpu = torch.device("cpu")
    iterations._place = import_module("nodeagent.rank.groups.rank_place").Place(0, layout, cpu)
    iterations._ledger = ledger = Ledger(has_state=True, reduced={"a"})
    iterations._loop = SimpleNamespace(optimizer=object.__new__(kind))
    if has_computed:
        ledger.count(0, 1.0, 1.0)
    iterations.settle(lambda: cuts[0])
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


def test_what_was_computed_with_parameters_of_others_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert settled(monkeypatch, Layout(dp=2), is_sharded=True).is_torn
    assert not settled(monkeypatch, Layout(dp=1), is_sharded=True).is_torn
    assert not settled(monkeypatch, Layout(dp=2), is_sharded=True, has_computed=False).is_torn


@pytest.mark.parametrize("num_there", [1, 2])
def test_state_counts_when_all_ranks_have_come_past_its_transfer(
    monkeypatch: pytest.MonkeyPatch, num_there: int
) -> None:
    iteration: Any = import_module("nodeagent.rank.iteration.iteration_phases")
    stream = SimpleNamespace(synchronize=lambda: None)
    monkeypatch.setattr(import_module("torch").cuda, "current_stream", lambda: stream)
    iterations = iteration.Iterations.__new__(iteration.Iterations)
    iterations.is_halted = lambda: False
    iterations._place = SimpleNamespace(
        device=SimpleNamespace(type="cuda"),
        layout=Layout(dp=2),
        sum_over_all=lambda numbers, _: [num_there * each for each in numbers],
    )
    broken = contextlib.nullcontext() if num_there == 2 else pytest.raises(RuntimeError)
    with broken:
        iterations.check_complete()


# --- waiting
# ---------------------------------------------------------------------------------------


class Work:
    """A collective that has ended, well or not."""

    def __init__(self, result: object) -> None:
        self._result = result
        self.is_waited_for = False

    def is_completed(self) -> bool:
        return True

    def get_future_result(self) -> Any:  # noqa: ANN401 - torch's
        return SimpleNamespace(done=lambda: self._result is not None, value=lambda: self._result)

    def wait(self) -> None:
        self.is_waited_for = True


def wait(monkeypatch: pytest.MonkeyPatch, work: Any, *, is_halted: bool = False) -> None:  # noqa: ANN401
    wake = import_module("nodeagent.rank.groups.halting")
    torch = import_module("torch")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_backend", lambda: "nccl")
    wake.wait_unless_halted(work, lambda: is_halted)


@pytest.mark.parametrize("result", [0, None], ids=["told", "not told"])
def test_a_collective_that_went_well_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, result: int | None
) -> None:
    work = Work(result)
    wait(monkeypatch, work)
    assert work.is_waited_for


def test_a_collective_that_failed_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(2)
    with pytest.raises(RuntimeError, match="COMM_ERROR"):
        wait(monkeypatch, work)
    assert not work.is_waited_for


def test_once_halted_nothing_is_asked_of_a_collective(monkeypatch: pytest.MonkeyPatch) -> None:
    halted = import_module("nodeagent.rank.groups.halting").HaltedError
    with pytest.raises(halted):
        wait(monkeypatch, object(), is_halted=True)
