"""Who gives way where not all can stay, against a search that looks at everything."""

import random
from collections import Counter
from collections.abc import Sequence

from hypothesis import given, strategies as st

from controller.core.rules.packing.eviction import plan_eviction
from controller.core.rules.packing.exhaustive import DomainSite, GroupKind, Outcome, search
from controller.core.rules.packing.fewest_moves import NoPacking, pack
from tests.fakes.examples import examples


def made(seed: int, sizes: Sequence[int]) -> tuple[list[GroupKind], DomainSite]:
    """Nodes, and kinds that hold parts of them, some with a few ranks of a group only."""
    dice = random.Random(seed)
    most = dice.choice([4, 4, 6])
    rooms = [
        dice.choice([most, most, most - 1, dice.randint(0, most)])
        for _ in range(dice.randint(2, 4))
    ]
    free, kinds = list(rooms), []
    for _ in range(dice.randint(2, 4)):
        size, stays = dice.choice(sizes), {}
        for v in range(len(rooms)):
            num = dice.randint(0, free[v] // size) if dice.random() < 0.5 else 0
            if num:
                last = size if dice.random() < 0.7 else dice.randint(1, size)
                stays[v] = (*[size] * (num - 1), last)
                free[v] -= size * (num - 1) + last
        num_held = sum(map(len, stays.values()))
        count = max(1, num_held + dice.choice([0, 0, 1, 1, 1, 2, -1, -2]))
        kinds.append(GroupKind(size, count, stays=stays))
    return kinds, DomainSite(rooms, range(len(rooms)))


def num_staying(kinds: Sequence[GroupKind], outcome: Outcome) -> int | None:
    """The most ranks that can stay; None where there is no packing."""
    if outcome.groups is None:
        return None
    return sum(
        sum(kind.stays.get(v, ())[:num])
        for kind, groups in zip(kinds, outcome.groups, strict=True)
        for v, num in groups.items()
    )


@examples(600)
@given(
    seed=st.integers(0, 10**9),
    sizes=st.sampled_from([(1, 2, 4), (1, 4), (1, 2, 3), (2, 3), (3, 4, 2)]),
)
def test_as_many_ranks_stay_as_in_the_search_through_everything(
    seed: int, sizes: tuple[int, ...]
) -> None:
    kinds, site = made(seed, sizes)
    nothing = tuple(Counter[int]() for _ in kinds)
    everything = search(kinds, site, nothing, None, max_steps=50_000)
    if not everything.is_complete:
        return  # a few are too large for the search
    most = num_staying(kinds, everything)
    # Without a step for the search, only what gives way decides.
    packing = pack(kinds, site, max_steps=0)
    if isinstance(packing, NoPacking):
        assert packing.is_proven
        assert most is None
    else:
        assert packing.has_fewest_moves
        assert packing.num_staying == most
        again = plan_eviction(kinds, site.rooms, packing.num_staying)
        assert again.keeps is None
        assert again.is_complete
