"""What a controller runs: its nodes, its tasks, and its policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from controller.core.membership.file_changes import WantedCluster
from controller.core.rules.policy import Policy
from controller.core.specs import NodeSpec, TaskSpec
from controller.fleet.address import NodeAddress, encode_address
from controller.fleet.host_keys import AcceptedKeys
from controller.server.compactor import Retention
from controller.server.rank_launches import Backend, TaskProgram, encode_program
from nodeagent.protocol.ids import NodeId, TaskId


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """The config of a controller. What the next controller of the run gets differently, it changes.

    Attributes:
        addresses: The nodes: host, port, and how to log in.
        tasks: The tasks.
        programs: The program of each task's ranks.
        policy: The operators' decisions about faults, made in advance.
        tables: Directory of the measured throughput tables; None means ``profiles`` beside the
            journal.
        failure_domains: Nodes with the same domain fail together. Empty where that is not known.
        retention: How much of the journal is kept for people.
        further_changes: Other changes of the file, in words. Its reader carries them out.
        backend: ``nccl`` if workers are GPUs, ``gloo`` if they are CPUs. It holds for all nodes.
    """

    addresses: Sequence[NodeAddress]
    tasks: Sequence[TaskSpec]
    programs: Mapping[TaskId, TaskProgram]
    policy: Policy
    tables: Path | None = None
    failure_domains: Mapping[NodeId, str] = field(default_factory=dict)
    backend: Backend = "gloo"
    accepted_keys: AcceptedKeys | None = None
    retention: Retention = field(default_factory=Retention)
    further_changes: Sequence[str] = ()

    def wanted(self) -> WantedCluster:
        """Return nodes, tasks and policy as the core knows them."""
        return WantedCluster(
            nodes={spec.node: spec for spec in self.node_specs()},
            tasks={
                spec.task: replace(spec, program=encode_program(self.programs[spec.task]))
                for spec in self.tasks
            },
            policy=self.policy,
        )

    def node_specs(self) -> list[NodeSpec]:
        """Return the nodes as the core knows them."""
        return [
            NodeSpec(
                address.node,
                address.ssh.place,
                address.num_workers,
                self.failure_domains.get(address.node, ""),
                address.training_address,
                address.training_interface,
                encode_address(address),
            )
            for address in self.addresses
        ]
