"""A rank that trains nothing: speaks the protocol of ``ranks.sock`` and does what its script says.

The script travels as JSON in ``training.data_path`` of the launch. Like the real rank it keeps its
reports until they are stored and connects again for ever, but not while a file ``silence`` lies in
the state directory.

It parks at a halt and goes on at ``Join``, with the script of that launch. The halt's fields come
back in its position: ``broken`` as counted micro-batches, ``at_boundary`` as an idle phase.
"""

import json
import os
import re
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from nodeagent.probes.process_stats import read_stat
from nodeagent.process_tools.process_files import ProcessFiles
from nodeagent.process_tools.socket_places import sockets_dir
from nodeagent.protocol.codec import Codec, LineSplitter, encode
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
from nodeagent.protocol.observations import (
    CheckpointSaved,
    IterationCommitted,
    OwnObservation,
    RankDone,
    RankHalted,
    RankJoined,
    RankRaised,
)
from nodeagent.protocol.orders import HaltOrder
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.protocol.regroup import Position, RankRef
from nodeagent.protocol.rendezvous import StoreCall, StoreReply
from nodeagent.protocol.standing import Collective, Standing
from nodeagent.rank.agent_link.training_stacks import dump_stacks_on_signal
from profiles.layout import Layout
from profiles.model import ModelShape


class Script(BaseModel):
    """What a fake rank does."""

    period_s: float = 0.02
    """Seconds of an iteration; each is reported."""
    num_iterations: int | None = None
    """Iterations after which it exits with ``exit_code``; None goes on and on."""
    exit_code: int = 0
    is_hasty: bool = False
    """It exits as soon as its last report is sent, without waiting until it is stored."""
    signal: int = 0
    """Signal that it sends itself instead of exiting."""
    last_words: str = ""
    store_key: str = ""
    """A key that it gets from the store; the value, a number, comes back as a checkpoint's size."""
    is_unanswered: bool = False
    """It takes no answer to its reports, and repeats them all whenever it connects again."""
    is_ended_by_join: bool = False
    """It exits with ``exit_code`` when it is told to go on with this script, without a word."""
    is_locked: bool = False
    """After its first report it holds the interpreter's lock for ever."""
    has_dumps: bool = False
    """It lets the fault handler write its stacks, as real ranks do."""
    hungry_in: str = ""
    """A control group that it begins in, and whose memory it uses up instead of exiting."""
    is_talkative: bool = False
    """Its answer about where it stands fits in its own line, and not in one to the controller."""
    is_fork_refused: bool = False
    is_cold_start_broken: bool = False


def launch(
    script: Script,
    task: str = "gpt-a",
    generation: int = 1,
    global_rank: int = 0,
    worker: int = 0,
    continues: RankRef | None = None,
) -> RankLaunch:
    """Return a launch whose rank follows ``script``."""
    shape = ModelShape(num_layers=1, hidden_size=8, num_attention_heads=1, seq_length=8)
    return RankLaunch.model_validate(
        {
            "task": task,
            "generation": generation,
            "global_rank": global_rank,
            "worker": worker,
            "layout": Layout(dp=4),
            "continues": continues,
            "training": {
                "model": shape,
                "checkpoint_dir": "/nowhere",
                "data_path": script.model_dump_json(),
            },
        }
    )


def script_of(rank: RankLaunch) -> Script:
    """Return the script in a launch."""
    return Script.model_validate_json(rank.settings.data_path)


def _hold_the_lock() -> None:
    """Match for longer than anybody lives, inside one call."""
    re.match(r"(a+)+$", "a" * 100 + "b")


