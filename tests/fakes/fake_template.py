"""A template that imports nothing heavy: same socket and files as the real one, forks fake ranks.

Run as ``python -m tests.fakes.fake_template --state-dir DIR``.
"""

import argparse
import os
import select
import signal
import socket
import time
from pathlib import Path

from pydantic import TypeAdapter

from nodeagent.process_tools.socket_places import sockets_dir
from nodeagent.protocol.codec import Codec, LineSplitter, encode
from nodeagent.protocol.local import ForkRank, ForkRefused, RankForked, TemplateHello, ToTemplate
from nodeagent.protocol.rank_launch import RankLaunch
from tests.fakes.fake_rank import fork_rank, script_of, write_exit


class FakeTemplate:
    """One listening socket, one connection, and its children."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        path = sockets_dir(state_dir) / "template.sock"
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._connection: socket.socket | None = None
        self._splitter = LineSplitter()
        self._codec: Codec[ForkRank] = Codec(TypeAdapter(ToTemplate))
        self._rank_by_pid: dict[int, RankLaunch] = {}
        self._path, self._is_to_retire = path, False
        signal.signal(signal.SIGUSR1, self._ask_to_retire)

    def _ask_to_retire(self, *_: object) -> None:
        self._is_to_retire = True

    def _retire(self) -> None:
        self._listener.close()
        self._path.unlink()
        while self._rank_by_pid:
            self._reap()
            time.sleep(0.02)

    def serve(self) -> None:
        while not self._is_to_retire:
            self._serve_once()
        self._retire()

    def _serve_once(self) -> None:
        sources = [one for one in (self._listener, self._connection) if one is not None]
        ready = select.select(sources, [], [], 0.02)[0]
        if self._listener in ready:
            self._accept()
        elif self._connection is not None and self._connection in ready:
            self._receive()
        self._reap()

    def _accept(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection, _ = self._listener.accept()
        self._splitter = LineSplitter()
        self._connection.sendall(encode(TemplateHello(pid=os.getpid(), import_s=0.0)))

    def _receive(self) -> None:
        assert self._connection is not None
        try:
            data = self._connection.recv(65536)
        except OSError:
            data = b""
        if not data:
            self._connection = None
            return
        for line in self._splitter.feed(data):
            answer = self._fork(self._codec.decode(line).launch)
            if self._connection is not None:
                try:
                    self._connection.sendall(encode(answer))
                except OSError:
                    self._connection = None

    def _fork(self, rank: RankLaunch) -> RankForked | ForkRefused:
        identity = {
            "task": rank.task,
            "generation": rank.generation,
            "global_rank": rank.global_rank,
        }
        if script_of(rank).is_fork_refused:
            return ForkRefused.model_validate({**identity, "reason": "its script says so"})
        descriptors = [self._listener.fileno()]
        if self._connection is not None:
            descriptors.append(self._connection.fileno())
        pid = fork_rank(self._state_dir, rank, descriptors)
        self._rank_by_pid[pid] = rank
        return RankForked.model_validate({**identity, "pid": pid})

    def _reap(self) -> None:
        while self._rank_by_pid:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            write_exit(self._state_dir, self._rank_by_pid.pop(pid), pid, status)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--state-dir", type=Path, required=True)
    FakeTemplate(parser.parse_args().state_dir).serve()
