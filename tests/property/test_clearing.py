"""Which groups give way on clusters too large to look at everything, against a search that looks at everything."""

from collections import Counter

from hypothesis import given, settings, strategies as st

from controller.core.clearing import clear
from controller.core.packing import NoPacking, pack
from controller.core.packing_search import Kind, Site, search

_MAX_STEPS = 100_000


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Kind], Site]:
    """Nodes and kinds that hold what does not overlap, some with a few ranks of a group only."""
    rooms = draw(st.lists(st.integers(0, 4), min_size=2, max_size=4))
    free = list(rooms)
    sizes = draw(st.sampled_from([(1, 2, 4), (1, 2, 3), (2, 3), (1, 4)]))
    kinds = []
    for _ in range(draw(st.integers(2, 4))):
        size, stays = draw(st.sampled_from(sizes)), {}
        for v in range(len(rooms)):
            num = draw(st.integers(0, free[v] // size)) if draw(st.booleans()) else 0
            if num:
                last = draw(st.integers(1, size))
                stays[v] = (*[size] * (num - 1), last)
                free[v] -= size * (num - 1) + last
        num_held = sum(map(len, stays.values()))
        kinds.append(Kind(size, max(1, num_held + draw(st.integers(-2, 2))), stays=stays))
    return kinds, Site(rooms, range(len(rooms)))


def num_staying(kinds: list[Kind], site: Site) -> int | None:
    """The most ranks that can stay; None where there is no packing."""
    nothing = tuple(Counter[int]() for _ in kinds)
    outcome = search(kinds, site, nothing, None, _MAX_STEPS)
    assert outcome.is_complete
    if outcome.groups is None:
        return None
    return sum(
        sum(kind.stays.get(v, ())[:num])
        for kind, groups in zip(kinds, outcome.groups, strict=True)
        for v, num in groups.items()
    )


@settings(max_examples=200, deadline=None)
@given(cluster=clusters())
def test_as_many_ranks_stay_as_in_the_search_through_everything(
    cluster: tuple[list[Kind], Site],
) -> None:
    kinds, site = cluster
    most = num_staying(kinds, site)
    # Without a step for the search, only what gives way decides.
    packing = pack(kinds, site, max_steps=0)
    if isinstance(packing, NoPacking):
        assert packing.is_proven
        assert most is None
    else:
        assert packing.has_fewest_moves
        assert packing.num_staying == most
        again = clear(kinds, site.rooms, packing.num_staying)
        assert again.keeps is None
        assert again.is_complete
