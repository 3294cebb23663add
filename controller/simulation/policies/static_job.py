"""A task of a static division: what it does, and what of its state is left after a fault."""

from dataclasses import dataclass, field

from controller.simulation.scenarios.estimated_tables import Profile
from controller.simulation.world.worker_time import WorkerActivity
from profiles.layout import Layout


@dataclass(slots=True, eq=False)
class StaticJob:
    """A task and its nodes.

    Attributes:
        name: The task.
        profile: Its throughput; None if it fits no size.
        workers_by_node: Its nodes, with their numbers of workers.
        size: The number of workers that it trains with.
        activity: Its present activity.
        since_s: When that activity began.
        attempt: Changes with every fault. Actions scheduled by an earlier attempt are void.
        recompute_s: Seconds of work to compute again once it trains, at its size.
        unsaved_s: Seconds of work since its newest checkpoint on disk, at the fault that it
            recovers from.
        interrupted_s: The part of it that belongs to the interrupted iteration.
        has_lost_node: Whether that fault took a node.
        holders: Its nodes that have been there since it trained last, in the order of their ranks.
            They hold its state.
        trained_on: How many nodes it trained on last.
        began_s: When it trained for the first time.
        slow_nodes: Nodes that slow it down.
    """

    name: str
    profile: Profile | None
    workers_by_node: dict[int, int]
    size: int = 0
    activity: WorkerActivity = "waiting"
    attempt: int = 0
    since_s: float = 0.0
    recompute_s: float = 0.0
    unsaved_s: float = 0.0
    interrupted_s: float = 0.0
    has_lost_node: bool = False
    holders: dict[int, int] = field(default_factory=dict)
    trained_on: int = 0
    began_s: float | None = None
    slow_nodes: set[int] = field(default_factory=set)

    def interrupt(self, part: float, interval_s: float, now_s: float) -> None:
        """Note what a fault loses.

        Args:
            part: How far the iteration, and the interval between checkpoints, were: 0 to 1.
            interval_s: Seconds between checkpoints.
            now_s: Now.
        """
        assert self.profile is not None
        if self.activity == "recomputation":
            self.unsaved_s = min(part * interval_s, self.settle(now_s))
        elif self.activity == "training":
            trained_s = now_s - self.began_s if self.began_s is not None else 0.0
            self.unsaved_s = min(part * interval_s, trained_s)
            self.interrupted_s = part * self.profile.iteration_s(self.size)

    def settle(self, now_s: float) -> float:
        """Return for how long it has recomputed; so much less is left to do."""
        if self.activity != "recomputation":
            return 0.0
        passed_s = now_s - self.since_s
        self.recompute_s = max(0.0, self.recompute_s - passed_s)
        return passed_s

    def hold_state(self, nodes: list[int], workers_per_node: int) -> None:
        """Note that its processes on the first of these nodes have the state."""
        self.trained_on = -(-self.size // workers_per_node)
        self.holders = {node: number for number, node in enumerate(nodes[: self.trained_on])}
        self.has_lost_node = False

    def holds_model(self, layout: Layout, num_here: int, *, with_copies: bool = True) -> bool:
        """Return whether the nodes that have stayed hold the whole model.

        A rank holds its own part, and with copies the in-memory checkpoint of a rank on another
        node, as in the modelled cluster.
        """
        held = set[tuple[int, int]]()
        for number in self.holders.values():
            for rank in range(number * num_here, min(layout.num_workers, (number + 1) * num_here)):
                for each in (rank, (rank - num_here) % layout.num_workers)[: 1 + with_copies]:
                    held.add((layout.tp_rank(each), layout.pp_rank(each)))
        return len(held) == layout.tp * layout.pp
