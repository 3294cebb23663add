"""Replaces a node's agent and the controller's rendezvous, so that real ranks run in a test.

One thread serves ``ranks.sock`` (store calls from ``RendezvousTables``, reports, pulses) and keeps
what ranks said; a real template, started once, forks the ranks. ``cut_connections`` and
``stop_storing`` play an agent that dies or can't write.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from controller.fleet.rendezvous_tables import RendezvousTables
from nodeagent.protocol.codec import Codec, LineSplitter, encode
from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.local import (
    AskStanding,
    ForkRank,
    ForkRefused,
    FromRank,
    FromTemplate,
    Join,
    RankForked,
    RankHello,
    RankPulse,
    RankReport,
    RankStands,
    ReportStored,
    TemplateHello,
)
from nodeagent.protocol.observations import AnyObservation, IterationCommitted, RankRaised
from nodeagent.protocol.orders import HaltOrder
from nodeagent.protocol.rank_launch import RankLaunch, TrainingSpec
from nodeagent.protocol.regroup import Position
from nodeagent.protocol.rendezvous import StoreCall
from nodeagent.protocol.standing import Standing
from profiles.layout import Layout
from tests.fakes.fault_points import Fault, FaultPlan, plan_path
from tests.fakes.polling import PolledT

REPOSITORY = Path(__file__).parents[2]
TEMPLATE = "nodeagent.rank.process.template"
FAULTY_TEMPLATE = "tests.fakes.faulty_template"
FAULTY_GPU_TEMPLATE = "tests.fakes.faulty_gpu_template"
RankKey = tuple[str, int, int]
"""Task, generation and global rank."""


def key_of(launch: RankLaunch) -> RankKey:
    return (launch.task, launch.generation, launch.global_rank)


def launches(
    training: TrainingSpec, layout: Layout, *, task: str = "gpt", generation: int = 1
) -> list[RankLaunch]:
    """Return one launch per rank of ``layout``."""
    return [
        RankLaunch(
            task=TaskId(task),
            generation=Generation(generation),
            global_rank=global_rank,
            worker=global_rank,
            layout=layout,
            training=training,
        )
        for global_rank in range(layout.num_workers)
    ]


@dataclass
class RankRecord:
    """What one rank said."""

    hellos: list[RankHello] = field(default_factory=list)
    received: list[RankReport] = field(default_factory=list)
    """Every report as it came, repetitions included."""
    pulses: list[RankPulse] = field(default_factory=list)
    standings: list[Standing] = field(default_factory=list)
    """Where it said that it stands, whenever it was asked."""

    @property
    def observations(self) -> list[AnyObservation]:
        """The reports without repetitions, in the order of their numbers."""
        by_seq = {report.seq: report.observation for report in self.received}
        return [by_seq[seq] for seq in sorted(by_seq)]

    def of_kind(self, kind: str) -> list[Any]:
        return [one for one in self.observations if one.kind == kind]

    @property
    def loss_by_iteration(self) -> dict[int, float]:
        return {
            one.iteration: one.loss
            for one in self.observations
            if isinstance(one, IterationCommitted) and one.loss is not None
        }


@dataclass(eq=False)
class _Peer:
    connection: socket.socket
    splitter: LineSplitter = field(default_factory=LineSplitter)
    rank: RankKey | None = None


class RankHost:
    """The agent's side of a state directory.

    Args:
        state_dir: Where; a short path.
        template: Module that is run as the template.
    """

    def __init__(self, state_dir: Path, template: str = TEMPLATE) -> None:
        self.state_dir = state_dir
        self._template_module = template
        self.num_store_calls = 0
        self._codec: Codec[Any] = Codec(TypeAdapter(FromRank))
        self._tables: RendezvousTables[_Peer] = RendezvousTables()
        self._records: dict[RankKey, RankRecord] = {}
        self._peers: set[_Peer] = set()
        self._changed = threading.Condition()
        self._is_storing = True
        self._is_closing = False
        self._num_replies_to_lose = 0
        self._pids: set[int] = set()
        self._cold_starters: list[subprocess.Popen[bytes]] = []
        self._template: subprocess.Popen[bytes] | None = None
        self._template_socket: socket.socket | None = None
        self._template_splitter = LineSplitter()
        self._from_template: Codec[Any] = Codec(TypeAdapter(FromTemplate))
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(state_dir / "ranks.sock"))
        self._listener.listen(64)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    # --- what a test does ------------------------------------------------------------------

    def start_template(self) -> TemplateHello:
        with (self.state_dir / "template.log").open("ab") as log:
            self._template = subprocess.Popen(
                [sys.executable, "-m", self._template_module, "--state-dir", self.state_dir],
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self.connect_template()

    def lose_template(self) -> None:
        """Kill the template; the ranks that it forked go on."""
        assert self._template is not None
        self._template.kill()
        self._template.wait(10)

    def start_cold(self, launch: RankLaunch) -> int:
        """Start a rank without the template and return its pid."""
        path = self.state_dir / "cold.json"
        path.write_text(launch.model_dump_json())
        with (self.state_dir / "cold.log").open("ab") as log:
            starter = subprocess.Popen(
                [
                    *(sys.executable, "-m", "nodeagent.rank.process.cold_start"),
                    *("--state-dir", self.state_dir, "--launch", path),
                ],
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._cold_starters.append(starter)
        self.wait_for(self._rank_file(launch, "json").exists)
        pid: int = self.start_record(launch)["pid"]
        return pid

    def connect_template(self) -> TemplateHello:
        """Connect, as a new agent would, and return the template's hello."""
        if self._template_socket is not None:
            self._template_socket.close()
        self._template_socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._template_socket.settimeout(30)
        path = self.state_dir / "template.sock"
        self.wait_for(lambda: self._can_connect(path), 30)
        self._template_splitter = LineSplitter()
        hello = self._template_answer()
        assert isinstance(hello, TemplateHello)
        return hello

    def plan(self, task: str, faults: Iterable[Fault]) -> None:
        """Have the ranks of a task break as ``faults`` say.

        Before they start, on a faulty template.
        """
        plan = FaultPlan(faults=tuple(faults))
        plan_path(self.state_dir, task).write_text(plan.model_dump_json())

    def fork(self, launch: RankLaunch) -> RankForked | ForkRefused:
        assert self._template_socket is not None
        self._template_socket.sendall(encode(ForkRank(launch=launch)))
        answer = self._template_answer()
        assert isinstance(answer, RankForked | ForkRefused)
        if isinstance(answer, RankForked):
            self._pids.add(answer.pid)
        return answer

    def start(self, ranks: list[RankLaunch]) -> dict[int, int]:
        """Fork all of them and return the pid by global rank."""
        pids: dict[int, int] = {}
        for launch in ranks:
            answer = self.fork(launch)
            assert isinstance(answer, RankForked), answer
            pids[launch.global_rank] = answer.pid
        return pids

    def run(self, ranks: list[RankLaunch], timeout_s: float = 60) -> RankRecord:
        """Run the ranks to their clean end and return what rank 0 said."""
        self.start(ranks)
        for launch in ranks:
            ended = self.wait_for_exit(launch, timeout_s)
            assert ended["exit_code"] == 0, self.log(launch)
        return self.record(ranks[0])

    def record(self, launch: RankLaunch) -> RankRecord:
        with self._changed:
            return self._records.setdefault(key_of(launch), RankRecord())

    def wait_for_raise(self, launch: RankLaunch) -> RankRaised:
        """Wait until the rank reported an exception, and return the report."""
        record = self.record(launch)
        raised: RankRaised = self.wait_for(lambda: record.of_kind("rank_raised"))[0]
        return raised

    def send(self, launch: RankLaunch, message: BaseModel) -> None:
        with self._changed:
            peers = [peer for peer in self._peers if peer.rank == key_of(launch)]
        assert peers, f"{key_of(launch)} is not connected"
        peers[-1].connection.sendall(encode(message))

    def halt(self, ranks: list[RankLaunch], broken: list[int]) -> None:
        """Have these ranks park; ``broken`` are the global ranks that are lost."""
        for launch in ranks:
            self.send(
                launch,
                HaltOrder(task=launch.task, generation=launch.generation, broken=tuple(broken)),
            )

    def park_at_boundary(self, ranks: list[RankLaunch], *, completes_copies: bool = False) -> None:
        """Have these ranks park together after the running iteration."""
        for launch in ranks:
            generation = launch.generation
            halt = HaltOrder(
                task=launch.task,
                generation=generation,
                at_boundary=True,
                completes_copies=completes_copies,
            )
            self.send(launch, halt)

    def wait_for_position(self, launch: RankLaunch, timeout_s: float = 30) -> Position:
        """Wait until the rank parked, and return where it stands."""
        record = self.record(launch)
        kinds = ("rank_halted", "rank_raised")
        reports = self.wait_for(
            lambda: [one for kind in kinds for one in record.of_kind(kind)], timeout_s
        )
        position: Position | None = reports[0].position
        assert position is not None, self.log(launch)
        return position

    def join(self, parked: RankLaunch, launch: RankLaunch) -> None:
        """Have the process of the parked rank become the rank of ``launch``."""
        self.send(parked, Join(launch=launch))

    def ask(self, ranks: list[RankLaunch]) -> dict[int, Standing]:
        """Ask these ranks where they stand, and return what they say by global rank."""
        records = {launch.global_rank: self.record(launch) for launch in ranks}
        num_before = {number: len(record.standings) for number, record in records.items()}
        for launch in ranks:
            self.send(launch, AskStanding(number=1))

        def answers() -> dict[int, Standing] | None:
            new = {n: record.standings[num_before[n] :] for n, record in records.items()}
            return {n: standings[-1] for n, standings in new.items()} if all(new.values()) else None

        return self.wait_for(answers)

    def cut_connections(self) -> None:
        """Close every connection of every rank, as the death of the agent would."""
        with self._changed:
            for peer in self._peers:
                peer.connection.shutdown(socket.SHUT_RDWR)

    def stop_storing(self) -> None:
        """Take reports but acknowledge none."""
        self._is_storing = False

    def resume_storing(self) -> None:
        self._is_storing = True

    def lose_next_reply(self) -> None:
        """Carry out the next store call, then lose its connection instead of answering."""
        self._num_replies_to_lose = 1

    def drop_generation(self, launch: RankLaunch) -> None:
        with self._changed:
            self._answer(self._tables.drop(launch.task, launch.generation))

    def wait_for(self, condition: Callable[[], PolledT | None], timeout_s: float = 30) -> PolledT:
        """Call ``condition`` until it returns a true value, and return that value.

        Fails the test after ``timeout_s``.
        """
        deadline = time.perf_counter() + timeout_s
        while not (found := condition()):
            assert time.perf_counter() < deadline, f"not so after {timeout_s} s\n{self.logs()}"
            with self._changed:
                self._changed.wait(0.02)
        return found

    def wait_for_exit(self, launch: RankLaunch, timeout_s: float = 30) -> dict[str, Any]:
        path = self._rank_file(launch, "exit")
        self.wait_for(path.exists, timeout_s)
        ended: dict[str, Any] = json.loads(path.read_text())
        return ended

    def has_ended(self, launch: RankLaunch) -> bool:
        """Return whether the exit of the rank was recorded."""
        return self._rank_file(launch, "exit").exists()

    def start_record(self, launch: RankLaunch) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(self._rank_file(launch, "json").read_text())
        return record

    def log(self, launch: RankLaunch) -> str:
        return self._rank_file(launch, "log").read_text()

    def logs(self) -> str:
        paths = [*self.state_dir.glob("ranks/*.log"), *self.state_dir.glob("template.log")]
        return "\n".join(f"--- {path.name}\n{path.read_text()[-3000:]}" for path in paths)

    def forget(self, task: str) -> None:
        """Remove what the ranks of a task left behind; all of them have ended."""
        for path in self.state_dir.glob(f"ranks/{task}.*"):
            path.unlink()
        with self._changed:
            for key in [key for key in self._records if key[0] == task]:
                del self._records[key]

    def kill_ranks(self) -> None:
        for path in self.state_dir.glob("ranks/*.json"):
            if not path.with_suffix(".exit").exists():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(json.loads(path.read_text())["pid"], signal.SIGKILL)
                self.wait_for(path.with_suffix(".exit").exists)

    def close(self) -> None:
        if self._template is not None:
            self.kill_ranks()
            self._template.terminate()
            self._template.wait(10)
        for starter in self._cold_starters:
            starter.wait(10)
        if self._template_socket is not None:
            self._template_socket.close()
        self._is_closing = True
        self.cut_connections()
        self._thread.join()
        self._listener.close()

    # --- the thread ------------------------------------------------------------------------

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._is_closing:
                for key, _ in selector.select(0.05):
                    if key.data is None:
                        connection, _ = self._listener.accept()
                        peer = _Peer(connection)
                        with self._changed:
                            self._peers.add(peer)
                        selector.register(connection, selectors.EVENT_READ, peer)
                    elif not self._receive(key.data):
                        selector.unregister(key.fileobj)
                        self._forget(key.data)
                with self._changed:
                    self._answer(self._tables.expire(time.perf_counter()))
            for peer in list(self._peers):
                self._forget(peer)

    def _forget(self, peer: _Peer) -> None:
        with self._changed:
            self._peers.discard(peer)
            peer.connection.close()

    def _receive(self, peer: _Peer) -> bool:
        try:
            data = peer.connection.recv(65536)
        except ConnectionResetError:
            return False
        with self._changed:
            for line in peer.splitter.feed(data):
                self._take(peer, self._codec.decode(line))
            self._changed.notify_all()
        return bool(data)

    def _take(self, peer: _Peer, message: object) -> None:
        match message:
            case StoreCall():
                self.num_store_calls += 1
                self._answer(self._tables.call(peer, message, time.perf_counter()))
            case RankHello():
                peer.rank = (message.task, message.generation, message.global_rank)
                self._of(peer).hellos.append(message)
            case RankReport():
                self._of(peer).received.append(message)
                if self._is_storing:
                    with contextlib.suppress(OSError):
                        peer.connection.sendall(encode(ReportStored(seq=message.seq)))
            case RankPulse():
                self._of(peer).pulses.append(message)
            case RankStands():
                self._of(peer).standings.append(message.standing)
            case _:
                raise AssertionError(f"a rank sent {message}")

    def _of(self, peer: _Peer) -> RankRecord:
        assert peer.rank is not None, "a rank spoke before its hello"
        return self._records.setdefault(peer.rank, RankRecord())

    def _answer(self, replies: list[tuple[_Peer, Any]]) -> None:
        for peer, reply in replies:
            if peer not in self._peers:
                continue
            if self._num_replies_to_lose:
                self._num_replies_to_lose -= 1
                peer.connection.shutdown(socket.SHUT_RDWR)
                continue
            with contextlib.suppress(OSError):
                peer.connection.sendall(encode(reply))

    # --- the template ----------------------------------------------------------------------

    def _can_connect(self, path: Path) -> bool:
        assert self._template_socket is not None
        try:
            self._template_socket.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        return True

    def _template_answer(self) -> object:
        assert self._template_socket is not None
        while True:
            data = self._template_socket.recv(65536)
            assert data, "the template closed the connection"
            lines = self._template_splitter.feed(data)
            if lines:
                return self._from_template.decode(lines[0])

    def _rank_file(self, launch: RankLaunch, ending: str) -> Path:
        stem = f"{launch.task}.{launch.generation}.{launch.global_rank}"
        return self.state_dir / "ranks" / f"{stem}.{ending}"


@contextlib.contextmanager
def rank_host(state_dir: Path, template: str = TEMPLATE) -> Iterator[RankHost]:
    """Yield a host with a warm template; nothing that it started is left afterwards."""
    host = RankHost(state_dir, template)
    try:
        host.start_template()
        yield host
    finally:
        host.close()
