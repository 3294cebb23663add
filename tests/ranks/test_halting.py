"""Waiting for a collective: for as long as it takes, but not once its generation was halted."""

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.futures import Future  # noqa: TID253

from nodeagent.rank.groups.halting import Connections, StuckWorkError, wait_unless_halted
from tests.fakes.rank_host import REPOSITORY

pytestmark = pytest.mark.ranks


class Work:
    """A collective as torch shows it: what becomes of it comes by its future, in another thread."""

    def __init__(self, failure: str = "") -> None:
        self._future: Future[list[object]] = Future()
        self._failure = failure

    def end(self) -> None:
        self._future.set_result([])

    def is_completed(self) -> bool:
        return self._future.done()

    def get_future(self) -> Future[list[object]]:
        return self._future

    def wait(self) -> bool:
        assert self._future.done()
        if self._failure:
            raise RuntimeError(self._failure)
        return True


def test_work_that_has_ended_is_not_waited_for() -> None:
    work = Work()
    work.end()
    wait_unless_halted(work, lambda: pytest.fail("looked"))  # type: ignore[arg-type]


@pytest.mark.parametrize("is_halted", [False, True])
def test_work_that_ends_in_time_is_waited_for(is_halted: bool) -> None:
    work = Work()

    def look() -> bool:
        if not work.is_completed():
            work.end()
        return is_halted

    wait_unless_halted(work, look)  # type: ignore[arg-type]
    assert work.is_completed()


def test_a_failure_is_passed_on() -> None:
    work = Work("Connection closed by peer")
    work.end()
    with pytest.raises(RuntimeError, match="closed by peer"):
        wait_unless_halted(work, lambda: False)  # type: ignore[arg-type]


def test_work_that_never_ends_is_given_up_once_halted() -> None:
    halted = threading.Event()
    threading.Timer(0.3, halted.set).start()
    with pytest.raises(StuckWorkError):
        wait_unless_halted(Work(), halted.is_set)  # type: ignore[arg-type]
    assert halted.is_set()


class SingleTransfer:
    """A send or receive of gloo: without a future, and ended only by whoever waits for it."""

    def __init__(self, failure: str = "") -> None:
        self._failure = failure
        self.may_end = threading.Event()

    def is_completed(self) -> bool:
        return False

    def get_future(self) -> None:
        raise RuntimeError("Work::getFuture not implemented.")

    def wait(self) -> bool:
        self.may_end.wait(10)
        if self._failure:
            raise RuntimeError(self._failure)
        return True


@pytest.mark.parametrize("failure", ["", "Connection closed by peer"])
def test_a_single_transfer_is_waited_for_and_its_failure_passed_on(failure: str) -> None:
    work = SingleTransfer(failure)
    threading.Timer(0.2, work.may_end.set).start()
    failed = pytest.raises(RuntimeError, match=failure) if failure else contextlib.nullcontext()
    with failed:
        wait_unless_halted(work, lambda: False)  # type: ignore[arg-type]
    assert work.may_end.is_set()


def test_a_single_transfer_that_never_ends_is_given_up_once_halted() -> None:
    work = SingleTransfer()
    with pytest.raises(StuckWorkError):
        wait_unless_halted(work, lambda: True)  # type: ignore[arg-type]
    work.may_end.set()


TRANSFER = """
import functools, os, signal, sys
from torch import distributed
import torch
from nodeagent.rank.groups.halting import StuckWorkError, wait_unless_halted
from nodeagent.rank.state.shard_distribution import _move

rank, store = int(sys.argv[1]), sys.argv[2]
distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
distributed.barrier()
if rank:
    os.kill(os.getpid(), signal.SIGSTOP)
wait = functools.partial(wait_unless_halted, is_halted=lambda: True)
try:
    _move(distributed.isend, torch.ones(1 << 24), 1, wait)
except StuckWorkError:
    print("given up", flush=True)
os._exit(0)
"""
"""Rank 0 sends more than connections hold to a peer that is stopped."""


def test_a_state_that_is_sent_in_part_holds_no_rank(tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", TRANSFER, str(rank), str(tmp_path / "store")],
            cwd=REPOSITORY, stdout=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        said, _ = ranks[0].communicate(timeout=30)
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    assert said == "given up\n"


@pytest.fixture
def pair() -> Iterator[tuple[Connections, socket.socket, socket.socket]]:
    """A TCP connection whose first end was made while its group was recorded."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connections = Connections()
        with connections.recording():
            own = socket.create_connection(server.getsockname())
        peer, _ = server.accept()
    peer.settimeout(0.2)
    with own, peer:
        yield connections, own, peer
    connections.close()


def test_cut_ends_what_this_rank_receives_and_nothing_for_its_peer(
    pair: tuple[Connections, socket.socket, socket.socket],
) -> None:
    connections, own, peer = pair
    connections.halt()
    connections.halt()
    assert own.recv(1) == b""
    own.close()  # as gloo does then
    for _ in range(3):
        peer.send(b"still")
    with pytest.raises(TimeoutError):
        peer.recv(1)


def test_hang_up_ends_it_for_the_peer_and_holds_nothing(
    pair: tuple[Connections, socket.socket, socket.socket],
) -> None:
    connections, own, peer = pair
    before = num_descriptors()
    connections.halt()
    own.close()
    connections.close()
    assert peer.recv(1) == b""
    assert num_descriptors() == before - 1


def test_another_groups_connections_are_left_alone(
    pair: tuple[Connections, socket.socket, socket.socket],
) -> None:
    connections, own, peer = pair
    before = num_descriptors()
    Connections().close()
    with connections.recording():
        pass
    peer.send(b"x")
    assert own.recv(1) == b"x"
    assert num_descriptors() == before


def num_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.timeout(90)
@pytest.mark.parametrize("num_pairs", [20, pytest.param(60, marks=pytest.mark.thorough)])
def test_cut_connections_wake_ranks_in_the_middle_of_an_exchange(num_pairs: int) -> None:
    command = [sys.executable, "-m", "tests.fakes.halted_pairs", str(num_pairs)]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, cwd=REPOSITORY)
    # Of what is sent in pieces gloo may forget one. Connections ended at once cost a tenth of the
    # ranks.
    assert int(ended.stdout) <= num_pairs // 20
