"""A rank's control connection to its node's agent, in a thread of its own.

The agent may be killed and replaced at any moment, while training continues. So the link reconnects
for as long as the rank lives, and begins each connection with ``RankHello``. It keeps every report
until the agent has acknowledged it. After a reconnect it sends the unacknowledged reports again, in
order, and the agent drops sequence numbers that it has already. Only the newest pulse is kept.

The agent sends requests. A stop, a park at the boundary, and a drill are only noted here; the
training loop polls them. A halt is passed on at once in the link's thread, because the training
thread may be blocked in a collective. A ``Join`` is kept until the parked rank takes it. The link's
thread also answers what the training thread does now, by reading its stack.
"""

import logging
import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pydantic import BaseModel, TypeAdapter
from typing_extensions import override

from nodeagent.protocol.codec import Codec, MessageReader, ProtocolError, encode
from nodeagent.protocol.ids import Generation
from nodeagent.protocol.local import (
    AskStanding,
    BreakRank,
    Join,
    RankHello,
    RankPulse,
    RankReport,
    RankStands,
    ReportStored,
    StopAtBoundary,
    ToRank,
)
from nodeagent.protocol.observations import OwnObservation
from nodeagent.protocol.orders import HaltOrder
from nodeagent.protocol.rank_faults import RankFault
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.protocol.rendezvous import StoreReply
from nodeagent.protocol.standing import Standing
from nodeagent.rank.agent_link.dependencies import Control
from nodeagent.rank.agent_link.training_stacks import read_own_standing

_LOG = logging.getLogger(__name__)

_RECONNECT_WAIT_S: Final = 0.1
_SEND_TIMEOUT_S: Final = 10.0  # An agent that reads nothing for so long counts as lost.


