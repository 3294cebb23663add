"""Process groups without connections.

A spare builds its model in them, before its generation begins.

Megatron asks the groups for sizes and places while it builds, and torch's fake backend answers
without a peer. The model keeps references to these groups until ``group_rebinding`` replaces them.
A collective in such a group returns at once without a result, so no results of it may be used.
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
    """Provide all of Megatron's groups inside the block, without any connection."""
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
