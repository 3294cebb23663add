"""Many modelled agents behind one SSH server, for a controller that is to see a large fleet.

    python -m tests.fakes.agent_server HOST_KEY_FILE [--beat-s S] [--iteration-s S]

Every path ``/fake/NODE/agent.sock`` that is opened through the server is an agent. Its ranks start
and join at once; the first rank of a task commits an iteration every ``--iteration-s``. Heartbeats
list all ranks. The agent keeps its reports until they are acknowledged, and has them again for the
next session, as a real one does. A rank can be killed: SIGUSR1 ends rank 3 of the first task.
"""

import argparse
import asyncio
import contextlib
import json
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import asyncssh

from controller.clock import SystemClock

_CLOCK = SystemClock()
_FLEET: dict[str, "ModelledAgent"] = {}
_COMMITTED: dict[tuple[str, int], int] = {}
"""By task and generation, the newest iteration: all ranks of a task are as far."""


@dataclass
class ModelledAgent:
    """One node's agent and its ranks."""

    node: str
    beat_s: float
    iteration_s: float
    ranks: dict[tuple[str, int, int], dict[str, Any]] = field(default_factory=dict)
    held: dict[int, bytes] = field(default_factory=dict)
    seq: int = 0
    writer: "asyncssh.SSHWriter[bytes] | None" = None

    def send(self, message: dict[str, Any]) -> None:
        """Send a message, if a controller is attached."""
        self._write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def _write(self, line: bytes) -> None:
        if self.writer is not None:
            with contextlib.suppress(OSError, asyncssh.Error):
                self.writer.write(line)

    def report(self, **observation: object) -> None:
        """Report an observation, and keep it until it is acknowledged."""
        self.seq += 1
        message = {
            "kind": "report", "seq": self.seq, "wall_s": _CLOCK.wall_s(), "observation": observation,
        }  # fmt: skip
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        self.held[self.seq] = line
        self._write(line)

    async def serve(
        self, reader: "asyncssh.SSHReader[bytes]", writer: "asyncssh.SSHWriter[bytes]"
    ) -> None:
        """Serve one controller until it goes."""
        try:
            async with asyncio.TaskGroup() as group:
                beats: asyncio.Task[None] | None = None
                async for line in reader:
                    message = json.loads(line)
                    self._take(message, writer)
                    if message["kind"] == "attach" and beats is None:
                        beats = group.create_task(self._live(writer))
                if beats is not None:
                    beats.cancel()
        except* (OSError, asyncssh.Error):
            pass
        finally:
            if self.writer is writer:
                self.writer = None
            writer.close()

    def _take(self, message: dict[str, Any], writer: "asyncssh.SSHWriter[bytes]") -> None:
        kind = message["kind"]
        if kind == "attach":
            self.writer = writer
            self.send(
                {
                    "kind": "welcome", "version": message["version"], "node": self.node,
                    "agent_id": f"{self.node}-1", "pid": 1, "num_workers": 8,
                    "is_template_ready": True, "first_seq": min(self.held, default=1),
                    "ranks": list(self.ranks.values()),
                }
            )  # fmt: skip
            for seq, line in self.held.items():
                if seq > message["last_seq"]:
                    self._write(line)
        elif kind == "acknowledge":
            for seq in [each for each in self.held if each <= message["seq"]]:
                del self.held[seq]
        elif kind == "start_ranks":
            self.send({"kind": "command_done", "command_id": message["command_id"]})
            for launch in message["launches"]:
                self._start(launch, message)
        elif kind == "order_ranks":
            self.send({"kind": "command_done", "command_id": message["command_id"]})
            self._obey(message["order"])
        elif kind == "probe_peer":
            done = {"kind": "command_done", "command_id": message["command_id"]}
            self.send(done | {"detail": "answered"})

    def _start(self, launch: dict[str, Any], message: dict[str, Any]) -> None:
        who = {key: launch[key] for key in ("task", "generation", "global_rank")}
        for key in [each for each in self.ranks if each[0] == who["task"]]:
            if key[1] < who["generation"]:
                del self.ranks[key]
        pid = 1000 * who["generation"] + who["global_rank"]
        committed = message["resume"].get("committed") or 0
        self.ranks[who["task"], who["generation"], who["global_rank"]] = {
            **who, "worker": launch.get("worker", 0), "pid": pid, "iteration": committed,
            "duration_s": self.iteration_s, "busy_s": 0.2, "busy_spread_s": 0.01,
            "rss_bytes": 10**9,
        }  # fmt: skip
        self.report(kind="rank_started", **who, pid=pid, warm=True, start_s=0.1)
        self.report(
            kind="rank_joined", **who, iteration=committed, source="own" if committed else "seed",
            form_s=0.1, state_s=0.1,
        )  # fmt: skip

    def _obey(self, order: dict[str, Any]) -> None:
        for key, rank in list(self._ranks_of(order)):
            who = {name: rank[name] for name in ("task", "generation", "global_rank")}
            if order["kind"] == "halt":
                newest = _COMMITTED.get((rank["task"], rank["generation"]), rank["iteration"])
                position = {"committed": newest, "has_state": True}
                self.report(kind="rank_halted", **who, position=position)
            elif order["kind"] == "stop":
                del self.ranks[key]
                self.report(
                    kind="rank_exited", **who, pid=rank["pid"], exit_code=0, signal=None,
                    stderr_tail="", is_expected=True,
                )  # fmt: skip

    def _ranks_of(
        self, order: dict[str, Any]
    ) -> Iterator[tuple[tuple[str, int, int], dict[str, Any]]]:
        for key, rank in self.ranks.items():
            if key[:2] == (order["task"], order["generation"]):
                yield key, rank

    def kill(self, task: str, global_rank: int) -> bool:
        """Kill a rank, if it lives here."""
        for key, rank in self.ranks.items():
            if (key[0], key[2]) == (task, global_rank):
                del self.ranks[key]
                who = {name: rank[name] for name in ("task", "generation", "global_rank")}
                self.report(
                    kind="rank_exited", **who, pid=rank["pid"], exit_code=None, signal=9,
                    stderr_tail="",
                )  # fmt: skip
                return True
        return False

    async def _live(self, writer: "asyncssh.SSHWriter[bytes]") -> None:
        """Send heartbeats, and iterations of the tasks whose first rank is here."""
        # Clocks of different machines are not in step.
        next_iteration = next_beat = _CLOCK.now() + self.beat_s * random.random()
        while self.writer is writer:
            next_beat += self.beat_s
            await asyncio.sleep(next_beat - _CLOCK.now())
            if _CLOCK.now() >= next_iteration:
                next_iteration += self.iteration_s
                self._commit()
            self.send(
                {
                    "kind": "heartbeat", "wall_s": _CLOCK.wall_s(), "rss_bytes": 30_000_000,
                    "is_template_ready": True, "ranks": list(self.ranks.values()),
                }
            )  # fmt: skip

    def _commit(self) -> None:
        for rank in self.ranks.values():
            key = rank["task"], rank["generation"]
            if rank["global_rank"] == 0:
                _COMMITTED[key] = _COMMITTED.get(key, rank["iteration"]) + 1
            rank["iteration"] = _COMMITTED.get(key, rank["iteration"])
            if rank["global_rank"] == 0:
                who = {name: rank[name] for name in ("task", "generation", "global_rank")}
                self.report(
                    kind="iteration_committed", **who, iteration=rank["iteration"], loss=1.0,
                    duration_s=self.iteration_s, num_tokens=1024, grad_norm=1.0,
                )  # fmt: skip


