"""A real controller server with its API. A test speaks for its nodes.

Nothing listens at the nodes' ports. So what the controller orders reaches nobody, and a test posts
the events of agents itself.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from controller.cli import main
from controller.clock import SystemClock
from controller.core.events import NodeAttached, TaskAdded
from controller.core.rules.policy import Policy
from controller.core.specs import TaskSpec
from controller.fleet.address import NodeAddress, SshTarget
from controller.server.controller_config import ControllerConfig
from controller.server.controller_server import ControllerServer, ServerPlaces
from controller.server.rank_launches import encode_program
from controller.server.server_hooks import ServerHooks
from nodeagent.protocol.ids import AgentId, NodeId, TaskId
from nodeagent.protocol.rank_launch import TrainingSpec
from profiles.model import ModelShape
from tests.fakes.clusters import table
from tests.fakes.node import until

NODES = (NodeId("n1"), NodeId("n2"))
LIMIT_S = 30.0


def unreached(node: NodeId, num_workers: int = 2) -> NodeAddress:
    """Return the address of a node at whose port nothing listens."""
    target = SshTarget("127.0.0.1", 1, "op", "key", "ssh-ed25519 AAAA")
    return NodeAddress(node, target, "/tmp/x", "python", num_workers)


def a_task(name: str, workers: int = 2, weight: float = 1.0) -> TaskSpec:
    """Return a task of 1 to 4 workers."""
    rates = table({1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0})
    shape = ModelShape(num_layers=2, hidden_size=32, num_attention_heads=4, seq_length=32)
    program = encode_program(TrainingSpec(model=shape, checkpoint_dir="", num_micro_batches=4))
    return TaskSpec(TaskId(name), weight, workers, 1, rates, 1e9, None, 4, program=program)


@asynccontextmanager
async def served(
    directory: Path, *, policy: Policy | None = None, hooks: ServerHooks | None = None
) -> AsyncIterator[ControllerServer]:
    """Serve a cluster of two nodes in contact, without tasks."""
    addresses = [unreached(node) for node in NODES]
    config = ControllerConfig(addresses, [], {}, policy or Policy())
    places = ServerPlaces(directory, socket_in(directory), directory / "events.jsonl")
    server = ControllerServer("test", config, places, SystemClock(), hooks)
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        service = group.create_task(server.run())
        await server.is_ready.wait()
        for node in NODES:
            server.post(NodeAttached(node, AgentId(f"agent of {node}"), 1, ()))
        try:
            yield server
        finally:
            service.cancel()


def socket_in(directory: Path) -> Path:
    """Return where the server of a directory listens."""
    return directory / "api.sock"


async def with_a_waiting_plan(server: ControllerServer, name: str = "gpt-a") -> str:
    """Add a task, and return the name of the plan that is to start it."""
    server.post(TaskAdded(a_task(name)))
    plan = await until(server.state.plans.pending, "a plan for the new task")
    return plan.name


async def command(directory: Path, *words: str) -> int:
    """Run a command of ``unicron`` against the server of a directory; return its exit code."""
    return await asyncio.to_thread(main, [*words, "--connect", str(socket_in(directory))])
