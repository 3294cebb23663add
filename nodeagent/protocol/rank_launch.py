"""The launch of one rank: the training of its task, and its place in it."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.regroup import RankRef, Resume
from profiles.command_task import CommandTask
from profiles.layout import Layout
from profiles.model import ModelShape
from profiles.training_program import TrainingSettings


class TrainingSpec(TrainingSettings):
    """The training of a task, as its ranks get it.

    The same specification gives the same losses on every layout, within float32 rounding.

    Attributes:
        model: Shape of the model.
        data_path: Text file that is read as bytes; empty means the reference text of CPython.
        checkpoint_dir: Directory of the task's checkpoints, shared by all nodes; empty where
            nothing is loaded, saved or recorded.
        seed: Seed of weights and data order.
        bucket_size: Elements of a gradient bucket, reduced as one; None takes Megatron's default.
        workdir: Version of the task's folder on the node, in which the program's directory is;
            empty where that is absolute.
    """

    model: ModelShape
    data_path: str = ""
    checkpoint_dir: str
    seed: int = 1
    bucket_size: int | None = Field(default=None, gt=0)
    workdir: str = ""


class RankNetwork(BaseModel):
    """Where the ranks of a task meet, as the cluster file says it for one node.

    Attributes:
        host: Name or address at which other nodes reach this node's ranks.
        interface: Network interface of its ranks; empty to find it by ``host`` and ``peers``.
        peers: The same names or addresses of the task's other nodes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str
    interface: str = ""
    peers: tuple[str, ...] = ()


class CommandPlace(BaseModel):
    """A command, and where one rank of it stands on its node.

    Attributes:
        command: What to run.
        local_rank: Number among the task's ranks on this node.
        local_workers: Slots of the task's ranks on this node, by local rank.
        master_address: Host of global rank 0, where that rank finds no address of its own.
        task_dir: Directory of the task, shared by all nodes; empty where there is none.
        node_rank: Number of the node among those of the task, in the order of their first ranks.
        num_nodes: Nodes of the task.
        num_micro_batches: Micro-batches of one replica per iteration.
        workdir: Version of the task's folder on the node, in which the command's ``cwd`` is; empty
            where that is absolute.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: CommandTask
    local_rank: int = Field(ge=0)
    local_workers: tuple[int, ...]
    master_address: str
    task_dir: str = ""
    node_rank: int = Field(default=0, ge=0)
    num_nodes: int = Field(default=1, gt=0)
    num_micro_batches: int = Field(default=1, gt=0)
    workdir: str = ""


class RankLaunch(BaseModel):
    """One rank of a generation: to be started on a node, or to be taken over by a parked process.

    Attributes:
        task: The task.
        generation: Generation that the rank belongs to.
        global_rank: Rank in the task's world.
        worker: Slot of the node that the rank occupies, counted from 0; its GPU where there is one.
        layout: Parallel layout of this generation; its ``num_workers`` is the world size.
        backend: ``gloo`` on CPU, ``nccl`` on GPUs.
        training: Settings of the task's training; None where it is a command.
        command: The command to run, and its place; None where the rank trains in a process of ours.
            It continues no rank and prepares for none.
        continues: The parked rank whose process becomes this rank; None starts a process.
        prepares_for: Not a rank of the generation, but a process that is to be this rank of a later
            one with ``layout``, or one with the same part of the model. It builds its model, or
            keeps the one that it has, and waits while the task trains on. Its own ``global_rank``
            is beyond those of the world.
        resume: How the generation takes up training.
        network: Where the ranks of the task meet; None leaves it to gloo and NCCL.
        copy_holders: By global rank, the rank that holds the in-memory checkpoints of its state;
            None for a rank without copies. Empty where no state is.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: TaskId
    generation: Generation
    global_rank: int = Field(ge=0)
    worker: int = Field(ge=0)
    layout: Layout
    backend: Literal["gloo", "nccl"] = "gloo"
    training: TrainingSpec | None = None
    command: CommandPlace | None = None
    continues: RankRef | None = None
    prepares_for: int | None = None
    resume: Resume = Resume()
    network: RankNetwork | None = None
    copy_holders: tuple[int | None, ...] = ()

    @model_validator(mode="after")
    def _has_one_kind(self) -> Self:
        if (self.training is None) is (self.command is None):
            raise ValueError("a rank has either training settings or a command")
        if self.command and (self.continues is not None or self.prepares_for is not None):
            raise ValueError("a command's process can't be another rank")
        return self

    @property
    def workdir(self) -> str:
        """Version of the task's folder that the rank needs on its node; empty if it needs none."""
        own = self.training or self.command
        return own.workdir if own is not None else ""

    def in_folder(self, folder: str) -> Self:
        """Return the launch with the paths of its program in ``folder``, where the version is."""
        if self.command is not None:
            command = self.command.command
            inner = command.model_copy(update={"cwd": f"{folder}/{command.cwd}"})
            update = {"command": self.command.model_copy(update={"command": inner})}
            return self.model_copy(update=update)
        program = self.settings.program
        if program is None:
            return self
        inside = program.model_copy(update={"directory": f"{folder}/{program.directory}"})
        training = self.settings.model_copy(update={"program": inside})
        return self.model_copy(update={"training": training})

    @property
    def settings(self) -> TrainingSpec:
        """``training``, of a rank that is no command."""
        assert self.training is not None, "a command trains as it likes"
        return self.training