class _Server(asyncssh.SSHServer):
    beat_s = 0.5
    iteration_s = 1.0

    def begin_auth(self, username: str) -> bool:  # noqa: ARG002
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:  # noqa: ARG002
        return True

    def unix_connection_requested(
        self, dest_path: str
    ) -> Callable[[asyncssh.SSHReader[bytes], asyncssh.SSHWriter[bytes]], Awaitable[None]]:
        node = dest_path.split("/")[2]
        agent = _FLEET.get(node)
        if agent is None:
            agent = _FLEET[node] = ModelledAgent(node, self.beat_s, self.iteration_s)
        return agent.serve


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _kill_a_rank() -> None:
    for agent in _FLEET.values():
        if agent.kill("t0", 3):
            _say(f"killed {_CLOCK.wall_s():.6f}")
            return


async def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("host_key")
    parser.add_argument("--beat-s", type=float, default=0.5)
    parser.add_argument("--iteration-s", type=float, default=1.0)
    arguments = parser.parse_args()
    _Server.beat_s, _Server.iteration_s = arguments.beat_s, arguments.iteration_s
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, _kill_a_rank)
    server = await asyncssh.create_server(
        _Server, "127.0.0.1", 0, server_host_keys=[arguments.host_key], encoding=None,
        backlog=2000, login_timeout=120,
    )  # fmt: skip
    _say(f"port {server.get_port()}")
    await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