class FakeRank:
    """The rank's process."""

    def __init__(self, state_dir: Path, rank: RankLaunch) -> None:
        self._path = str(sockets_dir(state_dir) / "ranks.sock")
        self._silence = state_dir / "silence"
        self._rank = rank
        self._script = script_of(rank)
        self._codec: Codec[ToRank] = Codec(TypeAdapter(ToRank))
        self._unstored: list[RankReport] = []
        self._seq = 0
        self._iteration = 0
        self._connection: socket.socket | None = None
        self._splitter = LineSplitter()
        self._is_parked = False
        self._stop_reason = ""
        self._eaten: list[bytes] = []

    def run(self) -> int:
        """Follow the script; return the exit code."""
        if self._script.has_dumps:
            dump_stacks_on_signal(ProcessFiles.of(Path(self._path).parent, self._rank).stack)
        if self._script.store_key:
            self._get_from_store()
        due = time.monotonic()  # noqa: TID251 - a process of its own, without a clock to inject
        while not self._stop_reason:
            self._turn(max(0.0, due - time.monotonic()))  # noqa: TID251 - see above
            if time.monotonic() >= due:  # noqa: TID251 - see above
                due += self._script.period_s
                if not self._is_parked:
                    self._commit()
                if self._script.is_locked:
                    _hold_the_lock()
        while self._unstored and not self._script.is_hasty:
            self._turn(0.05)
        print(self._script.last_words, file=sys.stderr, flush=True)  # noqa: T201 - its log
        while self._script.hungry_in:
            self._eaten.append(b"x" * 1_000_000)
        if self._script.signal:
            os.kill(os.getpid(), self._script.signal)
        return self._script.exit_code

    def _commit(self) -> None:
        self._iteration += 1
        self._report(
            IterationCommitted(
                **self._identity(),
                iteration=self._iteration,
                loss=1.0,
                duration_s=self._script.period_s,
                num_tokens=8,
                grad_norm=1.0,
            )
        )
        self._send(RankPulse(iteration=self._iteration, duration_s=self._script.period_s))
        if self._iteration == self._script.num_iterations:
            self._stop_reason = "finished"

    def _turn(self, timeout_s: float) -> None:
        """Connect if need be, then wait for messages, at most ``timeout_s``."""
        if self._connection is None:
            self._connect()
        if self._connection is None:
            time.sleep(min(timeout_s, 0.01))
            return
        if select.select([self._connection], [], [], timeout_s)[0]:
            try:
                data = self._connection.recv(65536)
            except OSError:
                data = b""
            if not data:
                self._connection = None
                return
            for line in self._splitter.feed(data):
                self._take(self._codec.decode(line))

    def _take(self, message: ToRank) -> None:
        match message:
            case ReportStored() if self._script.is_unanswered:
                return
            case ReportStored(seq=seq):
                self._unstored = [report for report in self._unstored if report.seq > seq]
            case StopAtBoundary():
                self._report(
                    RankDone(**self._identity(), iteration=self._iteration, reason="stopped")
                )
                self._stop_reason = "stopped"
            case AskStanding(number=number):
                self._answer(number)
            case BreakRank():
                self._raise()
            case HaltOrder():
                self._halt(message)
            case Join(launch=launch):
                self._join(launch)
            case StoreReply():
                raise AssertionError("a store reply on the control connection")

    def _answer(self, number: int) -> None:
        standing = Standing(
            where="computing", place="its script", iteration=self._iteration, source="rank"
        )
        if self._script.is_talkative:
            each = Collective(group="", sequence=1, name="", state="", is_over=True)
            standing = standing.model_copy(update={"collectives": (each,) * 60_000})
        line = encode(RankStands(number=number, standing=standing))
        self._send_line(line.replace(b'"description":"",', b""))

    def _halt(self, halt: HaltOrder) -> None:
        if halt.generation == self._rank.generation and not self._is_parked:
            self._is_parked = True
            position = Position(
                committed=self._iteration,
                has_state=True,
                phase="idle" if halt.at_boundary else "accumulate",
                counted=tuple(halt.broken),
            )
            self._report(RankHalted(**self._identity(), position=position))

    def _join(self, launch: RankLaunch) -> None:
        if launch.generation <= self._rank.generation:
            return
        self._rank, self._script, self._is_parked = launch, script_of(launch), False
        if self._script.is_ended_by_join:
            os._exit(self._script.exit_code)
        self._send(RankHello(**self._identity(), pid=os.getpid()))
        self._report(
            RankJoined(
                **self._identity(),
                iteration=self._iteration,
                source="own",
                form_s=0.0,
                state_s=0.0,
            )
        )

    def _raise(self) -> None:
        self._report(
            RankRaised(
                **self._identity(),
                exception_type="RuntimeError",
                message="drill",
                traceback="RuntimeError: drill",
                is_in_collective=False,
                iteration=self._iteration,
            )
        )

    def _get_from_store(self) -> None:
        """Get the script's key, again after every lost connection, as the real store does."""
        call = StoreCall(
            call_id="1",
            task=self._rank.task,
            generation=self._rank.generation,
            operation="get",
            keys=[self._script.store_key],
        )
        while True:
            with socket.socket(socket.AF_UNIX) as store:
                try:
                    store.connect(self._path)
                    store.sendall(encode(call))
                    line = store.makefile("rb").readline()
                except OSError:
                    line = b""
                if line:
                    break
            time.sleep(0.01)
        reply = self._codec.decode(line)
        assert isinstance(reply, StoreReply)
        assert reply.call_id == "1"
        size = int(reply.value or 0)
        self._report(
            CheckpointSaved(**self._identity(), iteration=0, duration_s=0.0, num_bytes=size)
        )

    def _report(self, observation: OwnObservation) -> None:
        self._seq += 1
        report = RankReport(seq=self._seq, wall_s=float(self._seq), observation=observation)
        self._unstored.append(report)
        self._send(report)

    def _send(self, message: BaseModel) -> None:
        self._send_line(encode(message))

    def _send_line(self, line: bytes) -> None:
        if self._connection is not None:
            try:
                self._connection.sendall(line)
            except OSError:
                self._connection = None

    def _connect(self) -> None:
        if self._silence.exists():
            return
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(self._path)
        except OSError:
            connection.close()
            return
        self._connection, self._splitter = connection, LineSplitter()
        self._send(RankHello(**self._identity(), pid=os.getpid()))
        for report in list(self._unstored):
            self._send(report)

    def _identity(self) -> dict[str, Any]:
        rank = self._rank
        return {
            "task": rank.task,
            "generation": rank.generation,
            "global_rank": rank.global_rank,
        }


