"""Static splits: the fixed number of workers of every task, by one of several rules."""

from controller.simulation.policies.baselines import Split
from controller.simulation.scenarios.estimated_tables import Profile
from controller.simulation.world.initial_setup import InitialSetup


def split_of(split: Split, setup: InitialSetup, num_workers: int) -> dict[str, int]:
    """Return the workers of every task in a static split."""
    if split == "planner":
        return setup.split
    total = sum(_share(split, each) for each in setup.profiles)
    wanted = {each.task.name: num_workers * _share(split, each) / total for each in setup.profiles}
    sizes = {each.task.name: _listed_from(each, 1) for each in setup.profiles}
    # Each task begins with its smallest size. Then the task farthest below its share grows, until
    # none can.
    while True:
        free = num_workers - sum(sizes.values())
        growing = [
            (wanted[each.task.name] - sizes[each.task.name], each.task.name, larger)
            for each in setup.profiles
            if (larger := _listed_from(each, sizes[each.task.name] + 1))
            and larger - sizes[each.task.name] <= free
        ]
        if not growing:
            return sizes
        _, name, larger = max(growing)
        sizes[name] = larger


def _share(split: Split, profile: Profile) -> float:
    """Return a task's share; its unit depends on the rule."""
    match split:
        case "by-weight":
            return profile.task.weight
        case "by-size":
            return profile.flops_per_iteration / profile.task.global_batch
        case _:
            return 1.0


def _listed_from(profile: Profile, workers: int) -> int:
    """Return the smallest listed size of at least ``workers``; 0 if there is none."""
    least = max(workers, profile.task.min_workers)
    return min((x for x in profile.table.sizes if x >= least), default=0)
