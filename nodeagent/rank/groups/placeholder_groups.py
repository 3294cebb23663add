"""Process groups that lead nowhere: a rank builds its model in them before its generation begins.

Megatron asks the groups for sizes and places while it builds. torch's fake backend answers that
without a peer. What is built keeps references to these groups; they are replaced (``rebind``) when
the generation has real ones. A collective in them returns at once and has done nothing, so nothing
that is computed in them is of use.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from megatron.core import parallel_state
from torch import distributed
from torch.testing._internal.distributed import fake_pg

from nodeagent.rank.groups.parallel_groups import ORDER
from nodeagent.rank.groups.rank_place import Place


@contextlib.contextmanager
def placeholder_groups(place: Place) -> Iterator[None]:
    """Have all of Megatron's groups inside the block, of a world in which this rank is alone."""
    make_store: Any = fake_pg.FakeStore
    distributed.init_process_group(
        "fake",
        store=make_store(),
        rank=place.global_rank,
        world_size=place.layout.num_workers,
    )
    try:
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=place.layout.tp,
            pipeline_model_parallel_size=place.layout.pp,
            order=ORDER,
            create_gloo_process_groups=False,
        )
        yield
    finally:
        parallel_state.destroy_model_parallel()
        distributed.destroy_process_group()