def fork_rank(state_dir: Path, rank: RankLaunch, descriptors: list[int]) -> int:
    """Fork a fake rank that lets go of ``descriptors``, write its record, and return its pid."""
    stem = f"{rank.task}.{rank.generation}.{rank.global_rank}"
    ranks = state_dir / "ranks"
    pid = os.fork()
    if pid == 0:
        exit_code = 1
        try:
            os.setsid()
            for descriptor in descriptors:
                os.close(descriptor)
            log = os.open(ranks / f"{stem}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            exit_code = FakeRank(state_dir, rank).run()
        finally:
            os._exit(exit_code)
    if hungry_in := script_of(rank).hungry_in:
        (Path(hungry_in) / "cgroup.procs").write_text(str(pid))
    stat = read_stat(pid)
    record = {"launch": rank.model_dump(mode="json"), "pid": pid}
    record["start_ticks"] = stat.start_ticks if stat else 0
    _replace(ranks / f"{stem}.json", record)
    return pid


def write_exit(state_dir: Path, rank: RankLaunch, pid: int, wait_status: int) -> None:
    """Write how a rank ended, as the template does."""
    code = os.waitstatus_to_exitcode(wait_status)
    stem = f"{rank.task}.{rank.generation}.{rank.global_rank}"
    ended: dict[str, object] = {"pid": pid, "exit_code": None, "signal": None, "wall_s": 0.0}
    ended["exit_code" if code >= 0 else "signal"] = abs(code)
    _replace(state_dir / "ranks" / f"{stem}.exit", ended)


def _replace(path: Path, content: dict[str, object]) -> None:
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(json.dumps(content))
    scratch.replace(path)
