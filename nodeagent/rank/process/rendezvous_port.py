"""The address and port on which global rank 0 of a command listens for its peers.

Just before it becomes the command, the process of rank 0 looks for a free port on its node. It
publishes it, with its address in the training network, in the rendezvous table of the generation,
which the controller holds. So no two
generations, tasks or clusters on one machine share a port. The ports lie below the range from which
the kernel takes ports for outgoing connections.

This module calls ``ranks.sock`` without torch. After a lost connection the call is repeated.
"""

import base64
import contextlib
import os
import random
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from nodeagent.protocol.codec import Codec, MessageReader, ProtocolError, encode
from nodeagent.protocol.local import ToRank
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.protocol.rendezvous import StoreCall, StoreOperation, StoreReply
from nodeagent.rank.process.training_network import interface_of

KEY: Final = "command/master_port"
FIRST_PORT: Final = 20_000
LAST_PORT: Final = 29_999

_NUM_ATTEMPTS: Final = 200
_RANK_0_TIMEOUT_S: Final = 600.0
"""Seconds that peers wait for rank 0. Its launch may still be on the way to its node."""
_RECONNECT_WAIT_S: Final = 0.1


class RendezvousPortError(Exception):
    """The ranks can't agree on a port. The text says why."""


def agree_on_master(socket_path: Path, launch: RankLaunch) -> tuple[str, int]:
    """Return address and port of this generation. Rank 0 chooses them, the others wait for them.

    While the agent or the controller is away, the call waits for them.

    Raises:
        RendezvousPortError: The generation is over, or no port is free.
        NoInterfaceError: This node does not have the interface that the cluster file names.
    """
    if launch.global_rank == 0:
        found = interface_of(launch.network) if launch.network is not None else None
        assert launch.command is not None, "only commands have a master"
        address, port = found.address if found else launch.command.master_address, free_port()
        value = base64.b64encode(f"{port} {address}".encode()).decode()
        _call(socket_path, launch, "set", [value])
        return address, port
    text = base64.b64decode(_call(socket_path, launch, "get").value or "").decode()
    number, _, address = text.partition(" ")
    return address, int(number)


def free_port() -> int:
    """Return a free TCP port of this machine.

    Raises:
        RendezvousPortError: No free port was found.
    """
    draw = random.Random()  # noqa: S311 - no secret; seeded by the kernel
    for _ in range(_NUM_ATTEMPTS):
        port = draw.randint(FIRST_PORT, LAST_PORT)
        with (
            socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe,
            contextlib.suppress(OSError),
        ):
            probe.bind(("", port))
            return port
    raise RendezvousPortError(f"no free port among {FIRST_PORT} to {LAST_PORT}")


def _call(
    socket_path: Path, launch: RankLaunch, operation: StoreOperation, values: Sequence[str] = ()
) -> StoreReply:
    call = StoreCall(
        call_id=f"{launch.global_rank}.{os.getpid()}.port",
        task=launch.task,
        generation=launch.generation,
        operation=operation,
        keys=[KEY],
        values=list(values),
        timeout_s=_RANK_0_TIMEOUT_S,
    )
    while True:
        reply = _try_call(socket_path, call)
        if reply is None:
            time.sleep(_RECONNECT_WAIT_S)
        elif reply.error is not None:
            raise RendezvousPortError(
                f"{launch.task}, generation {launch.generation}: {reply.error}"
            )
        else:
            return reply


def _try_call(socket_path: Path, call: StoreCall) -> StoreReply | None:
    """Make one call on a new connection; return None if the agent went away."""
    reader: MessageReader[ToRank] = MessageReader(Codec(TypeAdapter(ToRank)))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(str(socket_path))
            connection.sendall(encode(call))
            while data := connection.recv(65536):
                for message in reader.feed(data):
                    if isinstance(message, StoreReply) and message.call_id == call.call_id:
                        return message
        except ProtocolError as error:
            raise RendezvousPortError(f"the agent sent an invalid message: {error}") from error
        except OSError:
            return None
    return None
