"""From the core's instruction and the task's program to the launch of each rank.

The core knows placements and generations. This module adds how a task trains: the settings of
Unicron's own training loop, or a command and the facts for its environment.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal

from pydantic import TypeAdapter

from controller.core.instructions import PrepareSpares, StartRanks
from controller.core.rules.placement import Placement
from controller.core.rules.regroup.copy_holders import copy_holders
from nodeagent.protocol.ids import Generation, NodeId
from nodeagent.protocol.rank_launch import CommandPlace, RankLaunch, RankNetwork, TrainingSpec
from nodeagent.protocol.regroup import Resume
from profiles.command_task import CommandTask

Backend = Literal["gloo", "nccl"]


@dataclass(frozen=True, slots=True)
class CommandLaunch:
    """A task that is a command.

    Attributes:
        command: The command line and its limits.
        task_dir: Directory of the task, shared by all nodes.
        num_micro_batches: Micro-batches of the global batch.
        workdir: Version of its folder that is copied to nodes; empty if none is.
    """

    command: CommandTask
    task_dir: str
    num_micro_batches: int = 1
    workdir: str = ""


TaskProgram = TrainingSpec | CommandLaunch
"""The program of a task's ranks: Unicron's training loop, or a command."""


_PROGRAM: Final = TypeAdapter[TaskProgram](TaskProgram)


def encode_program(program: TaskProgram) -> str:
    """Return a program as text, which the core and the journal keep."""
    return _PROGRAM.dump_json(program).decode()


@lru_cache(maxsize=256)
def decode_program(text: str) -> TaskProgram:
    """Return the program that ``encode_program`` made a text of."""
    return _PROGRAM.validate_json(text)


def measured_program(program: TaskProgram, generation: Generation) -> TaskProgram:
    """Return the program for a measurement of throughput: at full speed, without checkpoints.

    A command gets an empty directory of its own, which stays there afterwards.
    """
    if isinstance(program, CommandLaunch):
        return replace(program, task_dir=f"{program.task_dir}@measure-{generation}")
    return program.model_copy(
        update={"checkpoint_dir": "", "iteration_floor_s": 0.0, "num_iterations": None}
    )


@dataclass(frozen=True, slots=True)
class NodeNetwork:
    """Where the ranks of a node meet others: the host, and the interface if that is named."""

    host: str
    interface: str = ""


def rank_networks(
    nodes: Iterable[NodeId], networks: Mapping[NodeId, NodeNetwork]
) -> dict[NodeId, RankNetwork]:
    """Return the network of each node of a task, for the launches of its ranks."""
    known = {node: networks[node] for node in dict.fromkeys(nodes) if node in networks}
    return {
        node: RankNetwork(
            host=network.host,
            interface=network.interface,
            peers=tuple(other.host for name, other in known.items() if name != node),
        )
        for node, network in known.items()
    }


def starts(
    instruction: StartRanks,
    program: TaskProgram,
    backend: Backend,
    networks: Mapping[NodeId, NodeNetwork],
) -> dict[NodeId, list[RankLaunch]]:
    """Return the launches for each node.

    Args:
        instruction: The core's instruction.
        program: The program of the task.
        backend: Backend of the process groups.
        networks: Where the ranks of each node meet others.
    """
    if isinstance(program, CommandLaunch):
        return _by_node(
            _command(instruction, program, backend, number, networks)
            for number in instruction.global_ranks
        )
    return _by_node(_loops(instruction, program, backend, networks))


def _loops(
    instruction: StartRanks,
    program: TrainingSpec,
    backend: Backend,
    networks: Mapping[NodeId, NodeNetwork],
) -> Iterator[tuple[NodeId, RankLaunch]]:
    """Yield the launches of a training loop's ranks and spares."""
    placement = instruction.placement
    holders = copy_holders(instruction.layout, placement, is_sharded=program.shard_optimizer)
    # Copied from one launch: to validate the holders for each of 1000s of ranks takes seconds.
    rank = RankLaunch(
        task=instruction.task,
        generation=instruction.generation,
        global_rank=0,
        worker=0,
        layout=instruction.layout,
        backend=backend,
        training=program,
        resume=instruction.resume,
        copy_holders=holders if program.memory_interval else (),
    )
    nodes = [*(each.node for each in placement)]
    nodes += [each.worker.node for each in instruction.parked_spares.values()]
    network = rank_networks(nodes, networks)
    for number in instruction.global_ranks:
        worker, continues = placement[number], instruction.continues.get(number)
        own: dict[str, object] = {
            "global_rank": number,
            "worker": worker.slot,
            "continues": continues,
            "network": network.get(worker.node),
        }
        yield worker.node, rank.model_copy(update=own)
    spare = rank.model_copy(update={"resume": Resume(), "copy_holders": ()})
    for number, each in instruction.parked_spares.items():
        own = {
            "global_rank": number,
            "worker": each.worker.slot,
            "continues": each.continues,
            "network": network.get(each.worker.node),
            "prepares_for": each.stands_for,
        }
        yield each.worker.node, spare.model_copy(update=own)


def spare_launches(
    instruction: PrepareSpares, program: TaskProgram, backend: Backend
) -> dict[NodeId, list[RankLaunch]]:
    """Return the spares that each node prepares. A command has none."""
    assert isinstance(program, TrainingSpec), "a command has no spares"
    return _by_node(
        (
            worker.node,
            RankLaunch(
                task=instruction.task,
                generation=instruction.generation,
                global_rank=number,
                worker=worker.slot,
                layout=instruction.target,
                backend=backend,
                training=program,
                prepares_for=place,
            ),
        )
        for number, (worker, place) in instruction.spares.items()
    )


def _command(
    instruction: StartRanks,
    program: CommandLaunch,
    backend: Backend,
    global_rank: int,
    networks: Mapping[NodeId, NodeNetwork],
) -> tuple[NodeId, RankLaunch]:
    placement, worker = instruction.placement, instruction.placement[global_rank]
    local_ranks = _ranks_on(placement, worker.node)
    nodes = list(dict.fromkeys(each.node for each in placement))
    place = CommandPlace(
        command=program.command,
        local_rank=local_ranks.index(global_rank),
        local_workers=tuple(placement[number].slot for number in local_ranks),
        master_address=networks[placement[0].node].host,
        task_dir=program.task_dir,
        node_rank=nodes.index(worker.node),
        num_nodes=len(nodes),
        # At least one, as with a size that a loss leaves behind.
        num_micro_batches=max(1, program.num_micro_batches // instruction.layout.dp),
        workdir=program.workdir,
    )
    return worker.node, RankLaunch(
        task=instruction.task,
        generation=instruction.generation,
        global_rank=global_rank,
        worker=worker.slot,
        layout=instruction.layout,
        backend=backend,
        command=place,
        resume=instruction.resume,
        network=rank_networks(nodes, networks)[worker.node],
    )


def _ranks_on(placement: Placement, node: NodeId) -> list[int]:
    return [number for number, worker in enumerate(placement) if worker.node == node]


def _by_node(
    launches: Iterable[tuple[NodeId, RankLaunch]],
) -> dict[NodeId, list[RankLaunch]]:
    by_node: dict[NodeId, list[RankLaunch]] = {}
    for node, launch in launches:
        by_node.setdefault(node, []).append(launch)
    return by_node