class ControlLink(Control):
    """The link. Any thread may call any public method.

    Only ``wait_for_join``, ``wait_until_stored`` and ``close`` block.

    Args:
        socket_path: The agent's ``ranks.sock``.
        hello: The first message on each connection; it names the rank.
        wall_s: The node's wall clock.
        halt: Halts a generation; called in the link's thread. Its second argument lists the broken
            global ranks, or is None if the whole generation ends.
        read_standing: Returns what the training thread does now; called in the link's thread.
    """

    def __init__(
        self,
        socket_path: Path,
        hello: RankHello,
        wall_s: Callable[[], float],
        halt: Callable[[Generation, tuple[int, ...] | None], None],
        read_standing: Callable[[], Standing] = read_own_standing,
    ) -> None:
        self._socket_path = socket_path
        self._hello = hello
        self._wall_s = wall_s
        self._halt_training = halt
        self._read_standing = read_standing
        self._codec: Codec[ToRank] = Codec(TypeAdapter(ToRank))
        self._changed = threading.Condition()
        self._unstored: deque[RankReport] = deque()
        self._last_seq = 0
        self._pulse: RankPulse | None = None
        self._answers: list[RankStands] = []
        self._is_hello_due = False
        self._join: RankLaunch | None = None
        self._park = threading.Event()
        self._needs_copies = threading.Event()
        self._stop = threading.Event()
        self._fault: RankFault | None = None
        self._closed = threading.Event()
        self._wake_end, self._wait_end = socket.socketpair()
        self._wake_end.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="control link", daemon=True)

    def start(self) -> None:
        """Begin to connect. Reports may be queued before."""
        self._thread.start()

    def close(self) -> None:
        """End the thread.

        Reports that are not stored are lost, so call ``wait_until_stored`` before.
        """
        self._closed.set()
        self._wake()
        self._thread.join()
        self._wake_end.close()
        self._wait_end.close()

    @property
    @override
    def is_stop_requested(self) -> bool:
        return self._stop.is_set()

    @property
    @override
    def is_park_requested(self) -> bool:
        return self._park.is_set()

    @property
    @override
    def needs_copies(self) -> bool:
        return self._needs_copies.is_set()

    def wait_for_join(self) -> RankLaunch:
        """Wait without a limit for a ``Join``.

        Afterwards the link sends as the rank of that launch.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._join is not None)
            launch, self._join = self._join, None
            assert launch is not None
            self._hello = RankHello(
                task=launch.task,
                generation=launch.generation,
                global_rank=launch.global_rank,
                pid=self._hello.pid,
            )
            self._is_hello_due = True
            self._park.clear()
            self._needs_copies.clear()
            self._fault = None
        self._wake()
        return launch

    @override
    def take_fault(self) -> RankFault | None:
        if self._fault is None:
            return None
        with self._changed:
            fault, self._fault = self._fault, None
        return fault

    @override
    def report(self, observation: OwnObservation) -> None:
        with self._changed:
            self._queue(observation)
        self._wake()

    def _queue(self, observation: OwnObservation) -> None:
        self._last_seq += 1
        self._unstored.append(
            RankReport(seq=self._last_seq, wall_s=self._wall_s(), observation=observation)
        )

    @override
    def pulse(
        self,
        iteration: int,
        duration_s: float,
        busy_s: float = 0.0,
        *,
        report: OwnObservation | None = None,
    ) -> None:
        """Queue a pulse, which replaces an unsent one, and ``report`` if there is one."""
        with self._changed:
            self._pulse = RankPulse(iteration=iteration, duration_s=duration_s, busy_s=busy_s)
            if report is not None:
                self._queue(report)
        # One wake-up for both: each one takes time from the training thread.
        self._wake()

    def wait_until_stored(self, timeout_s: float) -> bool:
        """Wait until the agent has stored every report; return whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._unstored, timeout_s)

    # --- the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed.is_set():
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            with connection:
                connection.settimeout(_SEND_TIMEOUT_S)
                try:
                    connection.connect(str(self._socket_path))
                    self._serve(connection)
                except ProtocolError as error:
                    _LOG.warning("the agent sent an invalid message: reason=%s", error)
                except OSError:
                    # Expected while the agent is away. The next round tries again.
                    pass
            self._closed.wait(_RECONNECT_WAIT_S)

    def _serve(self, connection: socket.socket) -> None:
        with self._changed:
            self._is_hello_due = True
        reader = MessageReader(self._codec)
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        poll.register(self._wait_end, select.POLLIN)
        last_sent_seq = 0
        while not self._closed.is_set():
            last_sent_seq = self._send_pending(connection, last_sent_seq)
            ready = [descriptor for descriptor, _ in poll.poll()]
            if self._wait_end.fileno() in ready:
                self._wait_end.recv(4096)
            if connection.fileno() in ready:
                data = connection.recv(65536)
                if not data:
                    return
                for message in reader.feed(data):
                    self._take(message)

    def _send_pending(self, connection: socket.socket, last_sent_seq: int) -> int:
        with self._changed:
            news: list[BaseModel] = [self._hello] if self._is_hello_due else []
            self._is_hello_due = False
            reports = [report for report in self._unstored if report.seq > last_sent_seq]
            if reports:
                news += reports
                last_sent_seq = self._last_seq
            if self._pulse is not None:
                news.append(self._pulse)
                self._pulse = None
            news += self._answers
            self._answers = []
        for message in news:
            connection.sendall(encode(message))
        return last_sent_seq

    def _take(self, message: ToRank) -> None:
        match message:
            case ReportStored(seq=seq):
                with self._changed:
                    while self._unstored and self._unstored[0].seq <= seq:
                        self._unstored.popleft()
                    self._changed.notify_all()
            case StopAtBoundary():
                self._stop.set()
            case BreakRank(fault=fault):
                with self._changed:
                    self._fault = fault
            case AskStanding(number=number):
                self._answer(number)
            case HaltOrder():
                self._halt(message)
            case Join():
                self._accept_join(message.launch)
            case StoreReply():
                _LOG.warning("reply of a store dropped: call=%s", message.call_id)

    def _answer(self, number: int) -> None:
        try:
            standing = self._read_standing()
        except Exception as error:  # noqa: BLE001 - whatever the threads do now, the link lives on
            _LOG.warning("cannot read the stacks of this process: reason=%s", error)
            return
        self._answers.append(RankStands(number=number, standing=standing))

    def _halt(self, halt: HaltOrder) -> None:
        if halt.generation != self._hello.generation:
            return
        if halt.at_boundary:
            if halt.completes_copies:
                self._needs_copies.set()
            self._park.set()
        else:
            self._halt_training(halt.generation, halt.broken)

    def _accept_join(self, launch: RankLaunch) -> None:
        with self._changed:
            old = self._hello.generation
            if launch.generation <= old:
                return
            self._join = launch
            self._changed.notify_all()
        # The training thread may not have noticed yet that its generation is over.
        self._halt_training(old, None)

    def _wake(self) -> None:
        try:
            self._wake_end.send(b"\0")
        except BlockingIOError:
            # The pipe is full of unread wake-ups, so the thread wakes anyway.
            return
